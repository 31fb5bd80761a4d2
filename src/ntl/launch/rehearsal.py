"""Runs tried before they are trained: a few steps, a checkpoint, a resume, an evaluation and some answers of each."""

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from ntl.config import compose
from ntl.config.folders import choices, literal
from ntl.config.settings import quote
from ntl.launch.plan import Run, waves
from ntl.runs.folder import CHECKPOINTS, checkpoint_at
from ntl.system.errors import UserError, one_line_errors
from ntl.system.messages import logger, printed

TRAIN_ROWS, OTHER_ROWS = 256, 2
# What a CPU does in seconds. Tokens of a tokenizer that is trained here are short, so a question has many.
TINY = ("scale.positions=8192", "trainer.batch_size=4", "decoding.max_new_tokens=8")


def rehearse(
    runs: Sequence[Run],
    launch: Callable[[Sequence[Run]], list[str]],
    parent: Path,
    *,
    steps: int = 2,
    tiny: bool = False,
) -> tuple[dict[str, float], int]:
    """Train ``steps`` steps of each run, and again from the middle on, in a new folder in ``parent``.

    Runs that differ in nothing but the seed and what is shortened are one, for which a line is logged. The folder
    is deleted where none failed, else named. ``launch`` trains runs and returns their errors. ``tiny``: small models
    of the same kind, from scratch, in place of the published ones.

    Returns by id the optimizer steps a second of each run that did not fail, and how many failed.
    """
    with one_line_errors("write to", parent):
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=parent))
    place = f"output_dir={quote(literal(str(scratch.resolve())))}"
    short, errors, rates = dict[str, Run](), dict[str, str](), dict[str, float]()
    try:
        for run in (run for wave in waves(runs) for run in wave):
            base = f"{short[run.base].id}@{steps}" if run.base in short else run.config.base
            short[run.id] = trial = Run.of([*_words(run, steps, tiny), place, f"base={quote(base)}"])
            if trial.id not in errors:
                started = time.monotonic()
                with printed(least=logging.WARNING):  # of each run a line is logged here
                    errors[trial.id] = error = _try(trial, steps, launch)
                outcome = f"failed: {error}\n  log: {trial.log}" if error else "ok"
                logger.info(f"{time.monotonic() - started:7.1f} s  {trial.id} {outcome}")
                if not error and run.id not in {later.base for later in runs}:
                    shutil.rmtree(trial.folder / CHECKPOINTS)  # else a table needs the disk of all its rows at once
            if not errors[trial.id]:
                rates[run.id] = trial.rate
    finally:
        if failed := sum(map(bool, errors.values())):
            logger.warning(f"{failed} of {len(errors)} failed; what they left is in {scratch}")
        else:
            shutil.rmtree(scratch)
    if not failed:
        logger.info(f"{len(errors)} ok, for {len(runs)} runs.")
    return rates, failed


def _try(run: Run, steps: int, launch: Callable[[Sequence[Run]], list[str]]) -> str:
    """Train the run, then once more from its first checkpoint, as where it was killed; returns what failed."""
    for is_again in (False, True):
        if is_again:
            (run.folder / "record.json").unlink()
            shutil.rmtree(checkpoint_at(run.folder, steps))
        (error,) = launch([run])
        if error or not run.is_done:
            return error or "it ended without a record"
    return "" if "\nContinuing from " in run.log.read_text(errors="replace") else "it did not resume"


def _words(run: Run, steps: int, tiny: bool) -> Iterator[str]:
    """The overrides of the run, shortened."""
    half = (steps + 1) // 2
    for word in run.overrides:
        group = word.partition("=")[0].split(".")[0].lstrip("+")
        if not tiny or group != "model":
            yield word
        elif word.startswith("model="):
            if (kind := _kind(run.config.model)) not in _tiny_models():
                raise UserError(f"{word}: no *_tiny model has its architecture; rehearse it without --shapes tiny.")
            yield f"model={_tiny_models()[kind]}"
    yield from TINY if tiny else ()
    yield from (f"trainer.{name}=0" for name in ("epochs", "eval_epochs", "save_epochs"))
    yield from (f"trainer.max_steps={steps}", f"trainer.save_steps={half}", f"trainer.eval_steps={steps}")
    yield from (f"trainer.logging_steps={steps}", "trainer.keep_checkpoints=2", "trainer.keep_checkpoints_after=2")
    yield from (f"trainer.eval_rows={OTHER_ROWS}", "keep_steps=[]", "probe_steps=0", "tracking=none", "seed=1")
    for name in (item.name for item in fields(run.config.dataset) if "rows" in item.name):
        yield f"dataset.{name}={TRAIN_ROWS if name.startswith(('train', 'rows')) else OTHER_ROWS}"


def _kind(model: Any) -> tuple[str, str]:
    return model.family, getattr(model, "architecture", "")


@cache
def _tiny_models() -> dict[tuple[str, str], str]:
    names = (name for name in choices("model") if name.endswith("_tiny") or name.endswith("_tiny_regression"))
    return {_kind(compose([f"model={name}"]).model): name for name in names}
