"""metrics.jsonl is always whole; Weights & Biases may fail in any way."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ntl.config import Config, compose, run_id
from ntl.results import read_record
from ntl.training import run, tracking
from ntl.training.tracking import (
    MetricsFile,
    NoMirror,
    Tracked,
    WandbMirror,
    mirror,
    public_name,
    read_metrics,
)


def _state(*history: dict[str, float]) -> Any:
    return SimpleNamespace(global_step=7, is_world_process_zero=True, log_history=list(history))


def _log(file: MetricsFile, **logs: float) -> None:
    file.on_log(None, _state(), None, logs=logs)


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
    known = [{"loss": 0.1, "step": 2}, {"eval_ce": 0.2, "step": 7}]
    MetricsFile(path, lambda line: None).on_train_begin(None, _state(*known), None)
    assert path.read_text() == '{"step": 2, "loss": 0.1}\n{"step": 7, "eval_ce": 0.2}\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_line_is_the_same_text_before_and_after_a_resume(tmp_path: Path) -> None:
    """The checkpoint gives its log lines back with their keys sorted."""
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, lambda line: None)
    logs = {"loss": 0.1, "ce": 0.3, "ntl": 0.2, "epoch": 1.0}
    _log(file, **logs)
    before = path.read_text()
    file.on_train_begin(None, _state(json.loads(json.dumps({**logs, "step": 7}, sort_keys=True))), None)
    assert path.read_text() == before


def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2}\n{"step": 7, "lo')
    assert read_metrics(path) == [{"step": 2}]
    assert read_metrics(tmp_path / "none") == []


def _started(config: Config, folder: Path, warn: Callable[[str], object] = print) -> Any:
    tracker = mirror(config.tracking, warn)
    tracker.start(Tracked.of(config, "id", folder, 1234))
    return tracker


@pytest.fixture
def make_tracker(tmp_path: Path) -> Callable[[], tuple[WandbMirror, list[str]]]:
    """A mirror that has started, and the list of its warnings."""

    def make() -> tuple[WandbMirror, list[str]]:
        said: list[str] = []
        return _started(compose(["tracking=wandb"]), tmp_path, said.append), said

    return make


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
def test_whatever_fails_the_run_goes_on_and_says_so_once(at: str, make_tracker, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = _FailingRun(at)

    def init(**settings: Any) -> _FailingRun:
        assert settings["mode"] == "offline"
        if at == "init":
            raise RuntimeError("bad key")
        return run

    stand_in = None if at == "import" else SimpleNamespace(init=init, login=lambda prompt: False)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    tracker, said = make_tracker()
    for step in (1, 2):
        tracker.log({"step": step, "loss": 1.0})
    tracker.finish({"test/mae": 1.0})
    assert len(said) == (1 if at else 0)
    assert all("W&B failed" in line and "\n" not in line for line in said)
    if at == "log":
        assert run.calls == ["log"]


@pytest.mark.parametrize(("has_key", "mode"), [(False, "offline"), (True, "online")])
def test_offline_without_a_key_and_never_a_prompt(has_key: bool, mode: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    seen: dict[str, Any] = {}

    def login(prompt: bool) -> bool:
        assert not prompt
        return has_key

    stand_in = SimpleNamespace(init=lambda **settings: seen.update(settings), login=login)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    config = compose(["tracking=wandb", "tracking.group=table2", "tracking.tags=[mine,tiny]"])
    _started(config, tmp_path).finish({})
    assert (seen["mode"], seen["group"], seen["id"], seen["job_type"]) == (mode, "table2", "id", "train")
    assert seen["reinit"] == "finish_previous"
    assert seen["tags"] == ["mine", "tiny", "multiplication", "gpt2_tiny", "ntl_was"], "each once: the scale is tiny"
    assert (seen["config"]["parameters"], seen["config"]["loss"]["name"]) == (1234, "ntl_was")
    assert "tracking" not in seen["config"]


def test_the_real_client_offline(make_tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(tracking, "SECONDS_TO_FINISH", 120.0)  # a busy machine takes long to import the client
    tracker, said = make_tracker()
    tracker.log({"step": 1, "loss": 0.25, "eval_ce": 0.5})
    tracker.table("test/predictions", ("question", "error"), [("1 + 1 =", None), ("2 + 2 =", 0.5)])
    tracker.finish({"interpolate/mae": 1.0})
    assert said == []
    (written,) = (path.read_bytes() for path in tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert written
    (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/test/predictions_*.table.json")
    assert json.loads(table.read_text())["data"] == [["1 + 1 =", None], ["2 + 2 =", 0.5]]


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("ce", "train/ce"),
        ("learning_rate", "train/learning_rate"),
        ("eval_digit_mae", "validation/digit_mae"),
        ("validation/ce", "validation/ce"),
        ("test/mae@paper", "test/mae@paper"),
        ("extrapolate/mae", "test/extrapolate/mae"),
    ],
)
def test_every_name_begins_with_train_validation_or_test(name: str, public: str) -> None:
    assert public_name(name) == public


class _SlowRun:
    """Every call takes until ``answer`` is set, or the 30 s of a service that hardly answers."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.threads: list[threading.Thread] = []
        self.steps: list[int] = []
        self.summary = SimpleNamespace(update=lambda values: self.wait())

    def wait(self) -> None:
        self.threads.append(threading.current_thread())
        self.answer.wait(30)

    def log(self, values: Any, step: int) -> None:
        self.wait()
        self.steps.append(step)

    def finish(self) -> None:
        self.wait()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[_SlowRun]:
    """What wandb.init gives; init itself answers at once."""
    run = _SlowRun()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: run, login=lambda prompt: False))
    yield run
    run.answer.set()


def test_lines_that_a_slow_service_does_not_take_are_dropped_and_told_once(slow, make_tracker, monkeypatch) -> None:
    monkeypatch.setattr(tracking, "WAITING_LINES", 3)
    tracker, said = make_tracker()
    for step in range(100):
        tracker.log({"step": step, "loss": 1.0})
    assert said == ["W&B is slow: some lines are not sent to it; metrics.jsonl has everything."]
    slow.answer.set()
    tracker.finish({})
    assert 1 <= len(slow.steps) < 10
    assert slow.steps == sorted(slow.steps)
    assert len(said) == 1


def test_the_end_waits_for_a_slow_service_a_bounded_time(slow: _SlowRun, make_tracker, monkeypatch) -> None:
    monkeypatch.setattr(tracking, "SECONDS_TO_FINISH", 0.1)
    tracker, said = make_tracker()
    for step in (1, 2):
        tracker.log({"step": step, "loss": 1.0})
    tracker.finish({"test/mae": 1.0})
    assert said == ["W&B did not answer within 0.1 s; nothing more is sent to it; metrics.jsonl has everything."]
    # What it is given up for is not sent when the service comes back.
    slow.answer.set()
    tracker._thread.join(10)
    assert slow.steps == [1]
    assert len(said) == 1


def test_a_run_that_fails_ends_the_thread(slow: _SlowRun, make_tracker) -> None:
    tracker, _ = make_tracker()
    tracker.close()
    tracker._thread.join(10)
    assert not tracker._thread.is_alive()


def test_training_waits_for_no_call_of_a_slow_service(slow: _SlowRun, small, monkeypatch, capsys) -> None:
    """Each call of the client would take 30 s; the run has ended before the first one has."""
    monkeypatch.setattr(tracking, "SECONDS_TO_FINISH", 0.1)
    path = run(small("tracking=wandb", "trainer.logging_steps=1"))
    assert [thread.name for thread in slow.threads] == ["wandb"]
    assert slow.steps == []
    assert len(read_record(path).curves["loss"]) == 12
    assert "W&B did not answer within 0.1 s" in capsys.readouterr().out


class _Refuses(BaseHTTPRequestHandler):
    """A service that takes no key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(401)
        self.end_headers()

    do_GET = do_POST


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """Of a service that refuses the key, that never answers, or that is gone."""
    if request.param == "refuses the key":
        with ThreadingHTTPServer(("127.0.0.1", 0), _Refuses) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield server.server_port
            server.shutdown()
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:  # which never accepts
        number = listening.getsockname()[1]
        if request.param == "never answers":
            yield number
            return
    yield number


@pytest.mark.slow
@pytest.mark.parametrize("port", ["refuses the key", "unreachable", "never answers"], indirect=True)
def test_the_real_client_online(port: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """In a process of its own, since the client keeps what it was told first, and so that its exit is seen, too."""
    online = {"WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": f"http://127.0.0.1:{port}"}
    program = f"""
from pathlib import Path
from ntl.config import compose
from ntl.training.tracking import Tracked, mirror
config = compose(["tracking=wandb"])
tracker = mirror(config.tracking, print)
tracker.start(Tracked.of(config, "run-1", Path({str(tmp_path)!r}), 1))
tracker.log({{"step": 1, "loss": 0.25}})
tracker.finish({{}})
print("ended")
"""
    command, environment = [sys.executable, "-c", program], {**os.environ, **online}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told, ended = done.stdout.splitlines()
    assert ended == "ended"
    assert told.startswith("W&B failed" if "refuses" in request.node.name else "W&B ")
    assert told.endswith("metrics.jsonl has everything.")


def test_the_first_rank_alone_is_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = compose(["tracking=wandb"]).tracking
    assert isinstance(mirror(asked, print), WandbMirror)
    monkeypatch.setenv("RANK", "1")
    assert type(mirror(asked, print)) is NoMirror


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
def test_when_wandb_is_told(tracking: str, environment: dict[str, str], to_wandb: bool, monkeypatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = compose([f"tracking={tracking}"])
    assert config.tracking.to_wandb is to_wandb
    assert type(mirror(config.tracking, print)) is (WandbMirror if to_wandb else NoMirror)
    assert run_id(config) == run_id(compose())


def test_auto_is_the_default_and_says_when_settings_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [config.tracking.name for config in (compose(), Config())] == ["auto", "auto"]
    said: list[str] = []
    mirror(compose().tracking, said.append)
    assert said == []
    mirror(compose(["tracking.project=mine"]).tracking, said.append)
    assert len(said) == 1
    assert said[0].startswith("W&B is off: neither WANDB_API_KEY nor WANDB_MODE")
    assert "add tracking=wandb" in said[0]
