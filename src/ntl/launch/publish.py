"""Publish chosen runs: records to ``results/runs``, weights that other runs start from to ``results/bases``."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ntl.config import build
from ntl.config.composition import read_config
from ntl.evaluation.evaluate import find_predictions
from ntl.evaluation.worst import wrong_answers
from ntl.results.load import find_run
from ntl.results.publish import publish_runs
from ntl.system.errors import UserError, one_line_errors
from ntl.training.checkpoints import CHECKPOINTS, KEEP, by_step, is_whole, publish_base

PUBLISHED = 10  # answers of each split and sample in a record
LONGEST = 300  # characters of a text in it


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


def wrong_samples(folder: Path) -> dict[str, Any]:
    """The fields ``worst`` and ``typical`` of the published record of a run.

    UserError: the licence of the data does not permit it, or the predictions or the data are not here.
    """
    config = read_config(folder)
    if not build(config.dataset).publishable:
        raise UserError(f"the licence of {config.dataset.name} does not permit it")
    samples = wrong_answers(find_predictions(str(folder), folder.parent), PUBLISHED)
    for row in (row for parts in samples.values() for rows in parts.values() for row in rows):
        for name in ("question", "answer", "prediction"):
            if len(row[name]) > LONGEST:
                row[name] = f"{row[name][: LONGEST - 1]}…"
    return samples


def _answers(folder: Path) -> dict[str, Any]:
    try:
        return wrong_samples(folder)
    except UserError as error:
        print(f"{folder.name}: published without its worst answers: {error}", file=sys.stderr)
        return {}


def publish(runs: Sequence[str], outputs: Path, out: Path, *, dirty: bool = False) -> list[Path]:
    """Copy the records of finished runs into ``out``, with their worst answers where their texts may be published.

    UserError: of ``publish_runs``.
    """
    return publish_runs(runs, outputs, out, dirty=dirty, answers=_answers)
