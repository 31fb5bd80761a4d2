"""Runs on a GPU: their first step is that of a CPU, an interruption changes nothing, and every choice trains."""

import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from ntl.config import Config, compose
from ntl.config.folders import choices
from ntl.losses import NumberTokenLoss
from ntl.results import read_record
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train
from ntl.training.trainer import ObjectiveTrainer

pytestmark = pytest.mark.gpu
ON_GPU = "device=cuda"
ONE_STEP = ["trainer.max_steps=1", "trainer.logging_steps=1"]


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Sums have the same order each time; torch warns where it has no such way."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_an_interrupted_run_ends_as_an_uninterrupted_one(small, run_interrupted, without_times, tmp_path: Path) -> None:
    """Bit for bit, with dropout: what the GPU draws is part of a checkpoint."""
    straight, broken = (small(ON_GPU, "model.dropout=0.1", f"output_dir={tmp_path / name}") for name in "ab")
    run_interrupted(broken, 5)
    paths = [train(config) for config in (straight, broken)]
    record = read_record(paths[0])
    assert (record.device, record.steps) == (torch.cuda.get_device_name(), 12)
    assert record.peak_memory_bytes > 0
    lines, again = (read_metrics(path.with_name(METRICS)) for path in paths)
    assert again == lines
    weights = [(path.parent / "checkpoints" / "checkpoint-12" / "model.safetensors").read_bytes() for path in paths]
    assert weights[1] == weights[0]
    assert without_times(paths[1]) == without_times(paths[0])


@pytest.mark.parametrize(
    "own",
    [
        ["loss=gce_ntl_was"],
        ["loss.implementation=fused", "trainer.batch_size=4", "trainer.accumulation_steps=4"],
        ["loss.implementation=linear", "objective.mask.fraction=0.3", "objective.mask.numbers=allow"],
        ["loss=expected_error"],
        ["objective=mtp", "model.n_layer=3", "objective.heads=3"],
    ],
    ids=lambda own: own[0],
)
def test_the_first_step_is_that_of_a_cpu(own: list[str], small: Callable[..., Config], tmp_path: Path) -> None:
    found = [train(small(*own, *ONE_STEP, where, f"output_dir={tmp_path / where}")) for where in ("device=cpu", ON_GPU)]
    expected, line = (read_metrics(path.with_name(METRICS))[0] for path in found)
    assert line.keys() == expected.keys()
    for name in ("loss", "ce", "ntl", "grad_norm"):
        assert line[name] == pytest.approx(expected[name], rel=1e-4), name
    ce = [read_record(path).metrics["validation/ce"] for path in found]
    assert ce[1] == pytest.approx(ce[0], rel=1e-3)


@pytest.mark.parametrize("implementation", ["reference", "fused", "linear"])
def test_bfloat16_trains(implementation: str, small: Callable[..., Config], tmp_path: Path) -> None:
    own = [f"loss.implementation={implementation}", "trainer.logging_steps=1"]
    paths = [train(small(*own, ON_GPU, f"trainer.bf16={on}", f"output_dir={tmp_path}")) for on in ("false", "true")]
    exact, half = ([line["loss"] for line in read_metrics(path.with_name(METRICS)) if "loss" in line] for path in paths)
    assert len(half) == 12
    assert all(map(math.isfinite, half))
    assert half[0] != exact[0]
    assert half[0] == pytest.approx(exact[0], rel=1e-2)


# ---- three steps of every choice in config/ and their answers; a step waits for the host as often as allowed

RUN = ["device=cuda", "seed=1", "trainer.max_steps=3", "trainer.batch_size=4", "trainer.logging_steps=100"]
RUN += ["trainer.save_steps=0", "tracking=none"]
NUMBERS = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=4"]
# What a decoding needs; the other two come with a model that has a head for them.
DECODINGS = {"speculative": ["objective=mtp", "objective.heads=2"], "auto": ["extra_decodings=points"]}
CHOICES: dict[str, list[str]] = {
    **{f"loss={name}": [] for name in choices("loss") if name != "squared_error"},  # of the regression models
    **{f"model={name}": [] for name in choices("model") if "tiny" in name},
    **{
        f"decoding={name}": DECODINGS.get(name, [])
        for name in choices("decoding")
        if name not in ("likelihood", "masked_number", "regression")
    },
    "objective=mtp": ["objective.heads=2"],
    "objective=mtp objective.kind=sequential": ["objective.heads=2"],
    "objective.mask.fraction=0.3": [],
    "loss.implementation=fused": [],
    "loss.implementation=linear": [],
    "trainer.accumulation_steps=2": [],
}
IN_BF16 = ["loss=gce_ntl_was", "model=t5_tiny", "model=xval_tiny", "objective=mtp", "decoding=expectation"]
CHOICES |= {f"{name} trainer.bf16=true": CHOICES[name] for name in [*IN_BF16, "loss.implementation=linear"]}
# How often a step may wait for the host, all in all and in lines of ours. transformers reads whether a mask hides
# anything: once or twice a step.
ALLOWED = {
    "loss=expected_error": (6, 4),  # labels; whether the loss is finite; the tree; whether it has a number for each row
    "loss.implementation=linear": (2, 1),  # it drops the ignored rows before the product
    "model=t5_tiny_regression": (5, 0),  # transformers finds the end tokens
    "model=granite_moe_tiny": (13, 0),  # torch reads on the host, in float32, how many rows each expert has
}


@pytest.fixture
def waits(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """``waits(*overrides)``: the lines where the last step of such a run waited for the host."""

    def trained(*overrides: str) -> list[str]:
        config = compose([*RUN, f"data_dir={data_dir}", f"output_dir={tmp_path}", *overrides])
        begun, training_step = [], ObjectiveTrainer.training_step

        def noted(self, *arguments, **options):
            begun.append(len(told))
            return training_step(self, *arguments, **options)

        monkeypatch.setattr(ObjectiveTrainer, "training_step", noted)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                train(config)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        batches = config.trainer.accumulation_steps
        found = [each for each in told[begun[-2 * batches] : begun[-batches]] if "synchronizing" in str(each.message)]
        return [f"{'/'.join(Path(each.filename).parts[-3:])}:{each.lineno}: {each.message}" for each in found]

    return trained


def check(found: list[str], total: int = 2, ours: int = 0) -> None:
    assert len([line for line in found if line.startswith("ntl/")]) <= ours, found
    assert len(found) <= total, found


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice(choice: str, waits: Callable[..., list[str]]) -> None:
    check(waits(*NUMBERS, *choice.split(), *CHOICES[choice]), *ALLOWED.get(choice.split()[0], ()))


def test_plain_text(waits: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(f"Day {day}: {day % 7} ships came." for day in range(60)))
    own = ["dataset=text", f"dataset.path={tmp_path / 'text.txt'}", "trainer.max_input_length=24"]
    check(waits(*own))


def test_a_tensor_left_on_the_cpu_raises(waits: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumberTokenLoss, "to", lambda self, device: self)
    with pytest.raises(RuntimeError, match="cpu"):
        waits(*NUMBERS)
