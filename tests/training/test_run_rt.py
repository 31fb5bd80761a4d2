"""The Regression Transformer from config to record: killed, continued, and read back for another decoding."""

from pathlib import Path

import pytest

from ntl.config import compose, run_id
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.training import run
from ntl.training.decode import decode_splits, restore
from ntl.training.trainer import ObjectiveTrainer

MODEL = ["model=rt_tiny", "model.d_model=16", "model.d_kv=8", "model.d_ff=32", "model.num_layers=1", "loss=ntl_was"]
STEPS = ["trainer.max_steps=6", "trainer.save_steps=3", "dataset.test_rows_per_cell=1", "decoding=greedy"]


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = [line for line in settings(dataset="multiplication") if not line.startswith("model.")]
    straight = read_record(run(compose([*shared, *MODEL, *STEPS])))
    assert {"interpolate/malformed", "extrapolate/malformed"} <= set(straight.metrics)

    config = compose([*shared, *MODEL, *STEPS, f"output_dir={tmp_path / 'killed'}"])
    original = ObjectiveTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == 4:
            raise RuntimeError("killed")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ObjectiveTrainer, "training_step", killed)
    with pytest.raises(RuntimeError, match="killed"):
        run(config)
    monkeypatch.setattr(ObjectiveTrainer, "training_step", original)
    continued = read_record(run(config))
    assert continued.metrics == straight.metrics
    assert continued.predictions_sha256 == straight.predictions_sha256

    folder = Path(config.output_dir) / run_id(config)
    rows = read_predictions(folder / "predictions.jsonl")[1]
    assert all(row["malformed"] >= 0 for row in rows)
    session, checkpoint = restore(folder)
    assert checkpoint.name == "checkpoint-6"
    decode_splits(session, session.dataset.test_splits, tmp_path / "again.jsonl")
    assert read_predictions(tmp_path / "again.jsonl")[1] == rows
