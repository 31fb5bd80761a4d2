"""Metrics logging: metrics.jsonl, and optionally a mirror of it in Weights & Biases, which may fail without harm."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from transformers import TrainerCallback

from ntl.config import Config
from ntl.config.identity import plain
from ntl.system.errors import needs
from ntl.system.files import write_atomically
from ntl.system.secrets import redact, redacted
from ntl.training.folder import is_first

METRICS = "metrics.jsonl"
# Maximum number of lines in the queue for W&B, and how long the end of a run waits until they are sent.
WAITING_LINES = 1000
SECONDS_TO_FINISH = 15.0


class MetricsFile(TrainerCallback):
    """Appends every log line to metrics.jsonl, and calls ``mirror`` with it.

    A line has step, epoch, and loss, ce, ntl or eval_loss, eval_ce, eval_ntl.
    """

    def __init__(self, path: Path, mirror: Callable[[Mapping[str, float]], None]) -> None:
        self.path = path
        self.mirror = mirror

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Rewrite the file from the checkpoint's history, which drops lines that were logged after the checkpoint."""
        if state.is_world_process_zero:
            write_atomically(self.path, "".join(_line(entry["step"], entry) for entry in state.log_history))

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
    lines = []
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
    return lines


class WandbMirror:
    """Mirrors the metrics to a W&B run, in a thread, so that training never waits for the network.

    If the client raises, one warning is printed and nothing more is sent.
    """

    def __init__(self, config: Config, run_id: str, folder: Path, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._run: Any = None
        self._stopped = self._dropped = False
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._waiting.put(lambda: self._start(config, run_id, folder))
        self._thread = Thread(target=self._work, name="wandb", daemon=True)
        self._thread.start()

    def _start(self, config: Config, run_id: str, folder: Path) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        with needs("train"):
            import wandb

        # Without a key the client would prompt for one.
        mode = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        tracking = config.tracking
        self._run = wandb.init(
            project=tracking.project,
            entity=tracking.entity or None,
            group=tracking.group or None,
            tags=tracking.tags or None,
            id=run_id,
            name=run_id,
            dir=str(folder),
            config=redacted({key: value for key, value in plain(config).items() if key != "tracking"}),
            mode=mode,  # pyright: ignore[reportArgumentType] - WANDB_MODE may be any text
            resume="allow",
            # An earlier run of this process that failed must not receive the metrics of this one.
            reinit="finish_previous",
            # Also bounds the wait at the exit of the process, where the client uploads what is left.
            settings={"finish_timeout": SECONDS_TO_FINISH},
        )

    def _work(self) -> None:
        while (action := self._waiting.get()) is not None:
            if self._stopped:
                continue
            try:
                action()
            except Exception as error:  # whatever the client raises, the run continues
                reason = redact((str(error) or type(error).__name__).splitlines()[0])
                self._stop(f"failed; nothing more is sent to it ({reason})")

    def _stop(self, why: str) -> None:
        if not self._stopped:
            self._warn(f"W&B {why}; {METRICS} has everything.")
        self._stopped = True

    def log(self, line: Mapping[str, float]) -> None:
        """Send one line of metrics.jsonl; it is dropped if ``WAITING_LINES`` lines are in the queue."""
        if self._waiting.qsize() < WAITING_LINES:
            values = {key: value for key, value in line.items() if key != "step"}
            self._waiting.put(lambda: self._run.log(values, step=int(line["step"])))
        elif not self._dropped:
            self._dropped = True
            self._warn(f"W&B is slow: some lines are not sent to it; {METRICS} has everything.")

    def finish(self, summary: Mapping[str, float | None]) -> None:
        """Send the final metrics and close; waits at most ``SECONDS_TO_FINISH``."""
        self._waiting.put(lambda: self._run.summary.update(dict(summary)))
        self._waiting.put(lambda: self._run.finish())
        self.close()
        self._thread.join(SECONDS_TO_FINISH)
        if self._thread.is_alive():
            self._stop(f"did not answer within {SECONDS_TO_FINISH:g} s; nothing more is sent to it")

    def close(self) -> None:
        """End the thread once the queue is empty, without waiting for it; also called for a run that fails."""
        self._waiting.put(None)


class NoMirror:
    """The mirror of ``tracking=none``, which does nothing."""

    def log(self, line: Mapping[str, float]) -> None: ...

    def finish(self, summary: Mapping[str, float | None]) -> None: ...

    def close(self) -> None: ...


def mirror(config: Config, run_id: str, folder: Path, warn: Callable[[str], None]) -> WandbMirror | NoMirror:
    """Return the mirror that ``config.tracking`` asks for; on all ranks but the first it does nothing."""
    if config.tracking.name == "wandb" and is_first():
        return WandbMirror(config, run_id, folder, warn)
    return NoMirror()
