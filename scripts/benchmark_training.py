"""Speed, ours against a bare Seq2SeqTrainer: python scripts/benchmark_training.py."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.system.errors import UserError


def main(argv: Sequence[str] | None = None) -> None:
    """Print one row for each combination of model and loss, as a table or with ``--json`` as JSON."""
    parser = Parser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, for example dataset=noisy_numbers")
    parser.add_argument("--models", nargs="+", default=["gpt2_tiny", "t5_tiny"])
    parser.add_argument("--losses", nargs="+", default=["ce", "ntl_was"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write a CSV here")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(argv)
    if chosen.steps < 3 or chosen.rounds < 1:
        raise UserError(f"--steps {chosen.steps} --rounds {chosen.rounds}: at least 3 steps and 1 round are measured")
    from ntl.benchmarks.timing import show
    from ntl.benchmarks.training import compare

    rows = (
        compare([f"model={model}", f"loss={loss}", *chosen.overrides], steps=chosen.steps, rounds=chosen.rounds)
        for model in chosen.models
        for loss in chosen.losses
    )
    show(rows, chosen, "Training speed of ours, and of a bare trainer by CE", "torch", "transformers")


if __name__ == "__main__":
    sys.exit(report(main))
