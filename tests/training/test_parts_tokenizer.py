"""Where a run's tokenizer comes from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.delattr("ntl.training.parts.train_tokenizer")


def test_one_is_trained_on_the_text_and_kept(parts: Callable[..., Any], no_training, tmp_path: Path) -> None:
    own = {"dataset": "multiplication"}
    first = parts(f"data_dir={tmp_path}", **own)
    question = first.rows("train")[0]["question"]
    tokens = first.tokenizer.tokenize(question)
    assert first.tokenizer.unk_token not in tokens
    assert [token for token in tokens if token.isdigit()] == [sign for sign in question if sign.isdigit()]
    (folder,) = [path for path in (tmp_path / ".tokenizers").iterdir() if not path.name.startswith(".")]
    assert folder.name.startswith("multiplication-digit-")
    no_training()
    for more in ([], ["seed=2", "loss=ce"]):
        assert parts(f"data_dir={tmp_path}", *more, **own).tokenizer.get_vocab() == first.tokenizer.get_vocab()


def test_a_named_folder_wins_over_the_models(
    parts: Callable[..., Any], no_training, trained_once: Path, tmp_path: Path
) -> None:
    mine = trained_once / "tokenizer"
    no_training()
    for own, models in ((mine, tmp_path), ("", mine)):
        made = parts(f"data_dir={tmp_path / 'none'}")
        made.config.tokenizer.path, made.config.model.path = str(own), str(models)
        assert made.tokenizer.get_vocab() == AutoTokenizer.from_pretrained(mine).get_vocab()
