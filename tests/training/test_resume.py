"""Runs resume from a checkpoint of their own, start from another run's weights, and keep and score the best one."""

import json
import math
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ntl.config import Config, UserError, run_id
from ntl.decoding.predictor import predict
from ntl.launch.publish import publish_weights
from ntl.results import read_record
from ntl.runs.folder import RUN, Best, best_of, by_step, checkpoint_at, read_json, step_of, write_manifest
from ntl.training import resume
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train


def _folder(config: Config) -> Path:
    return Path(config.output_dir) / run_id(config)


def _refused(config: Config) -> str:
    with pytest.raises(UserError) as caught:
        train(config)
    assert "\n" not in str(caught.value)
    assert not list(_folder(config).glob("*.*"))
    return str(caught.value)


def test_another_config_s_checkpoint_is_refused_with_what_differs(finished: Path, small) -> None:
    checkpoint = finished / "checkpoints" / "checkpoint-6"
    message = _refused(small(f"resume={checkpoint}", "loss=ntl_mse", "seed=2", "loss.weight=0.5"))
    assert message.startswith(f"{checkpoint}: a checkpoint of another run, {finished.name}: ")
    assert "loss.name is ntl_was there and ntl_mse here" in message
    assert "loss.weight is its default there and 0.5 here" in message
    assert "seed is 1 there and 2 here; " in message
    assert message.endswith("; give one of this run by resume=, or start over with resume=never.")


@pytest.mark.slow
def test_a_longer_run_from_the_end_of_a_shorter_one(small, without_times, tmp_path: Path) -> None:
    """Bit for bit what it would have been at once; the shorter one ends between two log lines."""
    shared = ["model.dropout=0.1", "trainer.batch_size=30", "trainer.logging_steps=3", "trainer.schedule=plateau"]
    shared += ["trainer.warmup_steps=0", "trainer.patience=1", "trainer.eval_steps=4", "trainer.lr=0.3"]
    first = train(small(*shared, "trainer.max_steps=8")).parent
    resume = f"resume={first / 'checkpoints' / 'checkpoint-8'}"
    paths = [
        train(small(*shared, "trainer.max_steps=14", how)) for how in (resume, f"output_dir={tmp_path / 'straight'}")
    ]
    assert without_times(paths[0]) == without_times(paths[1])
    assert read_metrics(paths[0].with_name(METRICS)) == read_metrics(paths[1].with_name(METRICS))
    weights = [(path.parent / "checkpoints" / "checkpoint-14" / "model.safetensors").read_bytes() for path in paths]
    assert weights[0] == weights[1]


def test_another_number_of_processes_is_refused(finished: Path, small) -> None:
    (finished / "record.json").unlink()
    checkpoint = finished / "checkpoints" / "checkpoint-12"
    (checkpoint / RUN).write_text(json.dumps({**read_json(checkpoint / RUN), "processes": 2}))
    write_manifest(checkpoint)
    with pytest.raises(UserError, match=r"written by 2 processes, but this run has 1.*start 2 .*resume=never"):
        train(small())


@pytest.mark.slow
def test_a_tokenizer_that_changed_is_refused(small, run_interrupted, tmp_path: Path) -> None:
    config = small(f"data_dir={tmp_path / 'data'}")
    run_interrupted(config, 5)
    (file,) = (tmp_path / "data" / ".tokenizers").glob("*/tokenizer.json")
    before = file.read_text()
    tokenizer = json.loads(before)
    pieces = tokenizer["model"]["vocab"]
    pieces[-1], pieces[-2] = pieces[-2], pieces[-1]
    file.write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match=r"checkpoint-5: tokenizer had sha256 \w{64} and has \w{64}; restore what"):
        train(config)
    file.write_text(before)
    assert read_record(train(config)).steps == 12


SHORT = ["trainer.max_steps=9", "trainer.save_steps=4"]


@pytest.fixture
def arm(small: Callable[..., Config]) -> Callable[..., Config]:
    def make(*words: str) -> Config:
        return small("loss=ntl_was", f"base={run_id(small('loss=ce', *SHORT))}@5", *words)

    return make


@pytest.fixture
def kept(copy_of: Callable[..., Path]) -> Path:
    return copy_of("loss=ce", *SHORT, "keep_steps=[5]")


@pytest.mark.slow
def test_it_begins_from_these_weights_and_its_record_says_so(kept: Path, arm: Callable[..., Config]) -> None:
    record = train(arm("trainer.lr=1e-30", "trainer.max_steps=2"))
    begun, ended = (load_file(checkpoint_at(*at) / "model.safetensors") for at in ((kept, 5), (record.parent, 2)))
    assert begun.keys() == ended.keys()
    assert all((begun[name] == ended[name]).all() for name in begun)
    digest = sha256((checkpoint_at(kept, 5) / "model.safetensors").read_bytes()).hexdigest()
    found = read_record(record)
    assert found.model["base"] == {"run": f"{kept.name}@5", "sha256": digest}
    assert found.config["base"] == f"{kept.name}@5"
    assert "base" not in read_record(kept / "record.json").config


@pytest.mark.slow
def test_a_kept_checkpoint_outlives_the_others_and_changes_nothing(
    kept: Path, small: Callable[..., Config], tmp_path: Path, without_times: Callable[[Path], object]
) -> None:
    train(small("loss=ce", *SHORT))  # finished: what a kill has left behind is removed
    assert sorted(path.name[-2:] for path in (kept / "checkpoints").iterdir()) == ["-5", "-8", "-9"]
    other = train(small("loss=ce", *SHORT, f"output_dir={tmp_path / 'other'}"))
    assert without_times(other) == without_times(kept / "record.json")


@pytest.mark.slow
def test_published_weights_serve_where_its_run_is_not_there(
    kept: Path, arm: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_its_base = read_record(train(arm()))
    (published,) = publish_weights([kept.name], kept.parent, tmp_path / "bases")
    monkeypatch.setattr(resume, "BASES", tmp_path / "bases")
    elsewhere = read_record(train(arm(f"output_dir={tmp_path / 'elsewhere'}")))
    assert (elsewhere.metrics, elsewhere.model["base"]) == (beside_its_base.metrics, beside_its_base.model["base"])
    (published / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"no complete .*checkpoint-5; train that run first, with keep_steps=.5."):
        train(arm(f"output_dir={tmp_path / 'third'}"))


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.n_embd=32", r"other weights: model\.n_embd is 16 there and 32 here"),
        ("tokenizer.vocab_size=300", r"other weights: tokenizer\.vocab_size is .* there and 300 here"),
        ("objective=mtp", r"other weights: objective\.name is its default there and mtp here; .*which adds the heads"),
    ],
)
def test_a_base_whose_weights_do_not_fit(override: str, message: str, arm: Callable[..., Config]) -> None:
    with pytest.raises(UserError, match=message):
        train(arm(override))


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
            found = {"accuracy": values[self.state.global_step // 2 - 1]}
            monkeypatch.setattr("ntl.training.trainer.decode_validation", lambda parts: found)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(ObjectiveTrainer, "evaluation_loop", evaluation_loop)

    return use


def steps_in(folder: Path) -> list[int]:
    return sorted(map(step_of, by_step(folder / "checkpoints")))


@pytest.mark.slow
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


@pytest.mark.slow
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
