import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import UserError
from ntl.config.data import SentimentConfig
from ntl.data.prepared import Prepared
from ntl.data.sets.sentiment import Rated, Sentiment, key_of, parse

FEW = {"validation_rows": 4, "test_rows": 4}


def made(folder: Path, **settings: Any) -> dict[str, list[Any]]:
    prepared = Prepared(Sentiment(SentimentConfig(**{**FEW, **settings})), folder)
    prepared.prepare(lambda line: None, download=False)
    return {split: list(prepared.rows(split)) for split in prepared.dataset.splits}


def test_texts_come_with_their_mean_and_their_ratings(data_dir: Path, packages: Callable[[Path], None]) -> None:
    packages(data_dir)
    rows = made(data_dir)
    found = {row["question"]: (row["answer"], json.loads(row["labels"])) for part in rows.values() for row in part}
    assert len(found) == 20
    assert found["Sentiment of Great fun… from -4 to 4:"] == ("3.3", [4, 3, 3])
    assert found["Sentiment of dull! from -4 to 4:"] == ("-2.7", [-3, -3, -2])
    assert found["Sentiment of The vote no 3 from -4 to 4:"] == ("0.0", [0, 0, 1, -1])
    domains = Counter(row["id"].split("/")[1] for part in rows.values() for row in part)
    assert domains == {"movies": 4, "editorials": 6, "tweets": 6, "products": 4}
    assert {
        row["id"].split("/")[1]
        for part in made(data_dir, domain="tweets", test_rows=1, validation_rows=1).values()
        for row in part
    } == {"tweets"}


def test_the_same_sentence_is_in_one_split(data_dir: Path, packages: Callable[[Path], None]) -> None:
    packages(data_dir)
    for seed in range(6):
        rows = made(data_dir, seed=seed)
        keys = {split: {key_of(row["question"]) for row in part} for split, part in rows.items()}
        assert not keys["train"] & keys["test"]
        assert not keys["train"] & keys["validation"]
        assert not keys["test"] & keys["validation"]
    assert key_of("UGH!! I HATE it") == key_of("Ugh. I hate it…") != key_of("I hate it")
    assert key_of(":(") != key_of(":)")


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=30))
def test_the_answer_is_the_mean_to_one_decimal(ratings: list[int]) -> None:
    answer = Rated("", "", ratings).mean
    assert abs(float(answer) - sum(ratings) / len(ratings)) <= 0.05 + 1e-12
    assert answer == f"{float(answer):.1f}"
    assert answer != "-0.0"


def test_what_is_no_such_package_is_one_line(data_dir: Path, packages: Callable[[Path], None]) -> None:
    packages(data_dir)
    whole = (data_dir / "packages" / "vaderSentiment-3.3.2.tar.gz").read_bytes()
    assert len(parse(whole, "s")) == 20
    for damaged in (b"", whole[: len(whole) // 2], b"PK"):
        with pytest.raises(UserError, match=r"^s: no whole source distribution of vaderSentiment with ratings \("):
            parse(damaged, "s")
