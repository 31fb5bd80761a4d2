"""On a GPU: three steps of every choice in config/ and their answers; a step waits for the host as often as allowed."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ntl.config import compose
from ntl.config.folders import choices
from ntl.losses import NumberTokenLoss
from ntl.training.train import train
from ntl.training.trainer import ObjectiveTrainer

pytestmark = pytest.mark.gpu
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
