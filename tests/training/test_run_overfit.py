"""A model of every family learns 32 examples by heart: loss to near zero, and each answer decoded as it is.

The tests of the Regression Transformer and of xVal are in tests/models/test_rt_overfit.py and test_session_xval.py.
"""

from pathlib import Path

import pytest
import torch

from ntl.config import compose
from ntl.evaluation import extract_answer, read_predictions
from ntl.training.decode import decode_splits
from ntl.training.parts import RunParts

DATA = ["dataset=noisy_numbers", "dataset.train_rows=32", "dataset.validation_rows=8", "dataset.test_rows=8"]
STEPS = [
    "trainer.batch_size=32",
    "trainer.schedule=linear",
    "trainer.warmup_steps=20",
    "trainer.weight_decay=0",
    "trainer.logging_steps=20",
    "trainer.save_steps=0",
    "trainer.eval_rows=8",
    "tracking=none",
    "device=cpu",
]
# Model -> steps, rate, and how near to zero the last losses are: of the values of a number head, squared, 0..99.
RUNS = {
    "gpt2_tiny": (400, 5e-3, 0.02),
    "t5_tiny": (1000, 5e-3, 0.02),
    "granite_tiny": (800, 5e-3, 0.02),
    "granite_moe_tiny": (800, 5e-3, 0.02),
    "t5_tiny_regression": (1000, 5e-3, 0.05),
    "gpt2_tiny_regression": (1500, 5e-3, 0.05),
}
NUMBER_HEADS = ("t5_tiny_regression", "gpt2_tiny_regression")


@pytest.mark.slow
@pytest.mark.parametrize("model", RUNS)
def test_32_examples(model: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    steps, rate, near_zero = RUNS[model]
    decoding = ["decoding.decimals=0"] if model in NUMBER_HEADS else []
    places = [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}"]
    settings = [*DATA, *STEPS, *places, f"model={model}", *decoding]
    config = compose([*settings, f"trainer.max_steps={steps}", f"trainer.lr={rate}"])
    parts = RunParts(config, say=lambda line: None)
    trainer = parts.trainer(Path(parts.config.output_dir) / "run" / "checkpoints")
    trainer.train()
    losses = [entry for entry in trainer.state.log_history if "loss" in entry]
    # A mixture of experts has a router loss as well, which is never zero.
    assert losses[-1].get("ce", 0.0) + config.loss.weight * losses[-1]["ntl"] < near_zero

    path = tmp_path / "predictions.jsonl"
    decode_splits(parts, ["train"], path)
    _, rows = read_predictions(path)
    assert len(rows) == 32
    wrong = [row for row in rows if extract_answer(row["prediction"]) != extract_answer(row["answer"])]
    assert wrong == []
