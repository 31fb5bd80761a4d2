"""Generation throughput, ours against a bare loop of model.generate: python scripts/benchmark_decoding.py."""

import sys
from collections.abc import Sequence

from ntl.config.cli import Parser, report


def main(argv: Sequence[str] | None = None) -> None:
    """Print, or with ``--json`` dump, one row for each combination of model and number of beams."""
    import torch

    from ntl.benchmarks.decoding import compare_loops
    from ntl.benchmarks.timing import show

    parser = Parser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, for example dataset=noisy_numbers")
    parser.add_argument("--models", nargs="+", default=["gpt2_tiny", "t5_tiny", "granite_tiny", "granite_moe_tiny"])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(argv)
    results = [
        compare_loops(
            [f"model={model}", f"decoding.num_beams={beams}", *chosen.overrides], rows=chosen.rows, rounds=chosen.rounds
        )
        for model in chosen.models
        for beams in chosen.beams
    ]
    columns = {
        "model": "{model}",
        "beams": "{num_beams}",
        "ours, examples/s": "{examples_per_s[ours]:.0f}",
        "bare, examples/s": "{examples_per_s[bare]:.0f}",
        "speed ratio": "{speed_ratio:.3f}",
        "same answers": "{same_answers} of {examples}",
    }
    title = f"Decoding, {torch.get_num_threads()} threads, medians of {chosen.rounds} rounds"
    show(results, chosen, title, columns)


if __name__ == "__main__":
    sys.exit(report(main))
