"""What the sets that are drawn row by row have in common."""

from collections import Counter
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.generated import InductionConfig, KeyValuesConfig, NeedleConfig, PolynomialConfig, StarGraphConfig
from ntl.data import generated
from ntl.data.generated import Generated, side_of
from ntl.data.prepared import Prepared
from ntl.data.sets.induction import Induction
from ntl.data.sets.key_values import KeyValues
from ntl.data.sets.needle import Needle
from ntl.data.sets.polynomial import PolynomialArithmetic
from ntl.data.sets.star_graph import StarGraph

ROWS = {"train_rows": 400, "validation_rows": 40, "test_rows": 20}
SMALL = {
    "polynomial": PolynomialArithmetic(PolynomialConfig(**ROWS)),
    "induction": Induction(InductionConfig(**ROWS)),
    "star_graph": StarGraph(StarGraphConfig(**ROWS)),
    "needle": Needle(NeedleConfig(**ROWS, lengths=[48, 64], extrapolate_lengths=[128])),
    "key_values": KeyValues(KeyValuesConfig(**ROWS)),
}
# sha256 of test and train files. If they change, rows of earlier runs cannot be made again: raise the set's version.
PINNED = {
    "polynomial": {
        "extrapolate": "29c1c0fa014353d0",
        "interpolate": "b88d17af2acce52f",
        "train": "09eb7f8fa188b8e8",
        "validation": "0803838726561a0c",
    },
    "induction": {
        "test": "e275c67d1a6b7e54",
        "train": "e6d08ae7c404b8cf",
        "validation": "c0165e697b872521",
    },
    "star_graph": {
        "test": "a45bb8fb8f32892b",
        "train": "f350db72696c9255",
        "validation": "12fb09ab91ec5454",
    },
    "needle": {
        "extrapolate": "a65cbae0b2c8ebeb",
        "interpolate": "b3b3d172055ba23d",
        "train": "00e5106c4cda1c73",
        "validation": "b4b8daf689c40ea9",
    },
    "key_values": {
        "extrapolate": "08ffc765ba795a01",
        "interpolate": "722c0ae9dfdbb5ce",
        "train": "941a9551b6d67f09",
        "validation": "7c337b7a324386a3",
    },
}
# Groups of each test split.
GROUPS = {
    "polynomial": {"interpolate": {*"12345"}, "extrapolate": {"6", "7", "8", "9", "10"}},
    "induction": {"test": {"2", "3", "4"}},
    "star_graph": {"test": {None}},
    "needle": {
        "interpolate": {f"{length}@{depth}" for length in (48, 64) for depth in (0, 25, 50, 75, 100)},
        "extrapolate": {f"128@{depth}" for depth in (0, 25, 50, 75, 100)},
    },
    "key_values": {
        "interpolate": {f"{keys}@{depth}" for keys in (2, 4, 8, 16) for depth in (0, 25, 50, 75, 100)},
        "extrapolate": {f"32@{depth}" for depth in (0, 25, 50, 75, 100)},
    },
}


def made(dataset: Generated, folder: Path, **changes: object) -> Prepared:
    for name, value in changes.items():
        assert hasattr(dataset.config, name)
        dataset = type(dataset)(type(dataset.config)(**{**dataset.values, name: value}))
    prepared = Prepared(dataset, folder)
    prepared.prepare(lambda line: None)
    return prepared


@pytest.fixture(scope="module", params=SMALL)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return made(SMALL[request.param], tmp_path_factory.mktemp(request.param))


def test_every_row_is_right_and_its_groups_are_equally_large(small: Prepared) -> None:
    dataset = small.dataset
    for split in dataset.splits:
        rows = list(small.rows(split))
        assert [dataset.fault(row["question"], row["answer"]) for row in rows] == [None] * len(rows)
        assert [row["id"].rpartition("/")[2] for row in rows] == [f"{index:05d}" for index in range(len(rows))]
        if split in dataset.test_splits:
            counts = Counter(dataset.group(row["id"]) for row in rows)
            assert counts == dict.fromkeys(GROUPS[dataset.name][split], 20)
        else:
            assert len(rows) == ROWS[f"{split}_rows"]


def test_a_wrong_answer_and_another_question_are_faults(small: Prepared) -> None:
    rows = list(small.rows(small.dataset.test_splits[0]))[:20]
    other = {row["answer"] for row in rows}
    for row in rows:
        for answer in ({*other, "", "1 2"} - {row["answer"]}) if small.dataset.name != "induction" else {"Nobody", ""}:
            assert small.dataset.fault(row["question"], answer) is not None
        assert small.dataset.fault("What is 2 times 3?", row["answer"]) is not None


def test_no_question_of_a_test_is_asked_in_training(small: Prepared) -> None:
    asked = {split: {row["question"] for row in small.rows(split)} for split in small.dataset.splits}
    for split in small.dataset.test_splits:
        assert not asked[split] & (asked["train"] | asked["validation"])
        assert len(asked[split]) == len(small.rows(split))


def test_twice_the_same_and_another_seed_another_text(small: Prepared, tmp_path: Path) -> None:
    assert made(SMALL[small.dataset.name], tmp_path / "again").fingerprint() == small.fingerprint()
    other = made(SMALL[small.dataset.name], tmp_path / "other", seed=1).fingerprint()["files"]
    assert not set(other.values()) & set(small.fingerprint()["files"].values())


def test_the_text_is_pinned(small: Prepared) -> None:
    digests = {file.partition(".")[0]: digest[:16] for file, digest in small.digests().items()}
    assert digests == PINNED[small.dataset.name]


def test_more_training_rows_leave_the_tests_as_they_are(small: Prepared, tmp_path: Path) -> None:
    more = made(SMALL[small.dataset.name], tmp_path, train_rows=500)
    changed = {file for file, digest in more.digests().items() if small.digests()[file] != digest}
    assert changed == {"train.jsonl"}
    assert list(more.rows("train"))[:400] == list(small.rows("train"))


def test_three_quarters_are_for_training() -> None:
    counts = Counter(side_of(str(number)) for number in range(8000))
    assert [side_of("lamp 4821"), side_of("Tom Hill")] == ["train", "train"]
    assert counts["train"] == pytest.approx(6000, abs=150)
    assert counts["validation"] == pytest.approx(1000, abs=100)
    assert counts["test"] == pytest.approx(1000, abs=100)


@pytest.mark.parametrize(
    ("name", "changes", "line"),
    [
        ("polynomial", {"extrapolate_operations": 5}, "dataset.extrapolate_operations=5: must be above dataset.max_op"),
        ("star_graph", {"nodes": 8}, "dataset.nodes=8: 2 paths of 5 nodes need 9 labels; raise it."),
        (
            "needle",
            {"lengths": [100]},
            r"dataset.lengths=\[100\]: must be different multiples of 8 of 8 to 131,072, at least",
        ),
        ("needle", {"lengths": [256]}, r"dataset.extrapolate_lengths=\[128\]: must be above dataset.lengths=\[256\]"),
        ("needle", {"keys": 6}, "dataset.lengths: 48 words are 6 sentences, too few for the question and dataset"),
        ("needle", {"depths": [0, 101]}, r"dataset.depths=\[0,101\]: must be different whole numbers of 0 to 100"),
        ("key_values", {"keys": []}, r"dataset.keys=\[\]: must be different whole numbers of 1 to 64, at least one"),
        (
            "key_values",
            {"extrapolate_keys": [65]},
            r"dataset.extrapolate_keys=\[65\]: must be different whole numbers of 1 to",
        ),
        ("key_values", {"depths": [50, 50]}, r"dataset.depths=\[50,50\]: must be different"),
    ],
)
def test_settings_that_do_not_fit(name: str, changes: dict, line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=line):
        made(SMALL[name], tmp_path, **changes)
    assert not list(tmp_path.glob(f"{name}-*"))


def test_more_rows_than_there_are_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "TRIES", 200)
    with pytest.raises(UserError, match=r"dataset=key_values: interpolate has \d+ rows, and only \d+ different ones"):
        made(SMALL["key_values"], tmp_path, digits=2, keys=[1], depths=[0], test_rows=800, extrapolate_keys=[2])
    with pytest.raises(UserError, match="too few different questions with these settings: none of 200 is for test"):
        generated.drawn_on("test", lambda: "Tom Hill")
