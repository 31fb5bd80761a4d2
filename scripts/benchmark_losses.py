"""Time and memory of every loss against cross-entropy: python scripts/benchmark_losses.py --out FILE."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each loss and part, or JSON with ``--json``; ``--out`` writes the CSV of Figure 3."""
    from ntl.benchmarks.implementations import Setting, run_all
    from ntl.benchmarks.losses import BASIS, token_losses
    from ntl.benchmarks.timing import Row, remark, write_csv

    default = Setting()
    parser = Parser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.device)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default=default.dtype)
    parser.add_argument("--batch", type=int, default=default.batch)
    parser.add_argument("--length", type=int, default=default.length)
    parser.add_argument("--vocab", type=int, default=default.vocab)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.8, 0.015], help="shares of number labels")
    parser.add_argument("--losses", nargs="+", default=token_losses(), metavar="LOSS", help="default: all")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, help="write a CSV here")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--implementations", action="store_true", help="compare implementations of CE + NTL instead")
    chosen = parser.parse_args(argv)
    rows: list[Row] = []
    for found in run_all(chosen.device, chosen.rounds) if chosen.implementations else _losses(chosen):
        rows += found
        if chosen.out and rows:  # written after each step, so that an interrupted benchmark keeps its results
            write_csv(chosen.out, rows, f"{remark('torch', 'transformers')}; {BASIS}")
    if chosen.json:
        print(json.dumps(rows, indent=1))


def _losses(chosen: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    from ntl.benchmarks.implementations import Setting
    from ntl.benchmarks.losses import benchmark

    setting = Setting(chosen.device, chosen.dtype, chosen.batch, chosen.length, chosen.vocab)
    say = partial(print, file=sys.stderr, flush=True)
    for share in chosen.shares:
        for row in benchmark(replace(setting, share=share), chosen.losses, chosen.rounds, say):
            if not chosen.json:
                _show(row)
            yield [row]


def _show(row: dict[str, Any]) -> None:
    print(
        f"share {row['share']:<4g} {row['part']:<17} {row['loss']:<12} {1000 * row['seconds']:9.3f} ms  "
        f"{row['ratio']:6.3f} x CE  {row['peak_mib']:8.1f} MiB",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(report(main))
