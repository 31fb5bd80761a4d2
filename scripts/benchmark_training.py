"""Speed and time to the first step, ours against a bare Seq2SeqTrainer: python scripts/benchmark_training.py."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.system.errors import UserError

QUARTILES = "{ratio_low:.3f} to {ratio_high:.3f}"


def main(argv: Sequence[str] | None = None) -> None:
    """Print one row for each combination of model and loss, as a table or with ``--json`` as JSON."""
    parser = Parser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, for example dataset=noisy_numbers")
    parser.add_argument("--models", nargs="+", help="gpt2_tiny t5_tiny; of --attention llama_tiny granite_tiny")
    parser.add_argument("--losses", nargs="+", default=["ce", "ntl_was"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--attention", action="store_true", help="fused and eager attention of decoders, instead")
    what.add_argument("--diagnostics", action="store_true", help="the cost of the logged diagnostics, instead")
    parser.add_argument("--out", type=Path, metavar="CSV", help="of these two: write the rows there, too")
    chosen = parser.parse_args(argv)
    one = not (chosen.attention or chosen.diagnostics)
    if chosen.steps < 3 or chosen.rounds < 2 - one:
        some = f"at least 3 steps and {2 - one} round{'s' * (not one)}"
        raise UserError(f"--steps {chosen.steps} --rounds {chosen.rounds}: {some} are measured")
    if chosen.diagnostics and (chosen.steps < 4 or chosen.steps % 2):
        raise UserError(f"--steps {chosen.steps}: an even number from 4 on, with --diagnostics")
    if chosen.out and one:
        raise UserError("--out: a table of --attention or --diagnostics; add one of them, or leave it out")
    (_show_attention if chosen.attention else _show_diagnostics if chosen.diagnostics else _show_ours)(chosen)


def _show_ours(chosen: argparse.Namespace) -> None:
    import torch

    from ntl.benchmarks.training import compare

    columns = {
        "model": "{model}",
        "our loss (bare: CE)": "{loss}",
        "ours, examples/s": "{examples_per_s[ours]:.0f}",
        "bare, examples/s": "{examples_per_s[bare]:.0f}",
        "speed ratio": "{speed_ratio:.3f}",
        "first step, s": "{first_step_s[ours]:.2f} (bare {first_step_s[bare]:.2f})",
    }
    title = f"Training speed, {torch.get_num_threads()} threads, medians of {chosen.rounds} rounds"
    _show_losses(chosen, compare, title, columns)


def _show_diagnostics(chosen: argparse.Namespace) -> None:
    from ntl.benchmarks.training import compare_diagnostics

    columns = {
        "model": "{model}",
        "loss": "{loss}",
        "s a step": "{step_s:.4f}",
        "ratio": "{ratio:.4f}",
        "quartiles": QUARTILES,
        "of a training": "{share:.3%}, logged every {logging_steps} steps",
    }
    _show_losses(chosen, compare_diagnostics, "A step with diagnostics", columns)


def _show_losses(chosen: argparse.Namespace, compare: Callable, title: str, columns: dict[str, str]) -> None:
    from ntl.benchmarks.timing import show

    rows = [
        compare([f"model={model}", f"loss={loss}", *chosen.overrides], steps=chosen.steps, rounds=chosen.rounds)
        for model in chosen.models or ["gpt2_tiny", "t5_tiny"]
        for loss in chosen.losses
    ]
    show(rows, chosen, title, columns)


def _show_attention(chosen: argparse.Namespace) -> None:
    from ntl.benchmarks.timing import show
    from ntl.benchmarks.training import compare_attention

    rows = [
        row
        for model in chosen.models or ["llama_tiny", "granite_tiny"]
        for row in compare_attention([f"model={model}", *chosen.overrides], steps=chosen.steps, rounds=chosen.rounds)
    ]
    columns = {
        "model": "{model}",
        "attention": "{attention}",
        "precision": "{precision}",
        "s a step": "{step_s:.4f}",
        "ratio": "{ratio:.3f}",
        "quartiles": QUARTILES,
    }
    show(rows, chosen, "Attention in training", columns)


if __name__ == "__main__":
    sys.exit(report(main))
