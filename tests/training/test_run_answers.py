"""A run that ends while it decodes goes on with the next batch, and its record is that of one that did not end."""

from pathlib import Path

import pytest

from ntl.decoding.batches import Journal
from ntl.evaluation import read_predictions
from ntl.training import run
from ntl.training.predictor import predict

BESIDE = ("beside=expectation", "beside.expectation.num_beams=20", "beside.expectation.batch_size=16")
# Batches of 30 examples: greedy, then by expectation.
GREEDY, BY_EXPECTATION = 5, 2


def end_after_a_batch(patch: pytest.MonkeyPatch) -> list[int]:
    """From here on every batch that is answered ends the run; their sizes."""
    add, decoded = Journal.add, []

    def once(self: Journal, batch: int, answers: list) -> None:
        add(self, batch, answers)
        decoded.append(len(answers))
        raise KeyboardInterrupt

    patch.setattr(Journal, "add", once)
    return decoded


@pytest.mark.slow
@pytest.mark.parametrize("name", ["expectation", "median"])
def test_a_number_of_a_distribution_is_the_same_line_after_a_kill(
    name: str, small, without_times, monkeypatch, tmp_path: Path
) -> None:
    """Same bytes, and so the same sha256 in the record."""
    settings = [f"decoding={name}", "decoding.num_beams=20", "decoding.batch_size=16"]
    straight = run(small(*settings, f"output_dir={tmp_path / 'straight'}"))
    end_after_a_batch(monkeypatch)
    config = small(*settings, f"output_dir={tmp_path / 'ended'}")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(config)
    again = run(config)
    for file in ("predictions.jsonl", "metrics.jsonl"):
        assert (again.parent / file).read_bytes() == (straight.parent / file).read_bytes()
    assert without_times(again) == without_times(straight)


@pytest.mark.slow
def test_no_batch_is_decoded_twice(small, without_times, monkeypatch, capsys, tmp_path: Path) -> None:
    config = small("decoding.batch_size=7", *BESIDE, f"output_dir={tmp_path / 'straight'}")
    straight = run(config)
    assert not list(straight.parent.glob(".*"))
    decoded = end_after_a_batch(monkeypatch)
    config = small("decoding.batch_size=7", *BESIDE, f"output_dir={tmp_path / 'ended'}")
    for _ in range(GREEDY + BY_EXPECTATION):
        with pytest.raises(KeyboardInterrupt):
            run(config)
    monkeypatch.setattr(Journal, "add", lambda *arguments: pytest.fail("decoded again"))
    again = run(config)
    assert decoded == [7, 7, 7, 7, 2, 16, 14]
    assert "decoding test: 28 were decoded before" in capsys.readouterr().out
    assert without_times(again) == without_times(straight)
    for name in ("predictions.jsonl", "predictions-expectation-20.jsonl", "metrics.jsonl"):
        assert (again.parent / name).read_bytes() == (straight.parent / name).read_bytes()
    assert not list(again.parent.glob(".*"))


def test_batches_that_two_processes_wrote_go_to_their_own_examples(finished: Path, monkeypatch, capsys) -> None:
    """Two decode the same batches beside each other, as where the file system has no locks, and are killed."""
    settings = ["decoding=expectation", "decoding.num_beams=20", "decoding.batch_size=7"]
    path = predict(finished, settings)
    expected = path.read_bytes()
    assert len({row["covered"] for row in read_predictions(path)[1]}) == 30
    with monkeypatch.context() as patch:
        for _ in range(2):
            end_after_a_batch(patch)
            with pytest.raises(KeyboardInterrupt):
                predict(finished, settings)
    (journal,) = finished.glob(".*.answers")
    key, *lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    journal.write_bytes(b"".join([key, lines[0], lines[0], lines[1], lines[1]]))
    assert predict(finished, settings).read_bytes() == expected
    assert "14 were decoded before" in capsys.readouterr().out


def test_a_decoding_of_another_kind_begins_anew(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        end_after_a_batch(patch)
        with pytest.raises(KeyboardInterrupt):
            predict(finished, ["decoding.batch_size=20", "decoding.max_new_tokens=3"])
    said: list[str] = []
    path = predict(finished, ["decoding.batch_size=10", "decoding.max_new_tokens=3"], say=said.append)
    assert not any("already" in line for line in said)
    assert path.is_file()
    assert not list(finished.glob(".*"))
