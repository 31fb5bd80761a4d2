"""The best checkpoint is kept and scored, a training that no longer improves ends, and a resume changes nothing."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import Config, UserError, run_id
from ntl.results import read_record
from ntl.training.checkpoints import Best, best_of, by_step, step_of
from ntl.training.predictor import predict
from ntl.training.tracking import METRICS, read_metrics
from ntl.training.train import train

EVERY_TWO = ["trainer.eval_steps=2", "trainer.eval_rows=10"]


def history(*values: float | None, metric: str = "accuracy") -> list[dict[str, float]]:
    lines: list[dict[str, float]] = [{"step": 1, "loss": 1.0}]
    for index, value in enumerate(values):
        lines.append({"step": 2 * index + 2, "eval_loss": 9.0} | ({} if value is None else {f"eval_{metric}": value}))
    return lines


def test_the_best_evaluation_by_hand() -> None:
    assert best_of(history(0.1, 0.3, 0.3, 0.2), "accuracy") == Best(4, 0.3, 2)  # of equal ones the earlier
    assert best_of(history(5.0, 3.0, 3.0, 4.0, metric="mae"), "mae") == Best(4, 3.0, 2)
    assert best_of(history(0.1, None, math.nan), "accuracy") == Best(2, 0.1, 2)
    # While nothing is defined, as before the first answer is a number, nothing fails to improve.
    assert best_of(history(None, None, 0.0), "accuracy") == Best(6, 0.0, 0)
    nothing = best_of(history(None), "accuracy")
    assert (nothing.step, nothing.since) == (None, 0)
    assert best_of(history(0.5, 0.9), "loss") == Best(2, 9.0, 1)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``scripted(0.1, 0.5, ...)``: these accuracies are what the evaluations of step 2, 4, ... decode."""

    def use(*values: float) -> None:
        from ntl.training.trainer import ObjectiveTrainer

        original = ObjectiveTrainer.evaluation_loop

        def evaluation_loop(self, *args, **kwargs):
            self.decoded = lambda: {"accuracy": values[self.state.global_step // 2 - 1]}
            return original(self, *args, **kwargs)

        monkeypatch.setattr(ObjectiveTrainer, "evaluation_loop", evaluation_loop)

    return use


def steps_in(folder: Path) -> list[int]:
    return sorted(map(step_of, by_step(folder / "checkpoints")))


def test_the_best_checkpoint_is_kept_and_scored(small, scripted, capsys, without_times) -> None:
    scripted(0.1, 0.5, 0.5, 0.4, 0.2, 0.3)
    few = ["trainer.keep_checkpoints=1", "trainer.keep_checkpoints_after=1", "trainer.save_steps=2"]
    path = train(small(*EVERY_TWO, "trainer.best=accuracy", *few))
    folder, record = path.parent, read_record(path)
    assert record.model["best"] == {"metric": "accuracy", "step": 4, "value": 0.5}
    assert record.metrics["validation/accuracy"] == 0.5
    assert (record.steps, steps_in(folder)) == (12, [4, 12])
    assert "Best validation accuracy: 0.5, at step 4, which is scored." in capsys.readouterr().out
    # Its answers are those of the run that ends there, at the same rate, and predict.py reads the same weights.
    answers = (folder / "predictions.jsonl").read_bytes()
    assert predict(folder, say=lambda line: None) == folder / "predictions.jsonl"
    assert (folder / "predictions.jsonl").read_bytes() == answers
    shutil.rmtree(folder / "checkpoints" / "checkpoint-4")
    with pytest.raises(UserError, match="checkpoint-4: this is the checkpoint that the record scores"):
        predict(folder, say=lambda line: None)


STOPPING = [*EVERY_TWO, "trainer.best=accuracy", "trainer.early_stopping=2", "model.dropout=0.1"]
STOPPING += ["trainer.keep_checkpoints_after=1"]
SCRIPT = (0.1, 0.5, 0.4, 0.5, 0.9, 0.9)


@pytest.fixture
def stopped(scripted, without_times) -> Callable[[Config], tuple]:
    """Record less its times, metrics.jsonl, checkpoints and answers of a run that stops at step 8."""

    def make(config: Config) -> tuple:
        scripted(*SCRIPT)
        path = train(config)
        folder = path.parent
        answers = (folder / "predictions.jsonl").read_bytes()
        return without_times(path), read_metrics(folder / METRICS), steps_in(folder), answers

    return make


@pytest.mark.slow
def test_early_stopping_survives_interruptions(small, stopped, run_interrupted, tmp_path, capsys) -> None:
    straight = stopped(small(*STOPPING, f"output_dir={tmp_path / 'straight'}"))
    assert (straight[0].steps, straight[2]) == (8, [4, 8])
    assert straight[0].model["best"]["step"] == 4
    assert "Stopped at step 8: no better accuracy in 2 evaluations." in capsys.readouterr().out
    for step in (3, 7):
        config = small(*STOPPING, f"output_dir={tmp_path / str(step)}")
        run_interrupted(config, step)
        assert stopped(config) == straight
    # Killed after it stopped: it does not go on from there.
    folder = tmp_path / "straight" / straight[0].id
    (folder / "record.json").unlink()
    assert stopped(small(*STOPPING, f"output_dir={tmp_path / 'straight'}")) == straight


def test_a_resume_without_the_best_checkpoint_is_refused(small, scripted, run_interrupted) -> None:
    scripted(*SCRIPT)
    config = small(*STOPPING)
    run_interrupted(config, 7)
    folder = Path(config.output_dir) / run_id(config) / "checkpoints"
    shutil.rmtree(folder / "checkpoint-4")
    with pytest.raises(UserError, match=r"checkpoint-4: the best checkpoint so far, and it is not there whole"):
        train(config)


def test_decoding_while_training_changes_nothing_else(small, without_times, tmp_path: Path) -> None:
    settings = [*EVERY_TWO, "model.dropout=0.1", "trainer.lr=0.02"]
    plain = train(small(*settings, f"output_dir={tmp_path / 'plain'}"))
    decoded = train(small(*settings, "trainer.eval_decoded=true", f"output_dir={tmp_path / 'decoded'}"))
    lines = read_metrics(decoded.parent / METRICS)
    assert sum("eval_accuracy" in line for line in lines) == 6
    without = [
        {name: value for name, value in line.items() if name not in ("eval_accuracy", "eval_mae")} for line in lines
    ]
    assert without == read_metrics(plain.parent / METRICS)
    one, other = (json.loads(path.read_text())["metrics"] for path in (plain, decoded))
    assert {**other, **one} == other
