"""The expected time, device and disk space of runs, from records of similar runs if there are any, else from FLOPs."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from ntl.config import Config, build
from ntl.config.identity import by_content, plain
from ntl.config.legality import PLAIN
from ntl.config.trainer import in_steps
from ntl.data.prepared import Prepared
from ntl.results import RunRecord

# The dense FLOP/s of an H100 SXM (NVIDIA's data sheet), with trainer.bf16 and without, where PyTorch uses full float32
# by default; and the assumed share of it that a training step reaches.
BF16_FLOPS, FLOAT32_FLOPS, UTILISATION = 990e12, 67e12, 0.4
# The assumed least time of a step on a GPU: that of small models is bound by kernel launches.
STEP_SECONDS = 0.03
CPU, GPU = "CPU", "H100"
# The size of a run's folder without its checkpoints: predictions, tokenizer, logs, record.
NON_CHECKPOINT_BYTES = 5_000_000
# A checkpoint has float32 weights and AdamW's two moments.
BYTES_PER_PARAMETER = 4 * (1 + 2)
# The steps at this scale are those of the authors' presets; the authors stopped their runs by hand before that.
PRESET_SCALE = "paper"
# The time of a run at scale=tiny is that of the fixed costs of its steps, whatever the model; the time of a larger run
# is that of its arithmetic.
FIXED_COST_SCALE = "tiny"
# Runs at this scale use one CPU core. The FLOP/s are assumed if no such run has been measured.
CORE_SCALE, CORE_FLOPS = "hour", 5e10

ASSUMPTIONS = (
    f"Estimated: 6 x parameters x tokens on one {GPU} at {UTILISATION:.0%} of {BF16_FLOPS / 1e12:.0f} TFLOP/s (bf16) "
    f"or {FLOAT32_FLOPS / 1e12:.0f} (float32), at least {STEP_SECONDS * 1000:.0f} ms a step, decoding not counted; at "
    "scale=tiny the mean of other models on the same data set, or of all runs; at scale=hour a step of measured runs "
    f"or {CORE_FLOPS / 1e9:.0f} GFLOP/s on one core. Tokens are those of records on the data set, or on others."
)

RunKind = tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """The cost of one run: ``disk`` bytes remain after it, and it takes ``disk_more`` while it trains."""

    seconds: float  # wall time times the number of devices; NaN if its steps are not known
    device: str  # that these seconds are for
    measured: bool  # whether they come from records of the same kind of run
    disk: int
    disk_more: int
    epochs: float = math.nan  # how often it sees its training rows; NaN if their number is not known


@dataclass(frozen=True)
class Sum:
    """The cost of several runs: seconds by device, how many were measured, bytes, and the known numbers of epochs."""

    runs: int
    seconds: Mapping[str, float]
    measured: int
    disk: int
    epochs: tuple[float, ...] = ()

    @property
    def basis(self) -> str:
        if self.measured in (0, self.runs):
            return "measured" if self.measured else "estimated" if self.runs else ""
        return f"estimated, {self.measured} of {self.runs} measured"


class Costs:
    """Estimates the cost of runs from records of other runs."""

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self._seconds: dict[RunKind, dict[str, list[float]]] = {}
        self._tokens: dict[str, list[float]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._train_rows: dict[str, int] = {}
        for record in records:
            names = [str(record.config.get(group, {}).get("name", "")) for group in ("dataset", "model", "scale")]
            trainer = record.config.get("trainer", {})
            length = _length(trainer.get("epochs", 0), trainer.get("max_steps", ""))
            kind = (*names, length, *_heads(record.config.get("objective", {})))
            by_device = self._seconds.setdefault(kind, {})
            by_device.setdefault(_device(record), []).append(record.wall_time_s * record.num_devices)
            rows = record.data.get("rows", {}).get("train")
            if rows and record.config["dataset"].get("answers") != PLAIN:  # whose examples are blocks of tokens
                self._train_rows[_settings(record.config["dataset"])] = rows
            if record.examples_seen:
                self._tokens.setdefault(kind[0], []).append(record.tokens_seen / record.examples_seen)

    @property
    def measured(self) -> dict[RunKind, float]:
        """The median seconds of each kind of run that has records, on the device that most of them used."""
        return {kind: self._measured(kind)[1] for kind in self._seconds}

    def of(self, config: Config) -> Cost:
        """Return the cost of one run: the median of its kind, or an estimate if there are no records of it."""
        kind = kind_of(config)
        if kind in self._seconds:
            device, seconds = self._measured(kind)
        elif config.scale.name == CORE_SCALE:
            device, seconds = CPU, self._on_a_core(config)
        elif config.scale.name == FIXED_COST_SCALE and (similar := self._similar(kind)):
            device, seconds = self._measured(similar[0])[0], mean(self._measured(each)[1] for each in similar)
        else:
            device, seconds = GPU, self._by_flops(config)
        return Cost(seconds, device, kind in self._seconds, *self._disk(config), self._epochs(config))

    def total(self, configs: Iterable[Config]) -> Sum:
        """Return the total cost of runs."""
        costs = [self.of(config) for config in configs]
        seconds: dict[str, float] = {}
        for cost in costs:
            seconds[cost.device] = seconds.get(cost.device, 0.0) + cost.seconds
        measured = sum(cost.measured for cost in costs)
        epochs = tuple(sorted({cost.epochs for cost in costs if cost.epochs == cost.epochs}))
        return Sum(len(costs), dict(sorted(seconds.items())), measured, sum(cost.disk for cost in costs), epochs)

    def _epochs(self, config: Config) -> float:
        trainer, rows = config.trainer, self._train_rows.get(_settings(plain(config.dataset)))
        if trainer.epochs:
            return trainer.epochs
        return trainer.max_steps * trainer.batch_size * trainer.accumulation_steps / rows if rows else math.nan

    def _steps(self, config: Config) -> float:
        rows = self._train_rows.get(_settings(plain(config.dataset)))
        steps = in_steps(config.trainer, rows).max_steps if rows else planned_steps(config)
        return steps if steps or not config.trainer.epochs else math.nan

    def _measured(self, kind: RunKind) -> tuple[str, float]:
        device, seconds = max(self._seconds[kind].items(), key=lambda item: (len(item[1]), item[0]))
        return device, median(seconds)

    def parameters(self, config: Config) -> int:
        """Return the number of parameters of the weights that the run starts from, or else of its model.

        The model is built on shapes without storage. This imports torch the first time.
        """
        return self._size(config)[0]

    def _size(self, config: Config) -> tuple[int, int]:
        # The parameters, and those that a token is multiplied with: one unembedding is that of several heads.
        key = json.dumps([plain(config.model), plain(config.objective), config.tokenizer.vocab_size])
        if key not in self._sizes:
            from ntl.costs.estimate import shape

            model = config.model
            stored = stored_parameters(Path(model.path)) if model.path and model.pretrained else 0
            built = shape(replace(config, model=replace(model, path="")))
            self._sizes[key] = (stored or built.parameters, stored or built.multiplied)
        return self._sizes[key]

    def disk_needed(self, configs: Iterable[Config], at_once: int) -> int:
        """Return the most bytes that these runs take if ``at_once`` of them train at the same time."""
        costs = [self._disk(config) for config in configs]
        more = sorted((more for _, more in costs), reverse=True)
        return sum(remaining for remaining, _ in costs) + sum(more[:at_once])

    def _disk(self, config: Config) -> tuple[int, int]:
        checkpoint, trainer = BYTES_PER_PARAMETER * self.parameters(config), config.trainer
        if not (trainer.max_steps or trainer.epochs):  # the weights alone
            return checkpoint // 3 + NON_CHECKPOINT_BYTES, 0
        # The newest checkpoint is written before the oldest is deleted; the best one may be older than these.
        best = 1 if trainer.best else 0
        most = best + (trainer.keep_checkpoints + 1 if trainer.save_steps or best else 1)
        remaining = best + min(trainer.keep_checkpoints_after, trainer.keep_checkpoints)
        return checkpoint * remaining + NON_CHECKPOINT_BYTES, checkpoint * (most - remaining)

    def _similar(self, kind: RunKind) -> list[RunKind]:
        # The measured kinds of the same scale on the same data set, or else on any data set.
        same_scale = [each for each in self._seconds if each[2] == kind[2]]
        return [each for each in same_scale if each[0] == kind[0]] or same_scale

    def _on_a_core(self, config: Config) -> float:
        # Runs that differ only in their number of steps give the time of a step.
        kind = kind_of(config)
        same = [each for each in self._seconds if (each[:3], each[4:]) == (kind[:3], kind[4:])]
        alike = [each for each in same if each[3].isdecimal() and int(each[3])]
        of_a_step = [seconds / int(each[3]) for each in alike for seconds in self._seconds[each].get(CPU, [])]
        return self._steps(config) * (median(of_a_step) if of_a_step else self._flops(config) / CORE_FLOPS)

    def _by_flops(self, config: Config) -> float:
        trainer = config.trainer
        rate = UTILISATION * (BF16_FLOPS if trainer.bf16 else FLOAT32_FLOPS)
        return self._steps(config) * max(self._flops(config) / rate, STEP_SECONDS)

    def _flops(self, config: Config) -> float:
        # Of a step, without decoding. Kaplan et al., 2020: 6 per parameter and token, forward and backward together.
        trainer = config.trainer
        tokens: float = trainer.max_input_length
        if typical := {name: median(found) for name, found in self._tokens.items()}:
            tokens = min(typical.get(config.dataset.name, median(typical.values())), tokens)
        return 6 * self._size(config)[1] * trainer.batch_size * trainer.accumulation_steps * tokens


def _settings(dataset: Mapping[str, object]) -> str:
    """Return the settings of a data set that determine its training rows, of a config or as a record has them."""
    values = by_content(dict(dataset))
    return json.dumps({key: value for key, value in values.items() if not key.startswith("test_")}, sort_keys=True)


def stored_parameters(folder: Path) -> int:
    """Count the parameters in the safetensors files of a folder from their headers; 0 if none can be read."""
    shapes = []
    try:
        for path in folder.glob("*.safetensors"):
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            shapes += [tensor["shape"] for name, tensor in header.items() if name != "__metadata__"]
    except (OSError, ValueError, TypeError, KeyError, MemoryError, OverflowError):
        return 0  # the run itself reports what is wrong with the files
    return sum(map(math.prod, shapes))


def _device(record: RunRecord) -> str:
    return CPU if record.device.lower().startswith("cpu") else record.device


def kind_of(config: Config) -> tuple[str, ...]:
    """Return the kind of a run; runs of one kind are expected to cost the same."""
    length = _length(config.trainer.epochs, config.trainer.max_steps)
    return (config.dataset.name, config.model.name, config.scale.name, length, *_heads(vars(config.objective)))


def _heads(objective: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"{heads} heads",) if (heads := objective.get("heads", 1)) > 1 else ()


def _length(epochs: float, max_steps: object) -> str:
    return f"{epochs:g} epochs" if epochs else str(max_steps)


def planned_steps(config: Config) -> int:
    """Return the optimizer steps of a run; 0 if they are epochs of plain text, or of data that is not prepared yet."""
    if not config.trainer.epochs:
        return config.trainer.max_steps
    if config.dataset.answers == PLAIN:
        return 0
    prepared = Prepared(build(config.dataset), config.data_dir)
    return in_steps(config.trainer, prepared.fingerprint()["rows"]["train"]).max_steps if prepared.find() else 0
