from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ntl.config import UserError
from ntl.config.data import NoisyNumbersConfig
from ntl.data import base
from ntl.data.base import id_width, numbered
from ntl.data.sets.noisy_numbers import NoisyNumbers


def test_load_has_exactly_three_text_columns(small: NoisyNumbers, data_dir: Path) -> None:
    small.prepare(data_dir)
    data = small.load("validation", data_dir)
    assert data.column_names == ["id", "question", "answer"]
    assert {feature.dtype for feature in data.features.values()} == {"string"}
    assert data.to_list() == list(small.rows("validation", data_dir))


def test_fingerprint_and_targets(small: NoisyNumbers, data_dir: Path) -> None:
    from ntl.system.files import sha256_of

    folder = small.prepare(data_dir)
    fingerprint = small.fingerprint(data_dir)
    assert fingerprint["rows"] == {"train": 30, "validation": 10, "test": 20}
    assert fingerprint["files"] == {
        name: sha256_of(folder / name) for name in ("train.jsonl", "validation.jsonl", "test.jsonl")
    }
    assert small.train_targets(data_dir) == [row["answer"] for row in small.rows("train", data_dir)]


def test_reading_before_preparing_says_what_to_do(small: NoisyNumbers, data_dir: Path) -> None:
    with pytest.raises(
        UserError, match=r"is not prepared: no folder .*; run python scripts/prepare_data.py noisy_numbers"
    ):
        small.rows("train", data_dir)


def test_an_unknown_split(small: NoisyNumbers, data_dir: Path) -> None:
    small.prepare(data_dir)
    with pytest.raises(UserError, match="no split 'dev'; choose one of train, validation, test"):
        small.load("dev", data_dir)


def test_the_folder_is_named_by_the_values() -> None:
    name = NoisyNumbers(NoisyNumbersConfig()).folder_name
    assert name.startswith("noisy_numbers-")
    assert NoisyNumbers(OmegaConf.structured(NoisyNumbersConfig)).folder_name == name
    assert NoisyNumbers(NoisyNumbersConfig(_target_="elsewhere.NoisyNumbers")).folder_name == name
    assert NoisyNumbers(NoisyNumbersConfig(noise_sd=6)).folder_name == name  # int and float of one value
    assert NoisyNumbers(NoisyNumbersConfig(seed=1)).folder_name != name

    class Next(NoisyNumbers):
        version = 2

    assert Next(NoisyNumbersConfig()).folder_name != name


def test_ids() -> None:
    rows = list(numbered("test", [("q", "a"), ("r", "b")], 2))
    assert rows == [
        {"id": "test/00000", "question": "q", "answer": "a"},
        {"id": "test/00001", "question": "r", "answer": "b"},
    ]
    assert [id_width(n) for n in (1, 100_000, 100_001, 1_000_000)] == [5, 5, 6, 6]


@pytest.mark.parametrize(("example_id", "group"), [("interpolate/3x2/00012", "3x2"), ("test/00017", None), ("x", None)])
def test_group(small: NoisyNumbers, example_id: str, group: str | None) -> None:
    assert small.group(example_id) == group


def test_of_many_targets_every_kth_is_taken(
    small: NoisyNumbers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.prepare(data_dir)
    answers = [row["answer"] for row in small.rows("train", data_dir)]
    for most, step in ((30, 1), (29, 2), (15, 2), (7, 5), (1, 30)):
        monkeypatch.setattr(base, "MAX_TARGETS", most)
        assert small.train_targets(data_dir) == answers[::step]


def test_the_key_of_a_split_s_content(small: NoisyNumbers, data_dir: Path) -> None:
    small.prepare(data_dir)
    keys = {small.content_key(split, data_dir) for split in small.splits}
    assert len(keys) == 3
    other = NoisyNumbers(NoisyNumbersConfig(train_rows=30, validation_rows=10, test_rows=20, seed=1))
    other.prepare(data_dir)
    assert other.content_key("train", data_dir) not in keys


def test_digests_are_those_of_the_files_not_of_the_manifest(small: NoisyNumbers, tmp_path: Path) -> None:
    assert small.digests(tmp_path) == {}
    folder = small.prepare(tmp_path)
    assert small.digests(tmp_path) == small.fingerprint(tmp_path)["files"]
    (folder / "test.jsonl").write_text("")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert small.digests(tmp_path) == {**small.fingerprint(tmp_path)["files"], "test.jsonl": empty}
