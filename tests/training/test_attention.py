"""`scripts/attention.py`: its shares by hand, and of a trained run."""

import csv
import json
from pathlib import Path

import pytest
import torch

from ntl.config import UserError
from ntl.training.attention import answer_in_question, main, relative_attention

UNIFORM = torch.tensor([[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [1 / 4] * 4])


def _ids(*places: int) -> torch.Tensor:
    return torch.tensor([[place in places for place in range(4)]])


def test_uniform_attention_is_one() -> None:
    for keys in ((0,), (1, 2), (3,), (0, 1, 2, 3)):
        found, expected = relative_attention(UNIFORM[None, None], _ids(1, 2, 3), _ids(*keys), _ids(0, 1, 2, 3))
        assert found == pytest.approx(expected)


def test_attention_by_hand() -> None:
    """Two heads; position 3 asks; token 1 gets 0.8 and 0.4 of its attention, of three tokens that are not padding."""
    heads = UNIFORM.repeat(1, 2, 1, 1)
    heads[0, 0, 3] = torch.tensor([0.0, 0.8, 0.1, 0.1])
    heads[0, 1, 3] = torch.tensor([0.0, 0.4, 0.5, 0.1])
    found, expected = relative_attention(heads, _ids(0, 3), _ids(1), _ids(1, 2, 3))
    assert (found, expected) == pytest.approx((0.6, 1 / 3))  # position 0 cannot look at token 1


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [([5, 1, 2, 7, 1, 2], [1, 2], [1, 2, 4, 5]), ([1, 1, 1], [1, 1], [0, 1, 2]), ([5, 1], [1, 2], []), ([5], [], [])],
)
def test_where_the_answer_stands(question: list[int], answer: list[int], expected: list[int]) -> None:
    assert answer_in_question(question, answer) == expected


def test_a_run(trained_once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without a mask token: masked are the positions that would be, as they are."""
    files = ["--out", str(tmp_path / "a.csv"), "--figure", str(tmp_path / "a.svg")]
    assert main([str(trained_once), "--rows", "20", "--json", *files]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["layer"] for row in rows] == [0, 1]
    assert {(row["trained"], row["examples"]) for row in rows} == {("no masks", 20)}
    assert rows[0]["masked"] == rows[1]["masked"] == pytest.approx(1.0, abs=0.5)
    assert [row["layer"] for row in csv.DictReader((tmp_path / "a.csv").open())] == ["0", "1"]
    assert ": masked tokens" in (tmp_path / "a.svg").read_text()
    assert main([str(trained_once), "--rows", "2"]) == 0
    assert "all layers: masked" in capsys.readouterr().out


def test_wrong_uses(trained_once: Path) -> None:
    for words, line in (
        (["--rows", "0"], "at least one row"),
        (["--fraction", "1"], "between 0 and 1"),
        (["--split", "dev"], "--split dev: choose one of train, validation, test"),
    ):
        with pytest.raises(UserError, match=line):
            main([str(trained_once), *words])
    with pytest.raises(UserError, match="no_such_run"):
        main(["no_such_run"])
