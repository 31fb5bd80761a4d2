"""Speed and time to the first step, ours against a bare Seq2SeqTrainer: python scripts/benchmark_training.py."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.system.errors import UserError


def main(argv: Sequence[str] | None = None) -> None:
    """Print one row for each combination of model and loss, as a table or with ``--json`` as JSON."""
    parser = Parser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, for example dataset=noisy_numbers")
    parser.add_argument("--models", nargs="+", help="gpt2_tiny t5_tiny; of --attention llama_tiny granite_tiny")
    parser.add_argument("--losses", nargs="+", default=["ce", "ntl_was"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--attention", action="store_true", help="fused and eager attention of decoders, instead")
    parser.add_argument("--out", type=Path, metavar="CSV", help="of --attention: write the rows there, too")
    chosen = parser.parse_args(argv)
    fewest = 2 if chosen.attention else 1
    if chosen.steps < 3 or chosen.rounds < fewest:
        some = f"at least 3 steps and {fewest} round{'s' * (fewest > 1)}"
        raise UserError(f"--steps {chosen.steps} --rounds {chosen.rounds}: {some} are measured")
    if chosen.out and not chosen.attention:
        raise UserError("--out: a table of --attention alone; add that, or leave it out")
    (_show_attention if chosen.attention else _show_ours)(chosen)


def _show_ours(chosen: argparse.Namespace) -> None:
    import torch

    from ntl.benchmarks.timing import show
    from ntl.benchmarks.training import compare

    rows = [
        compare([f"model={model}", f"loss={loss}", *chosen.overrides], steps=chosen.steps, rounds=chosen.rounds)
        for model in chosen.models or ["gpt2_tiny", "t5_tiny"]
        for loss in chosen.losses
    ]
    columns = {
        "model": "{model}",
        "our loss (bare: CE)": "{loss}",
        "ours, examples/s": "{examples_per_s[ours]:.0f}",
        "bare, examples/s": "{examples_per_s[bare]:.0f}",
        "speed ratio": "{speed_ratio:.3f}",
        "first step, s": "{first_step_s[ours]:.2f} (bare {first_step_s[bare]:.2f})",
    }
    title = f"Training speed, {torch.get_num_threads()} threads, medians of {chosen.rounds} rounds"
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
        "quartiles": "{ratio_low:.3f} to {ratio_high:.3f}",
    }
    show(rows, chosen, "Attention in training", columns)


if __name__ == "__main__":
    sys.exit(report(main))
