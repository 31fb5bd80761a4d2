from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.config.data import MathematicsConfig
from ntl.data import raw
from ntl.data.prepared import Prepared
from ntl.data.sets import deepmind
from ntl.data.sets.deepmind import OFFICIAL_TREE
from ntl.data.sets.mathematics import HARDER, MODULES, TESTS, TRAIN, Mathematics, train_rows

SMALL = {"rows_per_file": 10, "train_share": 0.8, "test_rows_per_file": 3}
NAMES = (*TRAIN, *TESTS["interpolate"], *TESTS["extrapolate"])


def made(folder: Path, **settings: Any) -> Prepared:
    prepared = Prepared(Mathematics(MathematicsConfig(**settings)), folder)
    prepared.prepare()
    return prepared


@pytest.fixture
def tree(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An official tree whose answers are ``<number of the file>.<number of the pair>``; nothing else is asked."""

    def refuse(*_: object, **__: object) -> bool:
        raise AssertionError("files on disk come first")

    monkeypatch.setattr(raw, "download", refuse)
    monkeypatch.setattr(deepmind, "generate", refuse)
    for number, name in enumerate(NAMES):
        path = data_dir / OFFICIAL_TREE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name} {i}?\n-{number}.{i:02d}\n" for i in range(12)))
    return data_dir / OFFICIAL_TREE


def file_and_pair(row: dict) -> tuple[int, int]:
    file, pair = row["answer"].removeprefix("-").split(".")
    return int(file), int(pair)


def test_splits(tree: Path, data_dir: Path) -> None:
    prepared = made(data_dir, **SMALL)
    dataset = prepared.dataset
    counts = {"train": 39 * 8, "validation": 39 * 2, "interpolate": 39, "extrapolate": 21}
    assert prepared.fingerprint()["rows"] == counts
    rows = {split: list(prepared.rows(split)) for split in dataset.splits}
    train, validation = ([file_and_pair(row) for row in rows[split]] for split in ("train", "validation"))
    # Round all files, no pair twice, each file in an order of its own, which is not the file's.
    assert [file for file, _ in train] == list(range(39)) * 8
    assert [file for file, _ in validation] == list(range(39)) * 2
    assert len({*train, *validation}) == 390
    orders = [tuple(pair for file, pair in train if file == number) for number in range(39)]
    assert len(set(orders)) == 39
    # The test files keep their order, one after the other.
    assert [file_and_pair(row) for row in rows["interpolate"]] == [(39 + f, i) for f in range(13) for i in range(3)]
    assert [file_and_pair(row) for row in rows["extrapolate"]] == [(52 + f, i) for f in range(7) for i in range(3)]
    assert rows["train"][40]["id"] == "train/algebra__linear_1d_composed/00040"
    assert rows["interpolate"][22]["id"] == "interpolate/arithmetic__mul/00022"
    assert Counter(dataset.group(row["id"]) for row in rows["train"]) == dict.fromkeys(MODULES, 24)
    assert Counter(dataset.group(row["id"]) for row in rows["extrapolate"]) == dict.fromkeys(HARDER, 3)
    assert all(row["question"].startswith(NAMES[file_and_pair(row)[0]]) for row in rows["validation"])


def test_fewer_rows_are_a_prefix_and_seeds_differ(tree: Path, data_dir: Path) -> None:
    def train(**values: int) -> list[str]:
        prepared = made(data_dir, **{"rows_per_file": 10, "test_rows_per_file": 3, **values})
        return [row["answer"] for row in prepared.rows("train")]

    full = train()
    assert len(full) == 39 * 9
    assert train(rows_per_file=5) == full[: 39 * 4]
    assert train(seed=1) != full


def test_the_consent_to_generate_changes_no_row() -> None:
    asked = Mathematics(MathematicsConfig(**SMALL, allow_generation=True))
    assert asked.folder_name == Mathematics(MathematicsConfig(**SMALL)).folder_name
    assert "allow_generation" not in asked.values


def test_the_papers_counts() -> None:
    config = MathematicsConfig()
    assert (train_rows(config), config.rows_per_file - train_rows(config)) == (666_332, 334)
    assert (39 * train_rows(config), 39 * 334) == (25_986_948, 13_026)
    assert (13 * config.test_rows_per_file, 7 * config.test_rows_per_file) == (130_000, 70_000)
    assert (len(MODULES), len(HARDER), len(TRAIN), len(set(NAMES))) == (13, 7, 39, 59)
    assert train_rows(MathematicsConfig(rows_per_file=1000, train_share=0.29)) == 290


@pytest.mark.parametrize(("share", "kind"), [(1.0, "validation"), (0.01, "training")])
def test_a_share_that_leaves_nothing(data_dir: Path, share: float, kind: str) -> None:
    with pytest.raises(UserError, match=f"train_share={share} of dataset.rows_per_file=10 leaves no row for {kind}"):
        made(data_dir, rows_per_file=10, train_share=share)


@pytest.mark.parametrize("answer", ["1/2", "1e3", "+1", "²"])
def test_an_answer_that_is_no_number_is_named_with_its_line(tree: Path, data_dir: Path, answer: str) -> None:
    path = tree / TESTS["extrapolate"][3]
    lines = path.read_text().split("\n")
    lines[5] = answer
    path.write_text("\n".join(lines))
    with pytest.raises(UserError) as caught:
        made(data_dir, **SMALL)
    assert f"{TESTS['extrapolate'][3]}:6: the answer {answer!r} is not a number" in str(caught.value)
    assert not any("mathematics-" in path.name and path.is_dir() for path in data_dir.iterdir())


@pytest.mark.data
def test_the_real_files(data_root: Path, tmp_path: Path) -> None:
    prepared = made(tmp_path, rows_per_file=1000, train_share=0.98, test_rows_per_file=1000)
    fingerprint = prepared.fingerprint()
    assert fingerprint["rows"] == {"train": 38_220, "validation": 780, "interpolate": 13_000, "extrapolate": 7_000}
    assert {name: digest[:16] for name, digest in fingerprint["files"].items()} == REAL
    assert prepared.manifest["source"]["kind"] == "regenerated archive"
    assert prepared.dataset.group(prepared.rows("interpolate")[12_999]["id"]) == "numbers__round_number_composed"


REAL = {
    "train.jsonl": "3a38f1314af067f9",
    "validation.jsonl": "6bfa7bc7b8fce1a4",
    "interpolate.jsonl": "1aa0d03bfb4dbe32",
    "extrapolate.jsonl": "ac4d63a86e2d98da",
}
