"""Does training wait for W&B? Speed with and without it: python scripts/benchmark_tracking.py."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.system.errors import UserError


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row for each of `WAYS`, as a table or with ``--json`` as JSON."""
    import torch

    from ntl.benchmarks.timing import Row, show
    from ntl.benchmarks.training import compare_tracking

    parser = Parser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, for example model=t5_tiny")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--diagnostics", action="store_true", help="the cost of the logged diagnostics, instead")
    parser.add_argument("--out", type=Path, metavar="CSV", help="of --diagnostics: write the rows there, too")
    chosen = parser.parse_args(argv)
    if chosen.diagnostics:
        return _show_diagnostics(chosen)
    if chosen.out:
        raise UserError("--out: a table of --diagnostics alone; add that, or leave it out")
    rows = compare_tracking(chosen.overrides, steps=chosen.steps, rounds=chosen.rounds)
    columns: dict[str, Callable[[Row], str]] = {
        "tracking": lambda row: row["tracking"],
        "ms a step": lambda row: f"{1000 * row['step_s']:.2f}",
        "ratio": lambda row: f"{row['ratio']:.3f}",
        "quartiles": lambda row: f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}",
        "waits": lambda row: f"{row['waits']:.2%}",
        "at most": lambda row: f"{row['waits_at_most']:.2%}",
    }
    title = f"Training with W&B, {torch.get_num_threads()} threads, medians of {chosen.rounds} rounds"
    show(rows, chosen, title, columns)


def _show_diagnostics(chosen: argparse.Namespace) -> None:
    from ntl.benchmarks.timing import Row, show
    from ntl.benchmarks.training import compare_diagnostics

    if chosen.steps < 4 or chosen.steps % 2 or chosen.rounds < 2:
        raise UserError(f"--steps {chosen.steps} --rounds {chosen.rounds}: an even number from 4 on, and 2 rounds")
    sides = [("gpt2_tiny", "ce"), ("gpt2_tiny", "ntl_was"), ("t5_tiny", "ce"), ("t5_tiny", "ntl_was")]
    rows = [
        compare_diagnostics(
            [f"model={model}", f"loss={loss}", *chosen.overrides], steps=chosen.steps, rounds=chosen.rounds
        )
        for model, loss in sides
    ]
    columns: dict[str, Callable[[Row], str]] = {
        "model": lambda row: row["model"],
        "loss": lambda row: row["loss"],
        "ms a step": lambda row: f"{1000 * row['step_s']:.2f}",
        "ratio": lambda row: f"{row['ratio']:.4f}",
        "quartiles": lambda row: f"{row['ratio_low']:.4f} to {row['ratio_high']:.4f}",
        "of a training": lambda row: f"{row['share']:.3%}, logged every {row['logging_steps']} steps",
    }
    show(rows, chosen, "A step with diagnostics", columns)


if __name__ == "__main__":
    sys.exit(report(main))
