"""Copy the record of a finished run into results/runs: `make publish RUN=<run id>`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS, ROOT


def main(argv: Sequence[str] | None = None) -> None:
    """Print the files that were written. UserError: of `ntl.launch.publish`."""
    parser = Parser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run id, or the folder of a run")
    parser.add_argument("--outputs", type=Path, default=ROOT / "outputs", help="where the run folders are")
    parser.add_argument("--out", type=Path, default=RESULTS / "runs", help="where published records are")
    parser.add_argument("--dirty", action="store_true", help="also of runs from a source with uncommitted changes")
    parser.add_argument(
        "--weights", action="store_true", help="also the weights at keep_steps, into bases/ beside the records"
    )
    chosen = parser.parse_args(argv)
    from ntl.launch.publish import publish, publish_weights
    from ntl.results.record import read_record

    for path in publish(chosen.runs, chosen.outputs, chosen.out, dirty=chosen.dirty):
        print(path)
        model = read_record(path).model
        if weights := model.get("weights"):
            parts = [f"{name} {text}" for name, text in [*weights.items(), *model.get("shape", {}).items()]]
            print(f"  {model.get('parameters', 0):,} parameters from weights with {', '.join(parts)}")
    if chosen.weights:
        for path in publish_weights(chosen.runs, chosen.outputs, chosen.out.parent / "bases"):
            print(path)


if __name__ == "__main__":
    sys.exit(report(main))
