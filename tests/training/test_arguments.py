"""What transformers is told."""

from pathlib import Path

import pytest

from ntl.config import UserError, compose
from ntl.training.arguments import training_arguments

CPU = ["device=cpu", "dataset=noisy_numbers"]


def _arguments(*overrides: str, folder: Path = Path("runs/x/checkpoints")):
    return training_arguments(compose([*CPU, *overrides]), folder)


@pytest.mark.parametrize(
    ("schedule", "name", "options"),
    [
        ("plateau", "reduce_lr_on_plateau", {"factor": 0.25, "patience": 3}),
        ("linear", "linear", {}),
        ("cosine", "cosine", {}),
        ("constant", "constant_with_warmup", {}),
    ],
)
def test_schedules(schedule: str, name: str, options: dict[str, float]) -> None:
    plateau = ["trainer.factor=0.25", "trainer.patience=3", "trainer.eval_steps=10"]
    arguments = _arguments(f"trainer.schedule={schedule}", *plateau)
    assert arguments.lr_scheduler_type == name
    assert arguments.lr_scheduler_kwargs == options
    # The plateau watches this, and lower is better.
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == ("eval_ce", False)


def test_probes_need_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="probe_steps: works on one device"):
        _arguments("probe_steps=5")
