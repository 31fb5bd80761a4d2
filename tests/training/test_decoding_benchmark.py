"""The comparison runs, compares like with like, and divides the right way round."""

from pathlib import Path

import pytest

from ntl.training import decoding_benchmark
from ntl.training.decoding_benchmark import bare, compare, main, measure, ours
from ntl.training.session import Session

SMALL = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.test_rows=40", "device=cpu"]


@pytest.mark.parametrize("model", ["gpt2_tiny", "t5_tiny"])
@pytest.mark.parametrize("beams", [1, 3])
def test_both_sides_give_the_same_answers(model: str, beams: int, small, tmp_path: Path) -> None:
    settings = ["dataset.test_rows=30", f"decoding.num_beams={beams}", "decoding.batch_size=7"]
    if model == "gpt2_tiny":
        config = small(*settings)
    else:
        from ntl.config import compose

        config = compose([*SMALL, *settings, f"model={model}", f"data_dir={small().data_dir}", "tracking=none"])
    session = Session(config, tmp_path, say=lambda line: None)
    answers = ours(session, 30)
    assert len(answers) == 30
    assert answers == bare(session, 30)


def test_measure_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 14.0])
    monkeypatch.setattr(decoding_benchmark.time, "perf_counter", lambda: next(times))
    assert measure(lambda session, rows: [], None, 20) == 5.0  # pyright: ignore[reportArgumentType]


def test_the_ratio_is_ours_over_bare_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {ours: iter([10.0, 30.0, 20.0]), bare: iter([10.0, 10.0, 40.0])}
    monkeypatch.setattr(decoding_benchmark, "measure", lambda decode, session, rows: next(speeds[decode]))
    result = compare(["model=gpt2_tiny", *SMALL], rows=1000, rounds=3)
    assert result["speed_ratio"] == 1.0
    assert result["examples_per_s"] == {"ours": 20.0, "bare": 10.0}
    assert (result["rows"], result["num_beams"]) == (40, 1)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--models", "gpt2_tiny", "--beams", "2", "--rows", "8", "--rounds", "1", *SMALL])
    assert "gpt2_tiny" in capsys.readouterr().out
