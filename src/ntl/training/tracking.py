"""Metrics logging: metrics.jsonl, and optionally a mirror of it in Weights & Biases."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from ntl.config import Config
from ntl.config.identity import plain
from ntl.config.root import TrackingConfig
from ntl.system.errors import needs
from ntl.system.files import write_atomically
from ntl.system.secrets import redact, redacted
from ntl.training.checkpoints import is_first

METRICS = "metrics.jsonl"
# How long the beginning and the end of a run wait for W&B.
SECONDS_TO_BEGIN, SECONDS_TO_FINISH = 30.0, 15.0


class MetricsFile(TrainerCallback):
    """Appends every log line to metrics.jsonl, and passes it on to ``mirror``.

    A line has step, epoch, and loss, ce, ntl or eval_loss, eval_ce, eval_ntl.
    """

    def __init__(self, path: Path, mirror: Callable[[Mapping[str, float]], None]) -> None:
        self.path, self.mirror = path, mirror

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Rewrite the file from the checkpoint's history, which drops later lines, and replay it to the mirror.

        So W&B's folder of the last process has everything, which is the only one that stays when it is offline.
        """
        if state.is_world_process_zero:
            write_atomically(self.path, "".join(_line(entry["step"], entry) for entry in state.log_history))
            for entry in state.log_history:
                self.mirror(entry)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Append one line of JSON; the summary that the Trainer logs at its end is left out."""
        if not state.is_world_process_zero or logs is None or "train_runtime" in logs:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(state.global_step, logs))
        self.mirror({"step": state.global_step, **logs})


def _line(step: float, logs: Mapping[str, float]) -> str:
    # Sorted, as a checkpoint stores its history with sorted keys: a line stays the same after a resume.
    return json.dumps({"step": step, **dict(sorted(logs.items()))}) + "\n"


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read the lines of a metrics file; a last line that was cut off by a kill is left out."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _public(values: Mapping[str, Any]) -> dict[str, Any]:
    """Under the names that W&B shows: ce is train/ce, eval_ce is validation/ce, interpolate/mae is a test's."""

    def named(name: str) -> str:
        if "/" not in name:
            return f"validation/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"
        return name if name.startswith(("validation/", "test/")) else f"test/{name}"

    return {named(name): value for name, value in values.items() if isinstance(value, int | float)}


class Mirror:
    """Mirrors metrics.jsonl to a W&B run of the run's id, if the config asks for it; the first rank alone.

    Whatever the service raises, the run continues: one warning is printed, and nothing more is sent.
    """

    def __init__(self, tracking: TrackingConfig, warn: Callable[[str], object]) -> None:
        self.tracking, self.warn = tracking, warn
        self.works = tracking.to_wandb and is_first()
        if tracking.name == "auto" and not tracking.to_wandb and tracking != TrackingConfig():
            warn("W&B is off: neither WANDB_API_KEY nor WANDB_MODE turns it on; add tracking=wandb to use tracking.*=.")

    def start(self, config: Config, folder: Path, parameters: int) -> None:
        """Begin the run of a folder; nothing is sent or written before."""
        self._try(lambda: self._start(config, folder, parameters))

    def log(self, line: Mapping[str, float]) -> None:
        """Show one line of metrics.jsonl."""
        values = _public({name: value for name, value in line.items() if name != "step"})
        self._try(lambda: self._run.log(values, step=int(line["step"])))

    def finish(self, summary: Mapping[str, float | None]) -> None:
        """Show the final metrics, and close."""
        self._try(lambda: self._run.summary.update(_public(summary)))
        self._try(lambda: self._run.finish())

    def _try(self, action: Callable[[], object]) -> None:
        if self.works:
            try:
                action()
            except Exception as error:
                self.works = False
                reason = redact((str(error) or type(error).__name__).splitlines()[0])
                self.warn(f"W&B failed; nothing more is sent to it ({reason}); {METRICS} has everything.")

    def _start(self, config: Config, folder: Path, parameters: int) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        with needs("train"):
            import wandb

        # Without a key the client would prompt for one.
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        if mode == "offline":  # what an interrupted process has left is replayed, so that one folder has everything
            for left in folder.glob(f"wandb/offline-run-*-{folder.name}"):
                shutil.rmtree(left, ignore_errors=True)
        names = [part.name for part in (config.dataset, config.model, config.loss, config.scale)]
        values = {key: value for key, value in plain(config).items() if key != "tracking"}
        self._run: Any = wandb.init(
            project=self.tracking.project,
            entity=self.tracking.entity or None,
            group=self.tracking.group or None,  # None is that of WANDB_RUN_GROUP, if it is set
            job_type="train",
            tags=list(dict.fromkeys([*config.tracking.tags, *names])),
            id=folder.name,
            name=folder.name,
            dir=str(folder),
            config=redacted({**values, "parameters": parameters}),
            mode=mode,
            resume="allow",
            # An earlier run of this process that failed must not receive the metrics of this one.
            reinit="finish_previous",
            # Also bounds the wait at the exit of the process, where the client uploads what is left.
            settings={"finish_timeout": SECONDS_TO_FINISH, "init_timeout": SECONDS_TO_BEGIN},
        )
