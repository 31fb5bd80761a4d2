"""Turns, ratios within them, and memory that can be counted by hand."""

import pytest
import torch

from ntl.training import turns as module
from ntl.training.turns import measure, peak_bytes, seconds


def test_peak_memory_by_hand() -> None:
    # 1,000 floats, then 500 doubles beside them; the first are gone before the last 250 floats come.
    def call() -> None:
        first = torch.empty(1000)
        second = torch.empty(500, dtype=torch.float64)
        del first
        torch.empty(250)
        del second

    assert peak_bytes(call, "cpu") == pytest.approx(8000, abs=128)


def test_ratios_are_of_one_turn_and_the_order_rotates(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in ("ce", "ntl_was")}
    times = {"ce": iter([1.0, 10.0, 2.0]), "ntl_was": iter([2.0, 20.0, 5.0])}

    def fake(call, device: str, clock: object) -> float:
        call()
        return next(times[order[-1]])

    monkeypatch.setattr(module, "seconds", fake)
    monkeypatch.setattr(module, "peak_bytes", lambda call, device: 2**20)
    ce, was = measure(calls, "cpu", rounds=3)
    assert order == ["ce", "ntl_was", "ce", "ntl_was", "ntl_was", "ce", "ce", "ntl_was"]
    assert (ce["ratio"], ce["seconds"]) == (1.0, 2.0)
    assert was == {
        "loss": "ntl_was",
        "seconds": 5.0,
        "ratio": 2.0,
        "ratio_low": 2.0,
        "ratio_high": 2.25,
        "peak_mib": 1.0,
    }


def test_time_is_the_processors() -> None:
    assert 0 < seconds(lambda: sum(range(100_000)), "cpu") < 5
    assert seconds(lambda: module.time.sleep(0.2), "cpu") < 0.1
