"""DeepMind mathematics: the paper's 13 modules, and the sums of its ablations."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.data import raw
from ntl.data.dataset import TextDataset
from ntl.data.prepared import Prepared
from ntl.data.sets.mathematics import (
    HARDER,
    MODULES,
    OFFICIAL_TREE,
    SUMS_TESTS,
    SUMS_TRAIN,
    TESTS,
    TRAIN,
    Arithmetic,
    Mathematics,
    answer_of,
)

SMALL: dict[str, Any] = {"rows_per_file": 10, "train_share": 0.8, "test_rows_per_file": 3}
SMALL_SUMS: dict[str, Any] = {"train_rows_per_difficulty": 40, "validation_rows_per_difficulty": 5, "test_rows": 10}
SUMS_FILES = [file for files in SUMS_TESTS.values() for file in files]
NAMES = (*TRAIN, *TESTS["interpolate"], *TESTS["extrapolate"])


def made(dataset: TextDataset, folder: Path) -> Prepared:
    prepared = Prepared(dataset, folder)
    prepared.prepare()
    return prepared


def mathematics(folder: Path, **settings: Any) -> Prepared:
    return made(Mathematics(**settings), folder)


def arithmetic(folder: Path, **settings: Any) -> Prepared:
    return made(Arithmetic(**settings), folder)


@pytest.fixture
def folder(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an official tree that is to be made; nothing else is asked."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("files on disk come first")

    monkeypatch.setattr(raw, "download", refuse)
    monkeypatch.setattr("ntl.data.sets.mathematics.generate", refuse)
    for name in (*NAMES, *SUMS_FILES):
        (data_dir / OFFICIAL_TREE / name).parent.mkdir(parents=True, exist_ok=True)
    return data_dir / OFFICIAL_TREE


@pytest.fixture
def tree(folder: Path) -> Path:
    """Answers are ``<number of the file>.<number of the pair>``."""
    for number, name in enumerate(NAMES):
        (folder / name).write_text("".join(f"{name} {i}?\n-{number}.{i:02d}\n" for i in range(12)))
    return folder


@pytest.fixture
def sums(folder: Path) -> Path:
    """Sums a + b whose a names the file and whose b the pair."""
    for number, name in enumerate((*SUMS_TRAIN, *SUMS_FILES), start=1):
        (folder / name).write_text("".join(f"Calculate {number}000 + {i}.\n{number * 1000 + i}\n" for i in range(50)))
    return folder


def file_and_pair(row: dict) -> tuple[int, int]:
    file, pair = row["answer"].removeprefix("-").split(".")
    return int(file), int(pair)


def test_rows_go_round_the_files_and_tests_keep_their_order(tree: Path, data_dir: Path) -> None:
    prepared = mathematics(data_dir, **SMALL)
    dataset = prepared.dataset
    counts = {"train": 39 * 8, "validation": 39 * 2, "interpolate": 39, "extrapolate": 21}
    assert prepared.fingerprint()["rows"] == counts
    rows = {split: list(prepared.rows(split)) for split in dataset.all_splits}
    train, validation = ([file_and_pair(row) for row in rows[split]] for split in ("train", "validation"))
    assert [file for file, _ in train] == list(range(39)) * 8
    assert [file for file, _ in validation] == list(range(39)) * 2
    assert len({*train, *validation}) == 390
    # Each file in an order of its own, which is not the file's.
    assert len({tuple(pair for file, pair in train if file == number) for number in range(39)}) == 39
    assert [file_and_pair(row) for row in rows["interpolate"]] == [(39 + f, i) for f in range(13) for i in range(3)]
    assert [file_and_pair(row) for row in rows["extrapolate"]] == [(52 + f, i) for f in range(7) for i in range(3)]
    assert rows["train"][40]["id"] == "train/algebra__linear_1d_composed/00040"
    assert rows["interpolate"][22]["id"] == "interpolate/arithmetic__mul/00022"
    assert Counter(dataset.group(row["id"]) for row in rows["extrapolate"]) == dict.fromkeys(HARDER, 3)
    assert all(row["question"].startswith(NAMES[file_and_pair(row)[0]]) for row in rows["validation"])


def test_a_test_needs_no_training_files(sums: Path, data_dir: Path) -> None:
    dataset = Arithmetic(**SMALL_SUMS)
    for name in SUMS_TRAIN:
        (sums / name).rename(sums / f"{name}.away")
    (sums / SUMS_TESTS["extrapolate"][0]).rename(sums / "away")
    alone = made(dataset.alone("interpolate"), data_dir)
    found = list(alone.rows("interpolate"))
    for name in SUMS_TRAIN:
        (sums / f"{name}.away").rename(sums / name)
    (sums / "away").rename(sums / SUMS_TESTS["extrapolate"][0])
    assert found == list(made(dataset, data_dir).rows("interpolate"))
    assert alone.fingerprint()["rows"] == {"interpolate": 10}
    assert list(made(dataset.alone("train"), data_dir).rows("train")) == list(made(dataset, data_dir).rows("train"))


def test_fewer_rows_are_a_prefix_and_seeds_differ(tree: Path, data_dir: Path) -> None:
    def train(**values: int) -> list[str]:
        prepared = mathematics(data_dir, **{"rows_per_file": 10, "test_rows_per_file": 3, **values})
        return [row["answer"] for row in prepared.rows("train")]

    full = train()
    assert len(full) == 39 * 9
    assert train(rows_per_file=5) == full[: 39 * 4]
    assert train(seed=1) != full


def test_the_papers_counts() -> None:
    rows, held_out, test_rows = Mathematics().counts()
    assert (39 * rows, 39 * held_out, 13 * test_rows, 7 * test_rows) == (25_986_948, 13_026, 130_000, 70_000)
    assert (len(MODULES), len(HARDER), len(TRAIN), len(set(NAMES))) == (13, 7, 39, 59)
    assert Mathematics(rows_per_file=1000, train_share=0.29).counts()[0] == 290
    fault = Mathematics().fault
    assert [fault("", answer) for answer in ("-1.5", "1/2")] == [None, (2, "the answer '1/2' is not a number")]
    # The consent to generate changes no row.
    asked = Mathematics(allow_generation=True)
    assert asked.folder_name == Mathematics().folder_name


@pytest.mark.parametrize(
    ("name", "line", "text", "message"),
    [
        (SUMS_TRAIN[1], 100, "7", "100: the answer '7' is wrong, 2049 is right"),
        (SUMS_FILES[0], 3, "Calculate 1 * 2.", "3: 'Calculate 1 * 2.': not a sum"),
    ],
)
def test_a_wrong_sum_is_named_with_its_line(
    sums: Path, data_dir: Path, name: str, line: int, text: str, message: str
) -> None:
    lines = (sums / name).read_text().split("\n")
    lines[line - 1] = text
    (sums / name).write_text("\n".join(lines))
    with pytest.raises(UserError) as caught:
        arithmetic(data_dir, **SMALL_SUMS | {"train_rows_per_difficulty": 45})
    assert f"{name}:{message}" in str(caught.value)
    assert not any("arithmetic-" in path.name and path.is_dir() for path in data_dir.iterdir())


@pytest.mark.data
@pytest.mark.slow
def test_the_real_files(data_root: Path, tmp_path: Path) -> None:
    prepared = mathematics(tmp_path, rows_per_file=1000, train_share=0.98, test_rows_per_file=1000)
    fingerprint = prepared.fingerprint()
    assert fingerprint["rows"] == {"train": 38_220, "validation": 780, "interpolate": 13_000, "extrapolate": 7_000}
    assert {name: digest[:16] for name, digest in fingerprint["files"].items()} == {
        "train.jsonl": "3a38f1314af067f9",
        "validation.jsonl": "6bfa7bc7b8fce1a4",
        "interpolate.jsonl": "1aa0d03bfb4dbe32",
        "extrapolate.jsonl": "ac4d63a86e2d98da",
    }


@pytest.mark.slow
@pytest.mark.data
def test_the_real_sums(data_root: Path, tmp_path: Path) -> None:
    prepared = arithmetic(tmp_path)
    fingerprint = prepared.fingerprint()
    assert fingerprint["rows"] == {"train": 99_999, "validation": 3_000, "interpolate": 10_000, "extrapolate": 10_000}
    assert fingerprint["files"] == {
        "train.jsonl": "a9836f48bd4957cffe66ba59feecf3493b1ee56fc5b8d0c880fe9e65ca9dd708",
        "validation.jsonl": "4dd8bcf7032b14184c9a33deeb19bdc66a9efa33fcaaa60321a7008077fb3d16",
        "interpolate.jsonl": "b861fda7961a0a1609e042cabae98e780915eae0224222a2df6838419da737f3",
        "extrapolate.jsonl": "fa8a64eaba431d4961d58dde2ba28e1a910509ba9d7ad035917764fe8147c595",
    }
    train = {row["question"] for row in prepared.rows("train")}
    assert not train & {row["question"] for row in prepared.rows("interpolate")}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Calculate -13 + (10 - 5) + 4.", "-4"),
        ("What is the value of -2 + 9 - (5 - 0)?", "2"),
        ("What is 3 + (-11 - -3) + (-10 - -7) + (-83 - 6)?", "-97"),
        ("Evaluate 7 - 9 - 118 - (0 + 1 - 10 - ((-8 - -9) + 8 + -14) - (-2 + 0)).", "-118"),
        ("-48 - (-10 - ((-12 - -18) + -18 + 4))", "-46"),
        ("1 - -(2 - 3) - 99999999999999999999", "-99999999999999999999"),
    ],
)
def test_answers(question: str, answer: str) -> None:
    assert answer_of(question) == answer
    assert Arithmetic().shortcut("1 - (2 - 3)") == "-4"


@pytest.mark.parametrize("question", ["What is 1 + 2.", "1 +", "(1 + 2", "1 * 2", "1(2)"])
def test_anything_else_is_refused(question: str) -> None:
    with pytest.raises(ValueError, match="not a sum"):
        answer_of(question)
