"""Lines for the person who watches, on a clock of the test's own."""

from types import SimpleNamespace

import pytest

from ntl.training import callbacks, decode
from ntl.training.callbacks import ProgressLines
from ntl.training.decode import DecodingLines

LOGS = {"loss": 1.23456, "ce": 1.1, "ntl": 0.4, "epoch": 2.0}


class Clock:
    """time.monotonic, set by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (callbacks, decode):
        monkeypatch.setattr(module, "time", clock)
    return clock


def _state(step: int) -> SimpleNamespace:
    return SimpleNamespace(global_step=step, max_steps=1500)


def _log(lines: ProgressLines, step: int, logs: dict[str, float] | None = LOGS) -> None:
    lines.on_log(None, _state(step), None, logs=logs)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def training(clock: Clock) -> tuple[ProgressLines, list[str]]:
    said: list[str] = []
    lines = ProgressLines(said.append)
    clock.now = 200.0
    # A run that continues from step 500.
    lines.on_train_begin(None, _state(500), None)  # pyright: ignore[reportArgumentType]
    return lines, said


def test_rate_and_time_left_count_from_where_this_process_began(training, clock: Clock) -> None:
    lines, said = training
    clock.now = 210.0
    _log(lines, 1000)
    assert said == ["step 1,000/1,500  loss 1.2346  ce 1.1000  ntl 0.4000  50.0 steps/s  10 s left"]


def test_what_was_not_logged_is_not_told(training, clock: Clock) -> None:
    lines, said = training
    clock.now = 210.0
    _log(lines, 1000, {"loss": 1.5, "ntl": 1.5})
    assert said == ["step 1,000/1,500  loss 1.5000  ntl 1.5000  50.0 steps/s  10 s left"]


def test_at_most_one_line_in_five_seconds_and_always_the_last(training, clock: Clock) -> None:
    lines, said = training
    for step, now in ((600, 204.9), (700, 205.0), (800, 209.9), (900, 210.0), (1500, 210.1)):
        clock.now = now
        _log(lines, step)
    assert [line.split()[1] for line in said] == ["700/1,500", "900/1,500", "1,500/1,500"]


@pytest.mark.parametrize("logs", [None, {"eval_ce": 1.0}, {"train_runtime": 3.0}])
def test_other_logs_are_no_progress(training, clock: Clock, logs: dict[str, float] | None) -> None:
    lines, said = training
    clock.now = 300.0
    _log(lines, 600, logs)
    _log(lines, 500)  # no step of this process yet: there is no rate
    assert said == []


def test_decoding(clock: Clock) -> None:
    said: list[str] = []
    lines = DecodingLines(said.append, "interpolate", 10_000)
    for done, now in ((1_024, 104.0), (2_048, 108.0), (3_000, 112.0), (4_096, 113.0), (10_000, 140.0)):
        clock.now = now
        lines(done)
    # 2,048 in 8 s leave 7,952 for 31.06 s; 4,096 in 13 s leave 5,904 for 18.7 s. The end is told by the caller.
    assert said == ["decoding interpolate 2,048/10,000, 31 s left", "decoding interpolate 4,096/10,000, 19 s left"]
