"""From override lists to runs: composed, named, each once, and parted into those with a record and those without."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ntl.config import compose, run_id
from ntl.config.identity import plain
from ntl.config.root import Config
from ntl.costs.runs import kind_of
from ntl.results import lacking_readings, read_record
from ntl.training.checkpoints import not_kept

# A log line is far shorter; only the end of the file is read.
_TAIL_BYTES = 8192


def last_lines(path: Path) -> list[bytes]:
    """The lines at the end of a file, the first of which may be cut. OSError where it cannot be read."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().splitlines()


@dataclass(frozen=True)
class Run:
    """One training run before it starts. ``kind`` is shared by runs that should take equally long."""

    id: str
    label: str
    overrides: tuple[str, ...]
    folder: Path
    kind: tuple[str, ...]
    max_steps: int
    beside: Mapping[str, Any] = field(default_factory=dict)  # settings of each reading beside the run's own
    base: str = ""  # the id of the run that it begins from
    keep_steps: tuple[int, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether a record is there that was read in all the ways that are asked for, and the checkpoints to keep."""
        if not self.record.is_file() or not_kept(self.folder, self.keep_steps):
            return False
        return not self.beside or not lacking_readings(read_record(self.record).config, self.beside)

    @property
    def record(self) -> Path:
        return self.folder / "record.json"

    @property
    def log(self) -> Path:
        return self.folder / "run.log"

    def step(self, since: float) -> int:
        """The last step in metrics.jsonl; 0 where the file is older than ``since`` (seconds since the epoch)."""
        path = self.folder / "metrics.jsonl"
        try:
            if path.stat().st_mtime < since:
                return 0
            lines = last_lines(path)
        except OSError:
            return 0
        for line in reversed(lines):
            try:
                return int(json.loads(line)["step"])
            except (ValueError, KeyError, TypeError):
                continue  # cut at either end, or a line about something else
        return 0


def plan_runs(runs: Iterable[Sequence[str]], outputs: Path | None = None) -> tuple[list[Run], list[Run]]:
    """(to do, done already), each run once, in the order given; one that others begin from is right before the first.

    ``outputs`` replaces the configs' own ``output_dir``. UserError and Hydra's errors for what does not compose.
    """
    place = [] if outputs is None else [f"output_dir={_quoted(outputs)}"]
    composed: dict[str, tuple[Config, tuple[str, ...]]] = {}
    keep: dict[str, set[int]] = {}
    for overrides in runs:
        config = compose([*overrides, *place])
        name = run_id(config)
        keep.setdefault(name, set()).update(config.keep_steps)
        # Tables that share a run may ask for different readings of it: the one that asks for more is run.
        if name not in composed or len(config.beside) > len(composed[name][0].beside):
            composed[name] = (config, (*overrides, *place))
    for name, steps in keep.items():
        config, overrides = composed[name]
        if steps.difference(config.keep_steps):
            others = [override for override in overrides if not override.startswith("keep_steps=")]
            overrides = (*others, f"keep_steps={sorted(steps)}")
            composed[name] = (replace(config, keep_steps=sorted(steps)), overrides)
    several = len({config.model.name for config, _ in composed.values()}) > 1
    todo: list[Run] = []
    done: list[Run] = []
    for name, (config, overrides) in composed.items():
        run = _run(name, config, overrides, several)
        (done if run.is_done else todo).append(run)
    return _bases_before_arms(todo), done


def _bases_before_arms(runs: Sequence[Run]) -> list[Run]:
    """So that the first seed of a table is whole before the base of the last is trained."""
    by_id = {run.id: run for run in runs}
    bases = {run.base for run in runs}
    ordered: dict[str, Run] = {}

    def place(run: Run) -> None:
        if run.base in by_id:
            place(by_id[run.base])
        ordered[run.id] = run

    for run in runs:
        if run.id not in bases:
            place(run)
    return list(ordered.values())


def _run(name: str, config: Config, overrides: tuple[str, ...], with_model: bool) -> Run:
    words = [config.dataset.name, *([config.model.name] if with_model else []), config.loss.name]
    return Run(
        id=name,
        label=f"{' '.join(words)} seed {config.seed}",
        overrides=overrides,
        folder=Path(config.output_dir) / name,
        kind=kind_of(config),
        max_steps=config.trainer.max_steps,
        beside=plain(config.beside),
        base=config.base.rpartition("@")[0],
        keep_steps=tuple(config.keep_steps),
    )


def _quoted(path: Path) -> str:
    # Hydra's grammar gives meaning to spaces, commas and brackets outside quotes.
    text = str(path).replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return f"'{text}'"
