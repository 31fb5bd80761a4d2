"""Metrics logging: metrics.jsonl, and optionally a mirror of it, in Weights & Biases or in TensorBoard."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ntl.config import Config, build
from ntl.config.identity import plain
from ntl.config.root import TrackingConfig
from ntl.evaluation import extract_answer, read_predictions
from ntl.system.errors import needs
from ntl.system.files import write_atomically
from ntl.system.secrets import redact, redacted
from ntl.training.folder import is_first

if TYPE_CHECKING:
    from ntl.training.parts import RunParts

METRICS = "metrics.jsonl"
# Maximum number of lines in the queue for W&B, and how long the end of a run waits until they are sent.
WAITING_LINES = 1000
SECONDS_TO_FINISH = 15.0
# The columns of a sample of predictions, and how many it has.
SAMPLE_COLUMNS, SAMPLE_ROWS = ("question", "target", "answer", "error"), 100


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


def public_name(name: str) -> str:
    """Return the name that trackers show: ce is train/ce, eval_ce is validation/ce, interpolate/mae is a test's."""
    if "/" not in name:
        return f"validation/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"
    return name if name.startswith(("validation/", "test/")) else f"test/{name}"


def _public(values: Mapping[str, Any]) -> dict[str, Any]:
    return {public_name(name): value for name, value in values.items() if name != "step"}


def _settings(config: Config, parameters: int) -> dict[str, Any]:
    """What a tracker shows of a run's config, without secrets."""
    values = {key: value for key, value in plain(config).items() if key != "tracking"}
    return redacted({**values, "parameters": parameters})


class NoMirror:
    """The mirror of ``tracking=none``, which does nothing; base class of the others."""

    def __init__(self, tracking: TrackingConfig, *, warn: Callable[[str], None]) -> None:
        self.tracking, self.warn = tracking, warn

    def start(self, config: Config, folder: Path, parameters: int, step: int = 0) -> None:
        """Begin the run of a folder, which continues from ``step``; nothing is sent or written before."""

    def log(self, line: Mapping[str, float]) -> None:
        """Show one line of metrics.jsonl."""

    def table(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Show a table. ``rows`` are read only by a mirror that shows them."""

    def finish(self, summary: Mapping[str, float | None]) -> None:
        """Show the final metrics, and close."""

    def close(self) -> None:
        """End, also for a run that fails, without waiting for anything."""


class WandbMirror(NoMirror):
    """Mirrors the metrics to a W&B run, in a thread, so that training never waits for the network.

    If the client raises, one warning is printed and nothing more is sent.
    """

    def __init__(self, tracking: TrackingConfig, *, warn: Callable[[str], None]) -> None:
        super().__init__(tracking, warn=warn)
        self._client: Any = None
        self._run: Any = None
        self._stopped = self._dropped = False
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="wandb", daemon=True)

    def start(self, config: Config, folder: Path, parameters: int, step: int = 0) -> None:
        self._waiting.put(lambda: self._start(config, folder, parameters))
        self._thread.start()

    def _start(self, config: Config, folder: Path, parameters: int) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        with needs("train"):
            import wandb

        # Without a key the client would prompt for one.
        mode = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        names = [part.name for part in (config.dataset, config.model, config.loss, config.scale)]
        self._client = wandb
        self._run = wandb.init(
            project=self.tracking.project,
            entity=self.tracking.entity or None,
            group=self.tracking.group or None,  # None is that of WANDB_RUN_GROUP, if it is set
            job_type="train",
            tags=list(dict.fromkeys([*config.tracking.tags, *names])),
            id=folder.name,
            name=folder.name,
            dir=str(folder),
            config=_settings(config, parameters),
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
            self.warn(f"W&B {why}; {METRICS} has everything.")
        self._stopped = True

    def log(self, line: Mapping[str, float]) -> None:
        """Send one line of metrics.jsonl; it is dropped if ``WAITING_LINES`` lines are in the queue."""
        if self._waiting.qsize() < WAITING_LINES:
            self._waiting.put(lambda: self._run.log(_public(line), step=int(line["step"])))
        elif not self._dropped:
            self._dropped = True
            self.warn(f"W&B is slow: some lines are not sent to it; {METRICS} has everything.")

    def table(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        data = [list(row) for row in rows]
        self._waiting.put(lambda: self._run.log({name: self._client.Table(columns=list(columns), data=data)}))

    def finish(self, summary: Mapping[str, float | None]) -> None:
        """Send the final metrics and close; waits at most ``SECONDS_TO_FINISH``."""
        self._waiting.put(lambda: self._run.summary.update(_public(summary)))
        self._waiting.put(lambda: self._run.finish())
        self.close()
        self._thread.join(SECONDS_TO_FINISH)
        if self._thread.is_alive():
            self._stop(f"did not answer within {SECONDS_TO_FINISH:g} s; nothing more is sent to it")

    def close(self) -> None:
        """End the thread once the queue is empty, without waiting for it."""
        self._waiting.put(None)


class TensorboardMirror(NoMirror):
    """Writes the metrics as TensorBoard's event file in the run's folder.

    Raises:
        UserError: The package tensorboard is not installed.
    """

    def __init__(self, tracking: TrackingConfig, *, warn: Callable[[str], None]) -> None:
        super().__init__(tracking, warn=warn)
        with needs("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._new_writer: Any = SummaryWriter
        self._writer: Any = None
        self._step = 0

    def start(self, config: Config, folder: Path, parameters: int, step: int = 0) -> None:
        # A resumed run logs the steps after its checkpoint again: what an earlier process logged of them is hidden.
        self._step = step
        self._writer = self._new_writer(str(folder), purge_step=step + 1)
        self._writer.add_text("config", f"```\n{json.dumps(_settings(config, parameters), indent=1)}\n```", step)

    def log(self, line: Mapping[str, float]) -> None:
        self._step = int(line["step"])
        self._add(line)

    def _add(self, values: Mapping[str, float | None]) -> None:
        for name, value in _public(values).items():
            if value is not None:
                self._writer.add_scalar(name, value, self._step)

    def table(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        from ntl.results.render import markdown  # here, as it imports all of what tables are computed by

        cells = [[markdown.escape("" if cell is None else " ".join(str(cell).split())) for cell in row] for row in rows]
        lines = [list(columns), ["---"] * len(columns), *cells]
        self._writer.add_text(name, "\n".join(map(markdown.line, lines)), self._step)

    def finish(self, summary: Mapping[str, float | None]) -> None:
        self._add(summary)
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def auto(tracking: TrackingConfig, *, warn: Callable[[str], None]) -> NoMirror:
    """Return W&B's mirror if the environment asks for it (``TrackingConfig.to_wandb``), else none."""
    if tracking.to_wandb:
        return WandbMirror(tracking, warn=warn)
    if tracking.name == "auto" and tracking != TrackingConfig():
        warn("W&B is off: neither WANDB_API_KEY nor WANDB_MODE turns it on; add tracking=wandb to use tracking.*=.")
    return NoMirror(tracking, warn=warn)


def mirror(tracking: TrackingConfig, warn: Callable[[str], None]) -> NoMirror:
    """Build the mirror that the config asks for; on all ranks but the first it does nothing.

    Raises:
        UserError: A package that it needs is not installed.
    """
    return build(tracking, warn=warn) if is_first() else NoMirror(tracking, warn=warn)


def sample(parts: "RunParts", path: Path) -> Iterator[tuple[str, str, str, float | None]]:
    """Yield up to ``SAMPLE_ROWS`` predictions of a file, evenly spread, as ``SAMPLE_COLUMNS``.

    The error is |answer - target|; None for a data set of texts, and for an answer that is no number. Plain text has
    no answers, and so no sample.
    """
    header, rows = read_predictions(path)
    if header["metrics"] == "likelihood":
        return
    first: dict[str, int] = {}  # a split's first row: the others follow in the order of the split
    for index, row in enumerate(rows):
        first.setdefault(row["split"], index)
    count = min(SAMPLE_ROWS, len(rows))
    for index in (place * len(rows) // count for place in range(count)):
        row = rows[index]
        question = parts.rows(row["split"])[index - first[row["split"]]]["question"]
        texts = (row["answer"], row["prediction"])
        target, answer = map(extract_answer, texts) if header["metrics"] == "number" else (None, None)
        error = None if target is None or answer is None else float(abs(answer - target))
        yield question, *texts, error
