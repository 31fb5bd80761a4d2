import io
from collections.abc import Callable

import pytest
from rich.console import Console

from ntl.launch import progress
from ntl.launch.plan import Ended, Run
from ntl.launch.progress import Display, Estimate, duration

MakeRun = Callable[..., Run]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.6, "1 min 00 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_estimate_from_finished_runs_of_the_same_kind(make_run: MakeRun) -> None:
    estimate = Estimate(workers=2, expected={}, clock=lambda: 1000.0)
    long, short = make_run("l", kind="long"), make_run("s", kind="short")
    assert estimate.left([], [short]) is None
    estimate.ended(short, 8.0)
    estimate.ended(short, 12.0)
    assert estimate.left([], [short, short, short]) == 15.0  # 3 x 10 s on two workers
    assert estimate.left([], [short]) == 10.0  # one run is not split
    assert estimate.left([(short, 996.0)], [short]) == 10.0
    assert estimate.left([(short, 996.0)], []) == 6.0
    assert estimate.left([(short, 900.0)], []) == 0.0  # late, but not less than nothing
    assert estimate.left([], [long]) is None
    assert estimate.left([], []) == 0.0


def test_what_is_expected_holds_until_something_is_known(make_run: MakeRun) -> None:
    run = make_run("r", max_steps=100, kind="long")
    assert Estimate(workers=1, expected={}).left([(run, 0.0)], []) is None
    estimate = Estimate(workers=1, expected={("long",): 50.0}, clock=lambda: 30.0)
    assert estimate.left([(run, 0.0)], [run]) == 70.0  # 20 s of one, all of the other
    (run.folder / "metrics.jsonl").write_text('{"step": 25}\n')
    # 25 of 100 steps took 30 s: 120 s in all, 90 s of them to come, and 120 s for the one that waits.
    assert estimate.left([(run, 0.0)], []) == 90.0
    assert estimate.left([(run, 0.0)], [run]) == 210.0
    estimate.ended(run, 40.0)
    assert estimate.left([(run, 0.0)], [run]) == 50.0


def test_progress_is_lines_without_markup_or_wrapping(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    display = Display(2, Console(file=out, width=20))
    run = make_run("a[b]", max_steps=400)
    (run.folder / "metrics.jsonl").write_text('{"step": 100}\n')
    now[0] = 20.0
    display.tick([(run, 0.0)], 90.0)
    assert out.getvalue() == "  running: label a[b] 100/400; about 1 min 30 s left\n"
    now[0] = 39.0
    display.tick([(run, 0.0)], 90.0)  # quiet for 19 s only
    display.ended(1, Ended(run, 41.0, ""), 75.0)
    display.ended(2, Ended(run, 2.0, "boom"), 0.0)
    assert out.getvalue().splitlines()[1:] == [
        "[1/2] label a[b]: 41.0 s (about 1 min 15 s left)",
        "[2/2] label a[b]: FAILED after 2.0 s: boom",
    ]
