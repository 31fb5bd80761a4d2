"""Time and memory of every loss against cross-entropy: python scripts/benchmark_losses.py --out FILE."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ntl.config.cli import Parser, report

LINE = "share {share:<5g} {part:<17} {loss:<24} {:9.3f} ms  {ratio:6.3f} x CE  {peak_mib:8.1f} MiB"


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each loss and part, or JSON with ``--json``; ``--out`` writes the CSV of Figure 3."""
    from ntl.benchmarks.losses import BASIS, Setting, benchmark, run_all, token_losses
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
    if chosen.implementations:
        found = run_all(chosen.device, chosen.rounds)
    else:
        setting = Setting(chosen.device, chosen.dtype, chosen.batch, chosen.length, chosen.vocab)
        each = (benchmark(replace(setting, share=share), chosen.losses, chosen.rounds) for share in chosen.shares)
        found = chain.from_iterable(each)
    for row in found:
        rows.append(row)
        print(LINE.format(1000 * row["seconds"], **row), file=sys.stderr if chosen.json else sys.stdout, flush=True)
        if chosen.out:  # written after each row, so that an interrupted benchmark keeps its results
            write_csv(chosen.out, rows, f"{remark('torch', 'transformers')}; {BASIS}")
    if chosen.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(report(main))
