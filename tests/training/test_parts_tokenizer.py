"""Where a run's tokenizer comes from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.config import compose
from ntl.training.parts import tokenizer_for

ROWS = [{"question": f"What is {n} times {n + 1}?", "answer": str(n * (n + 1))} for n in range(10, 60)]


def _never() -> list[dict[str, str]]:
    raise AssertionError("nothing is to be trained here")


@pytest.fixture
def tokenizer(tmp_path: Path) -> Callable[..., Any]:
    """``tokenizer(*overrides, rows=)``: that of a config of multiplication."""

    def make(*overrides: str, rows: Callable[[], list[dict[str, str]]] = lambda: ROWS, key: str = "key") -> Any:
        return tokenizer_for(compose(["dataset=multiplication", *overrides]), rows, key, tmp_path)

    return make


def test_one_is_trained_on_the_text_and_kept(tokenizer, tmp_path: Path) -> None:
    made = tokenizer()
    ids = made("What is 10 times 11?", add_special_tokens=False)["input_ids"]
    assert made.unk_token_id not in ids
    tokens = ["▁What", "▁is", "▁", "1", "0", "▁times", "▁", "1", "1", "?"]
    assert made.convert_ids_to_tokens(ids) == tokens
    (folder,) = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert folder.name.startswith("multiplication-digit-")
    for other in ([], ["seed=2", "loss=ce"]):
        assert tokenizer(*other, rows=_never).get_vocab() == made.get_vocab()


def test_a_named_folder_wins_over_the_models(tokenizer, tmp_path: Path) -> None:
    config, mine = compose(["dataset=multiplication"]), tokenizer()
    mine.save_pretrained(tmp_path / "mine")
    (tmp_path / "model").mkdir()
    for own, models in (("mine", "model"), ("", "mine")):
        config.tokenizer.path, config.model.path = own and str(tmp_path / own), str(tmp_path / models)
        assert tokenizer_for(config, _never, "", tmp_path / "cache").get_vocab() == mine.get_vocab()
