"""What transformers is told."""

from pathlib import Path

import pytest

from ntl.config import UserError, compose
from ntl.training.arguments import training_arguments

CPU = ["device=cpu", "dataset=noisy_numbers"]


def _arguments(*overrides: str, folder: Path = Path("runs/x/checkpoints")):
    return training_arguments(compose([*CPU, *overrides]), folder)


def test_each_setting_arrives_where_it_belongs() -> None:
    values = {
        "max_steps": 7,
        "batch_size": 3,
        "eval_batch_size": 5,
        "accumulation_steps": 2,
        "lr": 0.125,
        "weight_decay": 0.0625,
        "max_grad_norm": 0.5,
        "warmup_steps": 4,
        "eval_steps": 6,
        "save_steps": 8,
        "logging_steps": 9,
        "num_workers": 1,
    }
    arguments = _arguments(
        "seed=11", "trainer.bf16=true", *(f"trainer.{name}={value}" for name, value in values.items())
    )
    names = {
        "batch_size": "per_device_train_batch_size",
        "eval_batch_size": "per_device_eval_batch_size",
        "accumulation_steps": "gradient_accumulation_steps",
        "lr": "learning_rate",
        "num_workers": "dataloader_num_workers",
    }
    assert {name: getattr(arguments, names.get(name, name)) for name in values} == values
    assert (arguments.seed, arguments.data_seed, arguments.bf16) == (11, 11, True)
    assert Path(str(arguments.output_dir)) == Path("runs/x/checkpoints")
    assert (arguments.eval_strategy, arguments.save_strategy) == ("steps", "steps")
    never = _arguments("trainer.eval_steps=0", "trainer.save_steps=0")
    assert (never.eval_strategy, never.save_strategy) == ("no", "no")


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
