"""The benchmark of W&B: services that misbehave as they say, and ratios of the same turn."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ntl.training import tracking_benchmark as module
from ntl.training.tracking_benchmark import NONE, compare, main, mean_step, services

SMALL = ["dataset=noisy_numbers", "dataset.train_rows=64", "trainer.batch_size=8", "model.n_embd=8", "device=cpu"]


def _answer(environment: dict[str, str], timeout: float) -> str:
    try:
        urllib.request.urlopen(environment["WANDB_BASE_URL"], timeout=timeout)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return type(getattr(error, "reason", error)).__name__
    return "answered"


def test_services_do_what_they_are_named_for() -> None:
    with services() as found:
        assert found[NONE] == {}
        assert found["offline"] == {"WANDB_MODE": "offline"}
        online = {name: dict(each) for name, each in found.items() if each.get("WANDB_MODE") == "online"}
        answers = {name: _answer(each, timeout=0.3) for name, each in online.items()}
    assert answers == {"refuses the key": "401", "30 s a call": "TimeoutError", "unreachable": "ConnectionRefusedError"}


def test_the_mean_leaves_the_first_steps_out() -> None:
    assert mean_step([10.0, 100.0, 102.0, 103.0, 109.0], warm_up=2) == (109 - 100) / 3


def test_ratios_are_of_the_same_turn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    turns: dict[str, int] = {}

    def fake(overrides: list[str], environment: dict[str, str], warm_up: int) -> tuple[float, float]:
        if "trainer.max_steps=50" not in overrides or warm_up == 1:
            return 0.0, 0.0
        name = environment.get("WANDB_BASE_URL", environment.get("WANDB_MODE", NONE))
        turn = turns[name] = turns.get(name, 0) + 1
        seconds = 10.0**turn * {NONE: 1, "offline": 2}.get(name, 3)
        return seconds, seconds * (1 - turn / 10)

    monkeypatch.setattr(module, "_in_a_process", fake)
    rows = {row["service"]: row for row in compare([], steps=50, rounds=3)}
    assert [row["ratio"] for row in rows.values()] == [1, 2, 3, 3, 3]
    assert [(row["waits"], row["waits_at_most"]) for row in rows.values()] == [pytest.approx((0.2, 0.3))] * 5
    assert rows["offline"]["step_s"] == 200
    turns.clear()
    main(["--steps", "50", "--rounds", "2", "--json"])
    assert json.loads(capsys.readouterr().out)[1]["ratio"] == 2
    turns.clear()
    main(["--steps", "50", "--rounds", "2"])
    assert "30 s a call" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"WANDB_MODE": "offline"}])
def test_each_training_is_a_process_of_its_own(environment: dict[str, str], tmp_path: Path) -> None:
    before = dict(os.environ)
    seconds, worked = module._in_a_process([*SMALL, "trainer.max_steps=5", f"data_dir={tmp_path}"], environment, 1)
    assert worked > 0
    assert seconds > 0
    assert dict(os.environ) == before
