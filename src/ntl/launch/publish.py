"""Publish chosen runs: records to ``results/runs``, weights that other runs start from to ``results/bases``."""

import math
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ntl.config.composition import read_config
from ntl.evaluation.evaluate import PREDICTIONS, wrong_answers
from ntl.evaluation.scores import score_predictions
from ntl.results import RunRecord
from ntl.results.record import PUBLISHED_ALONE, RECORD, checked_record, find_run, merged, published_file, read_records
from ntl.runs.folder import CHECKPOINTS, KEEP, by_step, is_complete, publish_base
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import lock, write_text

PUBLISHED = 10  # answers of each split and sample in a record
LONGEST = 300  # characters of a text in it


def publish_weights(runs: Iterable[str], outputs: Path | str, bases: Path | str) -> list[Path]:
    """Copy the weights at each run's ``keep_steps``, which other runs start from, to ``<bases>/<id>``.

    UserError: a run has no complete checkpoint of such a step, or the folder cannot be written to.
    """
    checkpoints = []
    for run in runs:
        folder = find_run(run, Path(outputs))
        kept = [path for path in by_step(folder / CHECKPOINTS) if (path / KEEP).is_file() and is_complete(path)]
        if not kept:
            raise UserError(f"{folder} has no weights that other runs start from; train it with keep_steps=[STEP]")
        checkpoints += kept
    with one_line_errors("publish to", Path(bases)):
        return [publish_base(checkpoint, Path(bases)) for checkpoint in checkpoints]


def publish(runs: Iterable[str], outputs: Path, out: Path, *, dirty: bool = False) -> list[tuple[Path, RunRecord]]:
    """Add the records of finished runs to ``<out>/DATASET.jsonl``, with their worst answers if these may be published.

    All are checked first, and another process waits until these are written. UserError: as of ``checked_record``, a
    different record is there under that id, the run was started from a source with uncommitted changes and ``dirty``
    does not allow it, or the folder cannot be written to.
    """
    paths = [find_run(run, outputs) / RECORD for run in runs]
    if lacking := [path.parent for path in paths if not path.is_file()]:
        raise UserError(f"{lacking[0]} has no {RECORD}: the run has not ended; resume it with the same command")
    records = [checked_record(path.with_name(PREDICTIONS)) for path in paths]
    if (changed := [record.id for record in records if record.git.get("dirty")]) and not dirty:
        raise UserError(
            f"{changed[0]} was started from a source with uncommitted changes, which nobody can have again: commit and "
            "run it again, or python scripts/publish.py --dirty RUN, and every table with it will say so"
        )
    for path, record in zip(paths, records, strict=True):
        _check_scores(path, record)
    files = [published_file(out, record) for record in records]
    with one_line_errors("publish to", out):
        out.mkdir(parents=True, exist_ok=True)
        with lock(out / ".lock", wait=True):
            texts = {file: file.read_text(encoding="utf-8") if file.exists() else "" for file in files}
            published = {record.id: record for file, text in texts.items() if text for record in read_records(file)}
            for number, (path, file, record) in enumerate(zip(paths, files, records, strict=True)):
                # A run's own may be of any answers.
                fields = {name: getattr(published.get(record.id), name, {}) for name in PUBLISHED_ALONE}
                try:
                    fields |= {} if fields["worst"] else _wrong_answers(path.parent, record)
                except UserError as error:
                    print(f"{record.id}: published without its worst answers: {error}", file=sys.stderr)
                records[number] = replace(record, **fields)
                texts[file] = merged(texts[file], records[number], file)
            for file, text in texts.items():
                write_text(file, text)
    return [*zip(files, records, strict=True)]


def _check_scores(path: Path, record: RunRecord) -> None:
    """UserError where a metric differs from the predictions, if there are any, by the same rules."""
    try:
        scores = score_predictions(path.with_name(PREDICTIONS))
    except UserError:
        return
    for key, value in scores.metrics.items() if scores.rules == record.rules else ():
        stated = record.metrics.get(key, value)
        if stated is not None and math.isfinite(value) and not math.isclose(value, stated, rel_tol=1e-8, abs_tol=1e-12):
            difference = f"{key} is {stated:.10g}, and its predictions give {value:.10g}"
            raise UserError(f"{path}: {difference}; restore it, or remove it and repeat the run's command.")


def _wrong_answers(folder: Path, record: RunRecord) -> dict[str, Any]:
    """``worst`` and ``typical`` of the record. UserError: the licence forbids it, or predictions or data are gone."""
    config = read_config(folder)
    if not cast(Any, config.dataset).publishable:
        raise UserError(f"the licence of {config.dataset.name} does not permit it")
    samples = wrong_answers(folder / PREDICTIONS, PUBLISHED, record.data.get("files"))
    for row in (row for parts in samples.values() for rows in parts.values() for row in rows):
        for name in ("question", "answer", "prediction"):
            row[name] = row[name] if len(row[name]) <= LONGEST else f"{row[name][: LONGEST - 1]}…"
    return samples
