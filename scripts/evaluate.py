"""Recompute the metrics of a run from its predictions.jsonl: python scripts/evaluate.py RUN [--json]."""

import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.evaluation.metrics import RULE_OPTIONS
from ntl.system.errors import UserError


def find_predictions(run: str, outputs: Path, *, force: bool = False) -> Path:
    """The predictions file of a path, a run folder, or a run id under `outputs`. UserError names the nearest id.

    UserError also as of ``checked_record``, unless ``force``, where a record is beside it.
    """
    from ntl.evaluation.evaluate import PREDICTIONS
    from ntl.results.record import RECORD, checked_record, find_run

    path = Path(run) if Path(run).is_file() else find_run(run, outputs) / PREDICTIONS
    if not path.is_file():
        raise UserError(f"{path.parent}: no {PREDICTIONS} in this run folder; decode it with scripts/predict.py")
    if path.name == PREDICTIONS and path.with_name(RECORD).is_file() and not force:
        checked_record(path)
    return path


def main(argv: Sequence[str] | None = None) -> None:
    """Print the metrics of a run: one table per split, or with --json one flat object. UserError for bad input.

    With --worst N it prints the N worst answers of each split instead, with --json as a list for each split.
    """
    parser = Parser(
        description="Recompute the metrics of a run from its predictions.jsonl alone, without a model.",
        epilog="Undefined metrics are null in --json, values beyond float64 are the strings inf and -inf.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder, or the id of a run under --outputs")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("--json", action="store_true", help='print {"<split>/<metric>": value} instead of tables')
    rules = ["+".join(["default", *some]) for n in (1, 2) for some in combinations(RULE_OPTIONS, n)]
    parser.add_argument("--rule", choices=rules, default="", help="read answers by this rule, too: 2.5 million, 12%%")
    worst = "print the N worst answers of each split with their questions instead; needs the data of the run"
    parser.add_argument("--worst", type=int, metavar="N", help=worst)
    force = "also predictions that do not belong to the record beside them"
    parser.add_argument("--force", action="store_true", help=force)
    chosen = parser.parse_args(argv)
    if chosen.worst is not None and chosen.worst < 1:
        raise UserError(f"--worst {chosen.worst}: must be 1 or more; leave it out for the metrics.")
    if chosen.worst and chosen.rule:
        raise UserError(f"--rule {chosen.rule}: --worst sorts by the rule default; leave one of the two out.")
    from ntl.evaluation.evaluate import print_metrics, print_worst
    from ntl.results.record import RECORD, read_record

    path = find_predictions(chosen.run, chosen.outputs, force=chosen.force)
    if chosen.worst:
        record = path.with_name(RECORD)
        files = read_record(record).data.get("files") if record.is_file() else None
        print_worst(path, chosen.worst, files, as_json=chosen.json)
    else:
        print_metrics(path, as_json=chosen.json, rule=chosen.rule)


if __name__ == "__main__":
    sys.exit(report(main))
