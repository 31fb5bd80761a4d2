"""Runs on a GPU: their first step is that of a CPU, and an interruption changes nothing."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from ntl.config import Config
from ntl.results import RunRecord, read_record
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train

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
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    small: Callable[..., Config],
    run_interrupted: Callable[..., None],
    without_times: Callable[[Path], RunRecord],
    tmp_path: Path,
) -> None:
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
