"""Where a run's tokenizer comes from."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from ntl.config import compose
from ntl.training.parts import TRAINING_ROWS, tokenizer_for

ROWS = [{"question": f"What is {n} times {n + 1}?", "answer": str(n * (n + 1))} for n in range(10, 60)]


def _never() -> list[dict[str, str]]:
    raise AssertionError("nothing is to be trained here")


def test_one_is_trained_on_the_text_and_kept(tmp_path: Path) -> None:
    config = compose(["dataset=multiplication"])
    tokenizer = tokenizer_for(config, lambda: ROWS, "key", tmp_path)
    ids = tokenizer("What is 10 times 11?", add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    tokens = ["▁What", "▁is", "▁", "1", "0", "▁times", "▁", "1", "1", "?"]
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    (folder,) = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert folder.name.startswith("multiplication-digit-")
    again = tokenizer_for(config, _never, "key", tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab()


def test_what_a_killed_training_left_is_swept_a_day_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_, **__: None)
        tokenizer_for(compose(["dataset=multiplication"]), lambda: ROWS, "key", tmp_path)
    (left,) = tmp_path.glob(".*")
    for key, days in (("second", 0.9), ("third", 1.1)):
        for path in (*left.rglob("*"), left):
            os.utime(path, (time.time() - days * 86_400,) * 2)
        tokenizer_for(compose(["dataset=multiplication"]), lambda: ROWS, key, tmp_path)
        assert left.exists() is (key == "second")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("key", "override"), [("other", "seed=1"), ("key", "tokenizer=default"), ("key", "tokenizer.vocab_size=40")]
)
def test_other_text_or_settings_train_another(key: str, override: str, tmp_path: Path) -> None:
    tokenizer_for(compose(["dataset=multiplication"]), lambda: ROWS, "key", tmp_path)
    asked = []
    tokenizer_for(compose(["dataset=multiplication", override]), lambda: asked.append(1) or ROWS, key, tmp_path)
    assert asked == [1]


def test_a_tokenizer_takes_its_places_from_the_config(tmp_path: Path) -> None:
    plain = tokenizer_for(compose(["dataset=multiplication", "model=rt_tiny"]), lambda: ROWS, "key", tmp_path)
    more = compose(["dataset=multiplication", "model=rt_tiny", "tokenizer.max_place=21"])
    assert len(tokenizer_for(more, _never, "key", tmp_path)) == len(plain) + 20


def test_the_seed_trains_no_other(tmp_path: Path) -> None:
    tokenizer_for(compose(["dataset=multiplication"]), lambda: ROWS, "key", tmp_path)
    tokenizer_for(compose(["dataset=multiplication", "seed=2", "loss=ce"]), _never, "key", tmp_path)


def test_questions_and_answers_are_read_up_to_a_number_of_rows(tmp_path: Path) -> None:
    rows = [{"question": "a", "answer": "b"}] * TRAINING_ROWS + [{"question": "c", "answer": "c"}]
    vocab = tokenizer_for(compose(["dataset=multiplication"]), lambda: rows, "key", tmp_path).get_vocab()
    letters = {piece.lstrip("▁") for piece in vocab}
    assert {"a", "b"} <= letters
    assert "c" not in letters


def test_paper_compat_is_another_reading_by_the_same_tokenizer(tmp_path: Path) -> None:
    config = compose(["dataset=multiplication", "model=xval_tiny"])
    corrected: Any = tokenizer_for(config, lambda: ROWS, "key", tmp_path)
    config = compose(["dataset=multiplication", "model=xval_tiny", "paper_compat=true"])
    paper: Any = tokenizer_for(config, _never, "key", tmp_path)
    assert (corrected.paper_compat, paper.paper_compat) == (False, True)
    assert corrected("-12")["number_values"] == [-12, 1]
    assert paper("-12")["number_values"][-2:] == [12, 1]
    assert corrected.get_vocab() == paper.get_vocab()


def test_a_named_folder_wins_over_the_models(tmp_path: Path) -> None:
    config = compose(["dataset=multiplication"])
    mine = tokenizer_for(config, lambda: ROWS, "key", tmp_path / "cache")
    mine.save_pretrained(tmp_path / "mine")
    (tmp_path / "model").mkdir()
    config.tokenizer.path, config.model.path = str(tmp_path / "mine"), str(tmp_path / "model")
    assert tokenizer_for(config, _never, "", tmp_path).get_vocab() == mine.get_vocab()
    config.tokenizer.path, config.model.path = "", str(tmp_path / "mine")
    assert tokenizer_for(config, _never, "", tmp_path).get_vocab() == mine.get_vocab()
