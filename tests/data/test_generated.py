"""The sets that are drawn row by row: what they have in common, then each by hand."""

import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import UserError, compose
from ntl.data.dataset import Example, TextDataset
from ntl.data.prepared import Prepared
from ntl.data.sets.drawn import Generated, drawn_on, side_of
from ntl.data.sets.generated import (
    WORDS,
    Induction,
    KeyValues,
    Needle,
    Place,
    PolynomialArithmetic,
    StarGraph,
    names_of,
)
from ntl.data.sets.generated import answer_of as polynomial_of
from ntl.data.sets.multiplication import Multiplication
from ntl.data.sets.noisy_numbers import NoisyNumbers
from ntl.tokenizers import train_tokenizer

ROWS = {"train_rows": 400, "validation_rows": 40, "test_rows": 20}
SMALL = {
    "polynomial": PolynomialArithmetic(**ROWS),
    "induction": Induction(**ROWS),
    "star_graph": StarGraph(**ROWS),
    "needle": Needle(**ROWS, lengths=[48, 64], extrapolate_lengths=[128]),
    "key_values": KeyValues(**ROWS),
    "noisy_numbers": NoisyNumbers(),
    "multiplication": Multiplication(
        max_digits=3, extrapolate_digits=4, train_rows=30_000, validation_rows=500, test_rows_per_cell=500
    ),
}


def made(dataset: TextDataset, folder: Path, **changes: object) -> Prepared:
    for name, value in changes.items():
        assert hasattr(dataset, name)
        dataset = replace(dataset, **{name: value})
    prepared = Prepared(dataset, folder)
    prepared.prepare()
    return prepared


@pytest.fixture(scope="module", params=SMALL)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return made(SMALL[request.param], tmp_path_factory.mktemp(request.param))


def test_no_question_of_a_test_is_asked_in_training(small: Prepared) -> None:
    asked = {split: {row["question"] for row in small.rows(split)} for split in small.dataset.all_splits}
    for split in small.dataset.test_splits:
        assert not asked[split] & (asked["train"] | asked["validation"])
        assert len(asked[split]) == len(small.rows(split))


def test_another_seed_gives_another_text(small: Prepared, tmp_path: Path) -> None:
    """That of a seed is pinned in test_token_ids.py."""
    other = made(SMALL[small.dataset.name], tmp_path / "other", seed=1).fingerprint()["files"]
    assert not set(other.values()) & set(small.fingerprint()["files"].values())


def test_more_training_rows_leave_the_tests_as_they_are(small: Prepared, tmp_path: Path) -> None:
    more = made(SMALL[small.dataset.name], tmp_path, train_rows=500)
    for split in small.dataset.test_splits:
        assert list(more.rows(split)) == list(small.rows(split))
    if isinstance(small.dataset, Generated):
        assert list(more.rows("validation")) == list(small.rows("validation"))
        assert list(more.rows("train"))[:400] == list(small.rows("train"))


def test_more_rows_than_there_are_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ntl.data.sets.drawn.TRIES", 200)
    with pytest.raises(UserError, match=r"dataset=key_values: interpolate has \d+ rows, and only \d+ different ones"):
        made(SMALL["key_values"], tmp_path, digits=2, keys=[1], depths=[0], test_rows=800, extrapolate_keys=[2])
    with pytest.raises(UserError, match="too few different questions with these settings: none of 200 is for test"):
        drawn_on("test", lambda: "Tom Hill")


@given(
    side=st.sampled_from(["train", "test"]),
    seed=st.integers(0, 2**32),
    sentences=st.integers(6, 60),
    keys=st.integers(1, 5),
    depth=st.sampled_from([0, 30, 100, None]),
)
def test_the_needle_is_where_its_group_says(side: str, seed: int, sentences: int, keys: int, depth: int | None) -> None:
    dataset = Needle(keys=keys)
    row = dataset.draw(random.Random(seed), side, Place(8 * sentences, depth))
    assert len(row.question.split()) == 8 * sentences
    *told, asked = re.findall(r"[^.?]+[.?]", row.question)
    key = asked.split()[-1].rstrip("?")
    places = [index for index, sentence in enumerate(told) if f" {key} is {row.answer}." in sentence]
    expected = round(100 * places[0] / (sentences - 2)) if depth is None else depth
    assert len(places) == 1
    assert places[0] == pytest.approx(expected / 100 * (sentences - 2), abs=0.51)
    assert row.group == f"{8 * sentences}@{expected}"
    assert len(re.findall(r"\d+", row.question)) == keys
    assert side_of(f"{key} {row.answer}") == side


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("30214=", "30214"),
        ("-30214=", "40563"),  # 7 - 3, 0, 7 - 2, 7 - 1, 7 - 4
        ("--30214=", "30214"),
        ("(30214+51000)=", "11214"),  # 3 + 5 = 8
        ("(11000*11000)=", "12100"),  # (1 + X)^2
        ("(00100*00011)=", "00000"),  # X^2 (X^3 + X^4) = X^5 + X^6
        ("(00100@11000)=", "12100"),  # (1 + X)^2
        ("(00001@11000)=", "14641"),  # (1 + X)^4
        ("(11000@00001)=", "10001"),
        ("(00001@00100)=", "00000"),  # X^8
        ("(10000+-(01000@02000))=", "15000"),  # 1 - 2 X
    ],
)
def test_a_polynomial_by_hand(question: str, answer: str) -> None:
    assert polynomial_of(question) == answer


def test_a_graph_of_the_test_is_in_no_other_order_in_training(tmp_path: Path) -> None:
    """A few hundred graphs there are, so that training has every one of its side, in many orders."""
    sizes = {"train_rows": 3000, "validation_rows": 8, "test_rows": 40}
    prepared = made(SMALL["star_graph"], tmp_path, **sizes, path_length=3, nodes=5)

    def contents(split: str) -> set[str]:
        found = set()
        for row in prepared.rows(split):
            edges = sorted((int(a), int(b)) for a, b in re.findall(r"(\d+)>(\d+)", row["question"]))
            found.add(f"{edges} {row['answer'].split()[-1]}")
        return found

    train, test = contents("train"), contents("test")
    assert not train & test
    assert {side_of(content) for content in test} == {"test"}
    assert len(train) > 80  # of 5! = 120 graphs with a goal three quarters


# ---- stories

NAME = re.compile(rf"\b({'|'.join(WORDS['first'])}) ({'|'.join(WORDS['second'])})\b")


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The data of scale=tiny, with fewer rows."""
    settings = compose(["dataset=induction", "scale=tiny", "dataset.train_rows=3000"]).dataset
    return made(settings, tmp_path_factory.mktemp("induction"))


def test_names_of_the_test_are_new_and_their_parts_are_not(stories: Prepared) -> None:
    rows = [*stories.rows("train"), *stories.rows("test")]
    found = {
        split: {pair for row in rows if row["id"].startswith(split) for pair in NAME.findall(str(row))}
        for split in ("train", "test")
    }
    assert not found["train"] & found["test"]
    draw = Induction(known_names=True).draw
    asked = str([draw(random.Random(seed), "test", 2) for seed in range(50)])
    assert {" ".join(name) for name in NAME.findall(asked)} & {*names_of("train", 60)}
    for part in (0, 1):
        assert {name[part] for name in found["test"]} <= {name[part] for name in found["train"]}


def test_each_part_is_one_token_where_the_tokenizer_is_trained_on_the_stories(stories, tmp_path: Path) -> None:
    size = compose(["dataset=induction", "scale=tiny"]).tokenizer.vocab_size
    texts = [row[part] for row in stories.rows("train") for part in ("question", "answer")]
    tokenizer = train_tokenizer(texts, tmp_path / "trained", vocab_size=size)
    for part in (*WORDS["first"][:40], *WORDS["second"][:40]):
        assert tokenizer.tokenize(part) == [f"\u2581{part}"]
    assert tokenizer.tokenize("thanked Tom Hill") == ["\u2581thanked", "\u2581Tom", "\u2581Hill"]


# ---- products


def operands(row: Example) -> tuple[int, int]:
    match = re.fullmatch(r"What is ([1-9][0-9]*) times ([1-9][0-9]*)\?", row["question"])
    assert match is not None
    return int(match[1]), int(match[2])


def test_ten_digits_do_not_overflow(tmp_path: Path) -> None:
    sizes = {"train_rows": 500, "validation_rows": 100, "test_rows_per_cell": 3}
    huge = made(Multiplication(max_digits=9, extrapolate_digits=10, **sizes), tmp_path)
    rows = [row for split in huge.dataset.all_splits for row in huge.rows(split)]
    for row in rows:
        assert int(row["answer"]) == math.prod(operands(row))
    assert max(len(row["answer"]) for row in rows) >= 19
    assert len(huge.rows("extrapolate")) == 19 * 3


# ---- noisy numbers

TRUTHS = {
    "villa 37 4 2 =": "42.8",  # 10 + 10 + 14.8 + 12 - 4
    "flat 10 0 9 =": "0.0",  # 10 + 4 - 18 = -4, clipped
    "flat 11 0 5 =": "4.4",
    "farm 99 9 0 =": "96.6",  # 10 + 20 + 39.6 + 27: the largest
}


def test_the_noise_free_answer_by_hand() -> None:
    dataset = NoisyNumbers()
    assert {question: dataset.truth(question) for question in TRUTHS} == TRUTHS
    for question in ("villa 37 4 2", "barn 37 4 2 =", "villa 07 4 2 =", "villa 37 4 2 = ", "villa 37 4 12 ="):
        with pytest.raises(ValueError, match="is not a question of noisy_numbers"):
            dataset.truth(question)


def test_without_noise_the_answer_is_the_rounded_truth(tmp_path: Path) -> None:
    exact = made(SMALL["noisy_numbers"], tmp_path, noise_sd=0, train_rows=500)
    for row in exact.rows("train"):
        assert int(row["answer"]) == round(float(exact.dataset.truth(row["question"])))
