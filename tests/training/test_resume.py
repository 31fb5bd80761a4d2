"""Runs that are interrupted, killed, longer or begun elsewhere end as one run at once; the best checkpoint."""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ntl.config import Config, UserError, compose, run_id
from ntl.config.folders import CONFIG_DIR
from ntl.decoding.predictor import predict
from ntl.launch.publish import publish_weights
from ntl.results import RunRecord, read_record
from ntl.runs.folder import RUN, Best, best_of, by_step, checkpoint_at, latest_complete, step_of
from ntl.training import resume
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train


def test_another_config_s_checkpoint_is_refused_with_what_differs(
    finished: Path, small, caplog, tmp_path, monkeypatch
) -> None:
    checkpoint = finished / "checkpoints" / "checkpoint-6"
    with pytest.raises(UserError, match=f"^{checkpoint}: a checkpoint of another run, {finished.name}: ") as caught:
        train(small(f"resume={checkpoint}", "loss=ntl_mse", "seed=2", "loss.weight=0.5"))
    message = str(caught.value)
    assert "loss.name is ntl_was there and ntl_mse here" in message
    assert "loss.weight is its default there and 0.5 here" in message
    assert "seed is 1 there and 2 here; " in message
    assert [entry.name for entry in finished.parent.iterdir()] == [finished.name]
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "mine.py").write_text("edited")
    monkeypatch.setattr(resume, "SOURCE", tmp_path)
    before = json.loads((checkpoint / RUN).read_text())
    now = resume.describe(before["id"], before["config"])
    with caplog.at_level("WARNING", logger="ntl"):
        assert resume.checkpoint_for(str(checkpoint), finished, now, small().trainer) == checkpoint
    assert f"The code of ntl is not what trained {checkpoint}; resume=never starts over" in caplog.text
    with pytest.raises(UserError, match=r"it already has 12 steps; set trainer\.max_steps"):
        train(small(f"resume={checkpoint.with_name('checkpoint-12')}", "trainer.max_steps=11"))


@pytest.mark.slow
def test_a_longer_run_from_the_end_of_a_shorter_one(small, without_times, tmp_path: Path) -> None:
    """Bit for bit what it would have been at once, with any number of data workers."""
    # The shorter one ends between two log lines.
    shared = ["model.dropout=0.1", "trainer.batch_size=30", "trainer.logging_steps=3", "trainer.schedule=plateau"]
    shared += ["trainer.warmup_steps=0", "trainer.patience=1", "trainer.eval_steps=4", "trainer.lr=0.3"]
    first = train(small(*shared, "trainer.max_steps=8")).parent
    longer, at_once = (
        train(small(*shared, "trainer.max_steps=14", *how))
        for how in (
            [f"resume={first / 'checkpoints' / 'checkpoint-8'}"],
            ["trainer.num_workers=2", f"output_dir={tmp_path / 'at_once'}"],
        )
    )
    expected, found = without_times(at_once), without_times(longer)
    assert expected.config["trainer"]["num_workers"] == 2
    assert replace(found, id=expected.id, config=expected.config) == expected
    assert read_metrics(longer.with_name(METRICS)) == read_metrics(at_once.with_name(METRICS))
    weights = [path.parent / "checkpoints" / "checkpoint-14" / "model.safetensors" for path in (longer, at_once)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


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
def test_a_run_begins_from_the_weights_of_its_base_or_from_published_ones(kept, arm, tmp_path, monkeypatch) -> None:
    still = ["trainer.lr=1e-30", "trainer.max_steps=2"]
    record = train(arm(*still))
    begun, ended = (load_file(checkpoint_at(*at) / "model.safetensors") for at in ((kept, 5), (record.parent, 2)))
    assert begun.keys() == ended.keys()
    assert all((begun[name] == ended[name]).all() for name in begun)
    digest = sha256((checkpoint_at(kept, 5) / "model.safetensors").read_bytes()).hexdigest()
    found = read_record(record)
    assert found.model["base"] == {"run": f"{kept.name}@5", "sha256": digest}
    assert found.config["base"] == f"{kept.name}@5"
    assert "base" not in read_record(kept / "record.json").config
    (published,) = publish_weights([kept.name], kept.parent, tmp_path / "bases")
    monkeypatch.setattr(resume, "BASES", tmp_path / "bases")
    elsewhere = read_record(train(arm(*still, f"output_dir={tmp_path / 'elsewhere'}")))
    assert (elsewhere.metrics, elsewhere.model["base"]) == (found.metrics, found.model["base"])
    (published / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"no complete .*checkpoint-5; train that run first, with keep_steps=.5."):
        train(arm(f"output_dir={tmp_path / 'third'}"))


@pytest.mark.slow
def test_a_kept_checkpoint_outlives_the_others_and_changes_nothing(kept, small, tmp_path: Path, without_times) -> None:
    train(small("loss=ce", *SHORT))  # finished: what a kill has left behind is removed
    assert sorted(path.name[-2:] for path in (kept / "checkpoints").iterdir()) == ["-5", "-8", "-9"]
    other = train(small("loss=ce", *SHORT, f"output_dir={tmp_path / 'other'}"))
    assert without_times(other) == without_times(kept / "record.json")


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


STOPPING = [*EVERY_TWO, "trainer.best=accuracy", "trainer.early_stopping=2", "model.dropout=0.1"]
STOPPING += ["trainer.keep_checkpoints=1", "trainer.keep_checkpoints_after=1", "trainer.save_steps=2"]
SCRIPT = (0.1, 0.5, 0.4, 0.5, 0.9, 0.9)


@pytest.mark.slow
def test_early_stopping_survives_interruptions(
    small, scripted, without_times, run_interrupted, tmp_path, caplog
) -> None:
    def stopped(config: Config) -> tuple:
        """Record less its times, metrics.jsonl, checkpoints and answers of a run that stops at step 8."""
        scripted(*SCRIPT)
        path = train(config)
        answers = path.with_name("predictions.jsonl").read_bytes()
        return without_times(path), read_metrics(path.with_name(METRICS)), steps_in(path.parent), answers

    straight = stopped(small(*STOPPING, f"output_dir={tmp_path / 'straight'}"))
    assert (straight[0].steps, straight[2]) == (8, [4, 8])
    assert straight[0].model["best"] == {"metric": "accuracy", "step": 4, "value": 0.5}
    assert straight[0].metrics["validation/accuracy"] == 0.5
    assert "Stopped at step 8: no better accuracy in 2 evaluations." in caplog.messages
    assert "Best validation accuracy: 0.5, at step 4, which is scored." in caplog.messages
    for step in (3, 7):
        config = small(*STOPPING, f"output_dir={tmp_path / str(step)}")
        run_interrupted(config, step)
        assert stopped(config) == straight
    # Killed after it stopped: it does not go on from there.
    folder = tmp_path / "straight" / straight[0].id
    (folder / "record.json").unlink()
    assert stopped(small(*STOPPING, f"output_dir={tmp_path / 'straight'}")) == straight
    # predict.py reads the weights that were scored.
    assert predict(folder).read_bytes() == straight[-1]
    shutil.rmtree(folder / "checkpoints" / "checkpoint-4")
    with pytest.raises(UserError, match="checkpoint-4: this is the checkpoint that the record scores"):
        predict(folder)


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


# ---- interrupted, killed, or started twice

# Every epoch of 96 rows has 4 batches, the last of them smaller; the log lines do not end where evaluations do.
SHARED = ["model.dropout=0.1", "trainer.batch_size=30", "trainer.max_steps=14", "trainer.logging_steps=3"]
# Patience 1 halves the rate several times in so few steps.
PLATEAU = ["trainer.schedule=plateau", "trainer.warmup_steps=0", "trainer.patience=1", "trainer.eval_steps=1"]
COSINE = ["trainer.schedule=cosine", "trainer.length_bucketing=true", "trainer.accumulation_steps=2"]


@pytest.mark.slow
@pytest.mark.parametrize(("own", "steps"), [([*PLATEAU, "trainer.lr=0.3"], [6, 9]), (COSINE, [1, 13])])
def test_a_resume_at_any_step_gives_the_same_bits(own, steps, small, without_times, run_interrupted, tmp_path) -> None:
    """The same bits after an interruption in each of these steps, the last ones of which come while it is resumed."""

    def outcome(config: Config) -> tuple:
        path = train(config)
        weights = path.parent / "checkpoints" / "checkpoint-14" / "model.safetensors"
        return without_times(path), read_metrics(path.with_name(METRICS)), weights.read_bytes()

    config = small(*SHARED, *own, f"output_dir={tmp_path / 'broken'}")
    folder = tmp_path / "broken" / run_id(config)
    for step in steps:
        run_interrupted(config, step)
        checkpoint, damaged = latest_complete(folder / "checkpoints")
        assert (checkpoint and checkpoint.name, damaged) == (f"checkpoint-{step}", [])
        assert not (folder / "record.json").exists()
    assert outcome(config) == outcome(small(*SHARED, *own))


TRAIN = str(CONFIG_DIR.parent / "train.py")
# Long enough to be met in its middle; the decoding is short.
SETTINGS = ["trainer.max_steps=150", "trainer.save_steps=30", "trainer.logging_steps=7", "model.dropout=0.1"]


class Command:
    """train.py with these overrides, and the folder of its run."""

    def __init__(self, make: Callable[..., list[str]], outputs: Path, *overrides: str) -> None:
        words = make(*overrides, f"output_dir={outputs / 'stopped'}")
        self.words = [sys.executable, TRAIN, *words]
        self.folder = outputs / "stopped" / run_id(compose(words))
        self.uninterrupted = compose(make(*overrides, f"output_dir={outputs / 'straight'}"))

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_a_checkpoint(self, process: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + 200
        while process.poll() is None and latest_complete(self.folder / "checkpoints")[0] is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def finish(self) -> str:
        done = subprocess.run(self.words, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        assert "Continuing from" in done.stdout
        return done.stdout

    def check(self, without_times: Callable[[Path], RunRecord], *, files: bool = False) -> None:
        """The run ended as the same run that nothing stops; ``files``: no part of a file is left behind either."""
        straight = train(self.uninterrupted).parent
        assert without_times(self.folder / "record.json") == without_times(straight / "record.json")
        assert read_metrics(self.folder / METRICS) == read_metrics(straight / METRICS)
        if files:
            left = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in (self.folder, straight)]
            assert left[0] == left[1]


@pytest.fixture
def command(settings: Callable[..., list[str]], tmp_path: Path) -> Command:
    return Command(settings, tmp_path, *SETTINGS)


def check_interrupted(process: "subprocess.Popen[str]") -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted; the same command continues from the last checkpoint."
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [*(pytest.param(each, marks=pytest.mark.soak) for each in (signal.SIGINT, signal.SIGTERM)), signal.SIGUSR2],
)
def test_one_signal_leaves_a_checkpoint_of_the_step_under_way(number: int, command: Command, without_times) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(number)
        check_interrupted(process)
    checkpoint, damaged = latest_complete(command.folder / "checkpoints")
    assert (checkpoint is not None, damaged) == (True, [])
    command.finish()
    command.check(without_times)


@pytest.mark.soak
def test_two_commands_at_one_run(command: Command, without_times) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(signal.SIGSTOP)  # so that it does not end before the other has come
        second = subprocess.run(command.words, capture_output=True, text=True, timeout=120)
        assert second.returncode == 2, second.stderr
        assert second.stderr == f"error: {command.folder}: another process is working on this run; wait for it.\n"
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    command.check(without_times)


# In the order in which one run meets them: each start goes on from the checkpoint before.
PLACES = [
    ("open", "config.json", 2),  # the second checkpoint has just begun
    ("open", "trainer_state.json", 1),  # its weights and optimizer are written
    ("open", ".manifest.json.*.part", 1),  # everything but the manifest
    ("os.rename", "manifest.json", 1),  # the manifest has another name yet
    ("open", METRICS, 2),
    ("open", ".predictions.jsonl.*.part", 1),
    ("os.rename", "predictions.jsonl", 1),
    ("open", ".record.json.*.part", 1),
    ("os.rename", "record.json", 1),
]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_run_killed_while_it_writes_a_checkpoint_predictions_or_the_record(settings, without_times, tmp_path) -> None:
    command = Command(settings, tmp_path, "trainer.save_steps=4", "trainer.logging_steps=1")
    altered = str(Path(__file__).with_name("altered.py"))
    for event, name, nth in PLACES:
        strike = [sys.executable, altered, f"kill:{event}:{name}:{nth}", *command.words[1:]]
        done = subprocess.run(strike, capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, (event, name, done.stderr)
        assert not (command.folder / "record.json").exists()
        assert latest_complete(command.folder / "checkpoints")[0] is not None
    command.finish()
    command.check(without_times, files=True)
