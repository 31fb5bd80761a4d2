"""metrics.jsonl is always whole; Weights & Biases may fail in any way; what a tracker is told."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, call

import pytest

from ntl.config import Config, compose, run_id
from ntl.config.identity import plain
from ntl.results import read_record
from ntl.training import record
from ntl.training.record import MetricsFile, Mirror, read_metrics
from ntl.training.train import train


def _state(*history: dict[str, float]) -> Any:
    return SimpleNamespace(global_step=7, is_world_process_zero=True, log_history=list(history))


def _log(file: MetricsFile, **logs: float) -> None:
    file.on_log(None, _state(), None, logs=logs)


def test_a_line_for_every_log_but_the_summary_and_none_after_the_checkpoint_of_a_resume(tmp_path: Path) -> None:
    """What stays is the same text, though the checkpoint gives its log lines back with their keys sorted."""
    path, seen = tmp_path / "metrics.jsonl", list[Any]()
    file = MetricsFile(path, seen.append)
    _log(file, loss=0.1, ce=0.3, ntl=0.2, epoch=1.0)
    _log(file, train_runtime=3.0, train_loss=1.5)
    assert read_metrics(path) == [{"step": 7, "loss": 0.1, "ce": 0.3, "ntl": 0.2, "epoch": 1.0}] == seen
    before = path.read_text()
    path.write_text(before + '{"step": 9, "loss": 0.1}\n{"step": 11, "lo')
    assert [line["step"] for line in read_metrics(path)] == [7, 9]  # without the line that a kill cut off
    file.on_train_begin(None, _state({"ce": 0.3, "epoch": 1.0, "loss": 0.1, "ntl": 0.2, "step": 7}), None)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def _started(config: Config, folder: Path) -> Any:
    tracker = Mirror(config.tracking)
    names = [part.name for part in (config.dataset, config.model, config.loss, config.scale)]
    tracker.start(folder, names, {**plain(config), "parameters": 1234})
    return tracker


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """In place of the client, without a key."""
    client = MagicMock(**{"login.return_value": False})
    monkeypatch.setitem(sys.modules, "wandb", client)
    return client


@pytest.mark.parametrize("at", ["import", "init", "log", "finish", ""])
def test_whatever_fails_the_run_goes_on_and_says_so_once(at: str, wandb, tmp_path: Path, caplog, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = wandb.init.return_value
    if at == "import":
        monkeypatch.setitem(sys.modules, "wandb", None)
    elif at:
        error = ConnectionError("no route to the service\nand a second line")
        (wandb if at == "init" else run).configure_mock(**{f"{at}.side_effect": error})
    tracker = _started(compose(["tracking=wandb"]), tmp_path)
    for step in (1, 2):
        tracker.log({"step": step, "loss": 1.0})
    tracker.finish({"test/mae": 1.0})
    assert len(caplog.messages) == (1 if at else 0)
    assert all("W&B failed" in line and "\n" not in line for line in caplog.messages)
    assert run.log.call_count == {"log": 1, "finish": 2, "": 2}.get(at, 0)


def test_offline_without_a_key_and_never_a_prompt(wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    config = compose(["tracking=wandb", "tracking.group=table2", "tracking.tags=[mine,tiny]"])
    _started(config, tmp_path)
    wandb.login.assert_called_once_with(prompt=False)
    seen = wandb.init.call_args.kwargs
    assert (seen["mode"], seen["group"], seen["id"]) == ("offline", "table2", tmp_path.name)
    assert seen["tags"] == ["mine", "tiny", "multiplication", "gpt2_tiny", "ntl_was"], "each once: the scale is tiny"
    assert (seen["config"]["parameters"], seen["config"]["loss"]["name"]) == (1234, "ntl_was")
    assert "tracking" not in seen["config"]


@pytest.mark.slow
def test_the_real_client_offline(tmp_path: Path, caplog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(record, "SECONDS_TO_FINISH", 120.0)  # a busy machine takes long to import the client
    left = tmp_path / "wandb" / f"offline-run-20260101_000000-{tmp_path.name}"  # by a process that was interrupted
    left.mkdir(parents=True)
    (left / "run.wandb").write_bytes(b"the first steps")
    tracker = _started(compose(["tracking=wandb"]), tmp_path)
    tracker.log({"step": 1, "loss": 0.25, "eval_ce": 0.5})
    tracker.finish({"interpolate/mae": 1.0})
    assert [entry.getMessage() for entry in caplog.records if entry.name == "ntl"] == []  # the client has its own
    (written,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 120  # the client's own process writes, and may end after finish() has returned
    while b"interpolate/mae" not in written.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert b"interpolate/mae" in written.read_bytes()


@pytest.mark.parametrize(
    ("tracking", "environment", "to_wandb"),
    [
        ("auto", {}, False),
        ("auto", {"WANDB_API_KEY": "0" * 40}, True),
        ("auto", {"WANDB_MODE": "offline"}, True),
        ("auto", {"WANDB_MODE": "disabled", "WANDB_API_KEY": "0" * 40}, False),
        ("none", {"WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40}, False),
        ("wandb", {}, True),
    ],
)
def test_when_wandb_is_told(
    tracking: str, environment: dict[str, str], to_wandb: bool, monkeypatch, second_rank
) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = compose([f"tracking={tracking}"])
    assert config.tracking.to_wandb is to_wandb
    assert Mirror(config.tracking).works is to_wandb
    assert run_id(config) == run_id(compose())
    with second_rank():  # the first rank alone is mirrored
        assert not Mirror(config.tracking).works


def test_settings_of_a_mirror_that_is_off_are_told(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    Mirror(compose().tracking)
    assert caplog.messages == []
    Mirror(compose(["tracking.project=mine"]).tracking)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("W&B is off")


@pytest.mark.slow
def test_a_whole_run(wandb: MagicMock, small, run_interrupted) -> None:
    """Interrupted after step 8 was logged; a resume tells the run of its id again what its checkpoint has."""
    config = small("tracking=wandb")
    run_interrupted(config, 9)
    path = train(config)
    record, told = read_record(path), wandb.init.return_value
    assert [each.kwargs["id"] for each in wandb.init.call_args_list] == [record.id] * 2
    lines = [(each.args[0], each.kwargs["step"]) for each in told.log.call_args_list]
    assert [step for line, step in lines if "train/digit_accuracy" in line] == [4, 8, 4, 8, 12]
    assert lines[-1][0]["validation/ntl_was"] == pytest.approx(record.metrics["validation/ntl_was"], rel=1e-9)
    assert told.summary.update.call_args.args[0]["test/accuracy"] == record.metrics["test/accuracy"]
    assert told.mock_calls[-1] == call.finish()
