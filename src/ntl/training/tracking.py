"""metrics.jsonl, always; Weights & Biases as a mirror of it that may fail without harm."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ntl.config import Config
from ntl.config.identity import plain
from ntl.system.errors import needs
from ntl.system.files import write_atomically
from ntl.system.secrets import redact, redacted

METRICS = "metrics.jsonl"
# Lines that W&B has not taken yet, and how long the end of a run waits for it to take them.
WAITING_LINES = 1000
SECONDS_TO_FINISH = 15.0


class MetricsFile(TrainerCallback):
    """Appends every log line to metrics.jsonl: step, epoch, and loss, ce, ntl or eval_loss, eval_ce, eval_ntl."""

    def __init__(self, path: Path, mirror: Callable[[Mapping[str, float]], None]) -> None:
        self.path = path
        self.mirror = mirror

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin with what the checkpoint that the run continues from knows, and forget what was logged after it."""
        if state.is_world_process_zero:
            write_atomically(self.path, "".join(_line(entry["step"], entry) for entry in state.log_history))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """One line of JSON; the summary that the Trainer logs at its end has no place here."""
        if not state.is_world_process_zero or logs is None or "train_runtime" in logs:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(state.global_step, logs))
        self.mirror({"step": state.global_step, **logs})


def _line(step: float, logs: Mapping[str, float]) -> str:
    # A checkpoint keeps its log lines with their keys sorted.
    return json.dumps({"step": step, **dict(sorted(logs.items()))}) + "\n"


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The whole lines of a metrics file; a line cut by a kill is left out."""
    lines = []
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
    return lines


class WandbMirror:
    """A W&B run that goes on without W&B: whatever it raises is told once, and nothing is sent after.

    Only a thread of its own calls the client, so that training waits for no network.
    """

    def __init__(self, config: Config, run_id: str, folder: Path, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._run: Any = None
        self._left = self._dropped = False
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._waiting.put(lambda: self._start(config, run_id, folder))
        self._thread = Thread(target=self._work, name="wandb", daemon=True)
        self._thread.start()

    def _start(self, config: Config, run_id: str, folder: Path) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        with needs("train"):
            import wandb

        # Without a key wandb would ask for one, and wait.
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
            mode=mode,  # pyright: ignore[reportArgumentType] - a value of the user's environment
            resume="allow",
            # A run that failed before in this process must not receive what this one logs.
            reinit="finish_previous",
            # At the exit of the process, too: the client waits there for what was not uploaded.
            settings={"finish_timeout": SECONDS_TO_FINISH},
        )

    def _work(self) -> None:
        while (action := self._waiting.get()) is not None:
            if self._left:
                continue
            try:
                action()
            except Exception as error:  # whatever the service or its client does, the run goes on
                reason = redact((str(error) or type(error).__name__).splitlines()[0])
                self._leave(f"failed and is left out from here on ({reason})")

    def _leave(self, why: str) -> None:
        if not self._left:
            self._warn(f"W&B {why}; {METRICS} has everything.")
        self._left = True

    def log(self, line: Mapping[str, float]) -> None:
        """Mirror one line of metrics.jsonl; dropped where ``WAITING_LINES`` are on their way."""
        if self._waiting.qsize() < WAITING_LINES:
            values = {key: value for key, value in line.items() if key != "step"}
            self._waiting.put(lambda: self._run.log(values, step=int(line["step"])))
        elif not self._dropped:
            self._dropped = True
            self._warn(f"W&B is slow: lines are left out of it; {METRICS} has everything.")

    def finish(self, summary: Mapping[str, float | None]) -> None:
        """Mirror the final metrics and close; waits at most ``SECONDS_TO_FINISH``."""
        self._waiting.put(lambda: self._run.summary.update(dict(summary)))
        self._waiting.put(lambda: self._run.finish())
        self.close()
        self._thread.join(SECONDS_TO_FINISH)
        if self._thread.is_alive():
            self._leave(f"did not answer within {SECONDS_TO_FINISH:g} s and is left")

    def close(self) -> None:
        """Nothing follows, of a run that ends well or otherwise; does not wait."""
        self._waiting.put(None)


class NoMirror:
    """tracking=none."""

    def log(self, line: Mapping[str, float]) -> None:
        """Nothing."""

    def finish(self, summary: Mapping[str, float | None]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def mirror(config: Config, run_id: str, folder: Path, warn: Callable[[str], None]) -> WandbMirror | NoMirror:
    """The mirror that ``tracking`` asks for, on the first rank only."""
    if config.tracking.name == "wandb" and int(os.environ.get("RANK", "0")) == 0:
        return WandbMirror(config, run_id, folder, warn)
    return NoMirror()
