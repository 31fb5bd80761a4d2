"""metrics.jsonl is always whole; Weights & Biases may fail in any way."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ntl.config import compose
from ntl.training.tracking import MetricsFile, NoMirror, WandbMirror, mirror, read_metrics

STATE = SimpleNamespace(global_step=7, is_world_process_zero=True, log_history=[])


def _log(file: MetricsFile, **logs: float) -> None:
    file.on_log(None, STATE, None, logs=logs)  # pyright: ignore[reportArgumentType]


def test_a_line_for_every_log_but_the_summary(tmp_path: Path) -> None:
    seen: list[Any] = []
    file = MetricsFile(tmp_path / "metrics.jsonl", seen.append)
    _log(file, loss=1.5, ce=1.0, ntl=0.5)
    _log(file, train_runtime=3.0, train_loss=1.5)
    _log(file, eval_ce=2.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": 7, "loss": 1.5, "ce": 1.0, "ntl": 0.5}, {"step": 7, "eval_ce": 2.0}] == seen


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in (2, 7, 7, 9)) + '{"step": 11, "lo')
    file = MetricsFile(path, lambda line: None)
    known = [{"loss": 0.1, "step": 2}, {"eval_ce": 0.2, "step": 7}]
    state = SimpleNamespace(global_step=7, is_world_process_zero=True, log_history=known)
    file.on_train_begin(None, state, None)  # pyright: ignore[reportArgumentType]
    assert path.read_text() == '{"step": 2, "loss": 0.1}\n{"step": 7, "eval_ce": 0.2}\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2}\n{"step": 7, "lo')
    assert read_metrics(path) == [{"step": 2}]


def test_no_file_is_no_lines(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "none") == []


class _FailingRun:
    """Fails at one of its methods."""

    def __init__(self, at: str) -> None:
        self.at, self.calls = at, []
        self.summary = SimpleNamespace(update=lambda values: self._call("summary"))

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.at:
            raise ConnectionError("no route to the service\nand a second line")

    def log(self, values: Any, step: int) -> None:
        self._call("log")

    def finish(self) -> None:
        self._call("finish")


@pytest.mark.parametrize("at", ["import", "init", "log", "summary", "finish", ""])
def test_whatever_fails_the_run_goes_on_and_says_so_once(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _FailingRun(at)

    def init(**settings: Any) -> _FailingRun:
        assert settings["mode"] in ("offline", "online")
        if at == "init":
            raise RuntimeError("bad key")
        return run

    stand_in = None if at == "import" else SimpleNamespace(init=init, login=lambda prompt: False)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    said: list[str] = []
    tracker = WandbMirror(compose(), "id", tmp_path, said.append)
    for step in (1, 2):
        tracker.log({"step": step, "loss": 1.0})
    tracker.finish({"test/mae": 1.0})
    assert len(said) == (1 if at else 0)
    assert all("W&B failed" in line and "\n" not in line for line in said)
    if at == "log":
        assert run.calls == ["log"]


@pytest.mark.parametrize(("has_key", "mode"), [(False, "offline"), (True, "online")])
def test_offline_without_a_key_and_never_a_prompt(
    has_key: bool, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    seen: dict[str, Any] = {}

    def login(prompt: bool) -> bool:
        assert not prompt
        return has_key

    stand_in = SimpleNamespace(init=lambda **settings: seen.update(settings), login=login)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    WandbMirror(compose(["tracking.group=table2"]), "id", tmp_path, print)
    assert (seen["mode"], seen["group"], seen["id"]) == (mode, "table2", "id")
    assert seen["reinit"] == "finish_previous"
    assert "tracking" not in seen["config"]


def test_the_real_client_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    said: list[str] = []
    tracker = WandbMirror(compose(), "run-1", tmp_path, said.append)
    tracker.log({"step": 1, "loss": 0.25})
    tracker.finish({"test/mae": 1.0})
    assert said == []
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_the_mirror_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(mirror(compose(["tracking=none"]), "id", tmp_path, print), NoMirror)
    monkeypatch.setenv("RANK", "1")
    assert isinstance(mirror(compose(), "id", tmp_path, print), NoMirror)
