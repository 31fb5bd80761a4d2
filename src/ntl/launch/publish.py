"""Publish chosen runs: records to ``results/runs``, weights that other runs start from to ``results/bases``."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ntl.config.folders import RESULTS, ROOT
from ntl.results.load import find_run
from ntl.results.publish import loaded_weights, publish_runs
from ntl.results.record import read_record
from ntl.system.errors import UserError, one_line_errors
from ntl.training.checkpoints import CHECKPOINTS, KEEP, by_step, is_whole, publish_base
from ntl.training.errors import publishable


def publish_weights(runs: Iterable[str], outputs: Path | str, bases: Path | str) -> list[Path]:
    """Copy the weights at each run's ``keep_steps``, which other runs start from, to ``<bases>/<id>``.

    UserError: a run has no complete checkpoint of such a step, or the folder cannot be written to.
    """
    checkpoints = []
    for run in runs:
        folder = find_run(run, Path(outputs))
        kept = [path for path in by_step(folder / CHECKPOINTS) if (path / KEEP).is_file() and is_whole(path)]
        if not kept:
            raise UserError(f"{folder} has no weights that other runs start from; train it with keep_steps=[STEP]")
        checkpoints += kept
    with one_line_errors("publish to", Path(bases)):
        return [publish_base(checkpoint, Path(bases)) for checkpoint in checkpoints]


def _answers(folder: Path) -> dict[str, Any]:
    found, why = publishable(folder)
    if why:
        print(f"{folder.name}: published without its worst answers: {why}", file=sys.stderr)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Copy the records of finished runs into results/runs. UserError: of ``publish_runs``, ``publish_weights``."""
    parser = argparse.ArgumentParser(
        description="Copy the record of a finished run into results/runs: `make publish RUN=<run id>`."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run id, or the folder of a run")
    parser.add_argument("--outputs", type=Path, default=ROOT / "outputs", help="where the run folders are")
    parser.add_argument("--out", type=Path, default=RESULTS / "runs", help="where published records are")
    parser.add_argument("--dirty", action="store_true", help="also of runs from a source with uncommitted changes")
    parser.add_argument(
        "--weights", action="store_true", help="also the weights at keep_steps, into bases/ beside the records"
    )
    arguments = parser.parse_args(argv)
    for path in publish_runs(arguments.runs, arguments.outputs, arguments.out, dirty=arguments.dirty, answers=_answers):
        print(path)
        if loaded := loaded_weights(read_record(path)):
            print(f"  {loaded}")
    if arguments.weights:
        for path in publish_weights(arguments.runs, arguments.outputs, arguments.out.parent / "bases"):
            print(path)
