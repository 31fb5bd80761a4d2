"""The comparison runs, both sides give the same answers, and the ratio is the right way round. Nothing is timed."""

from typing import Any

import pytest

from ntl.training import decoding_benchmark
from ntl.training.decoding_benchmark import compare, main

TINY = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.test_rows=9", "decoding.batch_size=4", "device=cpu"]


@pytest.mark.parametrize(("model", "beams"), [("gpt2_tiny", 1), ("t5_tiny", 3)])
def test_both_sides_give_the_same_answers(monkeypatch: pytest.MonkeyPatch, model: str, beams: int) -> None:
    times = iter([4.0, 1.0, 2.0, 6.0, 5.0, 2.0])  # bare first, then ours first, then bare again
    monkeypatch.setattr(decoding_benchmark, "seconds", lambda side: next(times))
    result = compare([f"model={model}", f"decoding.num_beams={beams}", *TINY], rows=7, rounds=3)
    assert (result["examples"], result["same_answers"], result["num_beams"]) == (7, 7, beams)
    assert result["speed_ratio"] == 3.0  # of 4 / 1, 6 / 2, 5 / 2
    assert result["examples_per_s"] == {"ours": 7 / 2, "bare": 7 / 5}


def test_the_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def compared(overrides: list[str], **counts: int) -> dict[str, Any]:
        asked.append((overrides, counts))
        return {
            "model": "m",
            "num_beams": 4,
            "examples": 2,
            "same_answers": 1,
            "examples_per_s": {"ours": 3.0, "bare": 2.0},
            "speed_ratio": 1.5,
        }

    monkeypatch.setattr(decoding_benchmark, "compare", compared)
    main(["--models", "t5_tiny", "--beams", "1", "4", "--rows", "5", "--rounds", "2", "seed=3"])
    assert asked[1] == (["model=t5_tiny", "decoding.num_beams=4", "seed=3"], {"rows": 5, "rounds": 2})
    assert "1.500" in capsys.readouterr().out
    main(["--json", "--beams", "1", "--models", "t5_tiny"])
    assert '"speed_ratio": 1.5' in capsys.readouterr().out
