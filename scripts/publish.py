"""Add the record of a finished run to results/runs: `make publish RUN=<run id>`; check one: `make check-record`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS, ROOT


def main(argv: Sequence[str] | None = None) -> None:
    """Print the files that were written, or what a check found. UserError: of `ntl.launch.publish`, or a fault."""
    parser = Parser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run id, or the folder of a run")
    parser.add_argument("--outputs", type=Path, default=ROOT / "outputs", help="where the run folders are")
    parser.add_argument("--out", type=Path, default=RESULTS / "runs", help="where published records are")
    parser.add_argument("--dirty", action="store_true", help="also publish runs from source with uncommitted changes")
    parser.add_argument(
        "--weights", action="store_true", help="also publish the weights at keep_steps, in bases/ beside the records"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; RUN is a file of records, or the id of a published one"
    )
    chosen = parser.parse_args(argv)
    if chosen.check:
        check(chosen.runs, chosen.out)
        return
    from ntl.launch.publish import publish, publish_weights

    for path, record in publish(chosen.runs, chosen.outputs, chosen.out, dirty=chosen.dirty):
        print(f"{path}: {record.id}")
        if weights := record.model.get("weights"):
            parts = [f"{name} {text}" for name, text in [*weights.items(), *record.model.get("shape", {}).items()]]
            print(f"  {record.model.get('parameters', 0):,} parameters from weights with {', '.join(parts)}")
    if chosen.weights:
        for path in publish_weights(chosen.runs, chosen.outputs, chosen.out.parent / "bases"):
            print(path)


def check(names: Sequence[str], published: Path) -> None:
    """Print which rows of tables each record fills. UserError: what is wrong with one of them."""
    from ntl.config.settings import nearest
    from ntl.evaluation.evaluate import PREDICTIONS
    from ntl.results.check_record import check_record
    from ntl.results.record import RECORD, checked_record, load_records, read_records
    from ntl.system.errors import UserError

    records = load_records([published])
    for name in names:
        path = Path(name)
        if path.name == RECORD:
            chosen = [checked_record(path.parent / PREDICTIONS)]
        else:
            chosen = read_records(path) if path.is_file() else [record for record in records if record.id == name]
        if not chosen:
            hint = nearest(name, [record.id for record in records])
            raise UserError(f"{name}: neither a file nor the id of a published record.{hint}")
        for record in chosen:
            faults, rows = check_record(record, records, ROOT)
            if faults:
                raise UserError(f"{name}: {record.id}: {'; '.join(faults)}.")
            print(f"{record.id}: whole, and it fits the published records.")
            print("\n".join(f"  fills {row}" for row in rows) or "  no row of a table asks for this run")


if __name__ == "__main__":
    sys.exit(report(main))
