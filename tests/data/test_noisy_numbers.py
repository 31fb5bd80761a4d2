from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data.prepared import Prepared
from ntl.data.sets.noisy_numbers import NoisyNumbers, NoisyNumbersConfig


def made(folder: Path, **settings: float) -> Prepared:
    prepared = Prepared(NoisyNumbers(NoisyNumbersConfig(**settings)), folder)
    prepared.prepare()
    return prepared


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return made(tmp_path_factory.mktemp("noisy"))


TRUTHS = {
    "villa 37 4 2 =": "42.8",  # 10 + 10 + 14.8 + 12 - 4
    "flat 10 0 9 =": "0.0",  # 10 + 4 - 18 = -4, clipped
    "flat 11 0 5 =": "4.4",
    "farm 99 9 0 =": "96.6",  # 10 + 20 + 39.6 + 27: the largest
}


def test_truth() -> None:
    dataset = NoisyNumbers(NoisyNumbersConfig())
    assert {question: dataset.truth(question) for question in TRUTHS} == TRUTHS
    for question in ("villa 37 4 2", "barn 37 4 2 =", "villa 07 4 2 =", "villa 37 4 2 = ", "villa 37 4 12 ="):
        with pytest.raises(ValueError, match="is not a question of noisy_numbers"):
            dataset.truth(question)


def test_the_text_is_pinned_and_another_seed_gives_another(whole: Prepared, tmp_path: Path) -> None:
    # If this fails after an update of numpy, its random streams have changed: raise NoisyNumbers.version.
    assert whole.fingerprint()["files"] == {
        "train.jsonl": "5f51fd33c6f08194a241ce3f9531a685f0c1019b8be152050a44189ef77a3270",
        "validation.jsonl": "a4044a9373af7438899f50eb2d24d1b525a9dcd32c0bfcd9c2b5422be951f30b",
        "test.jsonl": "5a7d67426263a95cfaac46d49f93f3f3f790cae2fe542477e01cbf12db5a024a",
    }
    assert whole.fingerprint()["rows"] == {"train": 2000, "validation": 500, "test": 2000}
    other = made(tmp_path, seed=1).fingerprint()["files"]
    assert not set(other.values()) & set(whole.fingerprint()["files"].values())


def test_held_out_questions_are_in_no_other_split(whole: Prepared) -> None:
    train, validation, test = ([row["question"] for row in whole.rows(split)] for split in whole.dataset.splits)
    assert len(set(validation)) == 500
    assert len(set(test)) == 2000
    assert len({*train, *validation, *test}) == len({*train}) + 2500


def test_without_noise_the_answer_is_the_rounded_truth(tmp_path: Path) -> None:
    exact = made(tmp_path, noise_sd=0, train_rows=500)
    for row in exact.rows("train"):
        assert int(row["answer"]) == round(float(exact.dataset.truth(row["question"])))


def test_too_many_held_out_rows(tmp_path: Path) -> None:
    message = r"dataset.test_rows \+ dataset.validation_rows = 18001: there are 36000 questions"
    with pytest.raises(UserError, match=message):
        made(tmp_path, test_rows=18_000, validation_rows=1)
