import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config.data import MultiRCConfig, NoisyNumbersConfig, RJokesConfig
from ntl.data import card
from ntl.data.card import Lengths, describe, escaped, markdown, show, table
from ntl.data.dataset import Log, Material, TextDataset, dataset_named, numbered
from ntl.data.prepared import Prepared
from ntl.data.sets.multirc import MultiRC
from ntl.data.sets.rjokes import RJokes

PAIRS = {
    "train": [("a b", "1"), ("c", "12"), ("a b", "1"), ("a b", "x | 3"), ("long long question", "-1,234.5")],
    "test": [("c", "7"), ("d\n`|`\x1b[31m é", "no")],
}


class Pairs(TextDataset):
    splits = ("train", "test")
    test_splits = ("test",)

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        return Material({split: numbered(split, pairs, len(pairs)) for split, pairs in PAIRS.items()})


class Words:
    """A token for every word."""

    def __call__(self, texts: list[str], add_special_tokens: bool) -> dict[str, list[list[str]]]:
        assert not add_special_tokens
        return {"input_ids": [text.split() for text in texts]}


@pytest.fixture
def pairs(data_dir: Path) -> Prepared:
    prepared = Prepared(Pairs(NoisyNumbersConfig(name="pairs")), data_dir)
    prepared.prepare()
    return prepared


@pytest.fixture
def described(pairs: Prepared) -> card.Card:
    return describe(pairs, tokenizer=Words(), tokenizer_name="words", max_length=3)


def test_figures_by_hand(described: card.Card) -> None:
    train = described.splits["train"]
    assert (train.rows, train.numeric, train.digits) == (5, 4 / 5, (1 + 2 + 1 + 1 + 5) / 5)
    assert train.lengths["question characters"] == Lengths(3, 18, 18)
    assert train.lengths["question words"] == Lengths(2, 3, 3)
    assert train.lengths["question tokens"] == Lengths(3, 4, 4)
    assert train.lengths["answer characters"] == Lengths(2, 8, 8)
    assert train.lengths["answer tokens"] == Lengths(2, 4, 4)
    assert train.truncated == 1 / 5
    assert (train.repeated_questions, train.repeated_examples) == (2, 1)
    assert train.shared == {"test": 1}
    test = described.splits["test"]
    assert (test.rows, test.numeric, test.shared) == (2, 0.5, {"train": 1})


def test_percentiles_are_values_that_occur() -> None:
    assert Lengths.of(np.arange(1, 101)) == Lengths(50, 95, 100)
    assert Lengths.of(np.array([7])) == Lengths(7, 7, 7)
    assert str(Lengths(1, 20, 3000)) == "1 / 20 / 3,000"


def test_the_table_is_rectangular(described: card.Card) -> None:
    cells = table(described)
    assert {len(row) for row in cells} == {3}
    assert cells[0] == ["", "train", "test"]
    assert ["rows", "5", "2"] in cells
    assert ["numeric targets", "80.0%", "50.0%"] in cells
    assert ["questions above 3 tokens", "20.0%", "50.0%"] in cells
    assert ["questions also in train", "", "1"] in cells
    assert ["questions also in test", "1", ""] in cells


def test_without_a_tokenizer_there_are_no_tokens(pairs: Prepared) -> None:
    described = describe(pairs)
    assert described.splits["train"].truncated is None
    assert not any("token" in row[0] for row in table(described))


def test_a_large_split_is_sampled_for_tokens(pairs: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "TOKEN_ROWS", 2)
    train = describe(pairs, tokenizer=Words(), max_length=3).splits["train"]
    # Every third row: "a b" and "a b", "1" and "x | 3".
    assert train.lengths["question tokens"] == Lengths(3, 3, 3)
    assert train.lengths["answer tokens"] == Lengths(2, 4, 4)
    assert train.lengths["question words"].max == 3


def test_samples_are_one_printable_line() -> None:
    assert escaped('a\nb\t\x1b[31m\x7f \u202e"é"') == 'a\\nb\\t\\u001b[31m\\u007f \\u202e\\"\\u00e9\\"'
    assert escaped("x" * 160) == "x" * 160
    assert escaped("x" * 161) == "x" * 157 + "..."


def test_markdown(described: card.Card, data_dir: Path) -> None:
    text = markdown(described)
    assert text.startswith("## pairs\n\n- tokens: words\n\n|  | train | test |\n|---|---:|---:|\n| rows | 5 | 2 |\n")
    assert text.endswith("\n\n- `a b` → `1`\n- `c` → `12`\n- `a b` → `1`\n")
    json.dumps(asdict(described))


def test_a_backtick_does_not_end_a_sample(described: card.Card) -> None:
    described.samples[:] = [(escaped("`|`\n"), "1")]
    assert markdown(described).endswith("- `'|'\\n` → `1`\n")


def test_nothing_of_a_private_data_set_is_in_its_markdown(release: Any, data_dir: Path) -> None:
    import gzip

    secret = gzip.compress(b"".join(b"%d\tsecret joke %d\n" % (i % 12, i) for i in range(50)))
    release(RJokes, validation=secret, test=secret)
    jokes = Prepared(RJokes(RJokesConfig()), data_dir)
    jokes.prepare(download=False)
    described = describe(jokes)
    assert described.samples[0] == ("secret joke 0", "0")
    text = markdown(described)
    assert "secret" not in text
    assert str(data_dir) not in text
    assert "| questions also in test | 50 |  |" in text
    assert "licence: Reddit" in text
    question = {"idx": 0, "question": "q", "answers": [{"text": "a", "label": 1}]}
    row = json.dumps({"passage": {"text": "secret", "questions": [question]}}).encode()
    release(MultiRC, train=row, validation=row)
    passages = Prepared(MultiRC(MultiRCConfig()), data_dir)
    passages.prepare(download=False)
    assert not describe(passages).publishable


def test_on_a_terminal(described: card.Card, capsys: pytest.CaptureFixture[str]) -> None:
    described.samples[:] = [("[red]x[/red]", "[1]")]
    show(described)
    text = capsys.readouterr().out
    assert "1. [red]x[/red]  →  [1]" in text
    assert "tokens: words" in text
    assert "numeric targets" in text


def test_the_smallest_data_set_of_the_project(small: Prepared) -> None:
    small.prepare()
    described = describe(small)
    assert described.publishable
    assert described.splits["test"].numeric == 1
    assert described.splits["test"].digits == 2
    assert list(described.splits) == ["train", "validation", "test"]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["gsm8k", "multirc"])
def test_the_published_cards_are_those_of_the_real_files(name: str, data_root: Path, tmp_path: Path) -> None:
    from ntl.tokenizers import load_tokenizer

    prepared = Prepared(dataset_named(name), tmp_path)
    prepared.prepare(download=False)
    tokenizer = load_tokenizer(str(data_root / "tokenizers" / "t5"), kind="digit")
    described = describe(prepared, tokenizer=tokenizer, tokenizer_name="t5, digit", max_length=512)
    published = (Path(__file__).parents[2] / "data" / "README.md").read_text(encoding="utf-8")
    assert markdown(described).replace("## ", "### ", 1) in published
