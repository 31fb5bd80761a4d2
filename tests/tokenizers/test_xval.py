"""Numbers of a text as [NUM] and values, and the tokenizer: values beside ids, whatever is padded or cut off."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ntl.config import UserError
from ntl.numbers.text import number_spans
from ntl.tokenizers import load_tokenizer, train_tokenizer
from ntl.tokenizers.xval import NUMBER, XValTokenizer, read, read_paper

ANY_TEXT = st.one_of(st.text(), st.text(alphabet="0123456789+-,.e [NUM]x"))


READ = {
    "5-3 = 2": ("[NUM]-[NUM] = [NUM]", [5, 3, 2]),
    "- 5": ("- [NUM]", [5]),
    "x = -1,234.5!": ("x = [NUM]!", [-1234.5]),
    "1, 2,3": ("[NUM], [NUM],[NUM]", [1, 2, 3]),
    "(-3/2)*x": ("([NUM]/[NUM])*x", [-3, 2]),
    "123456789012345678901": ("[NUM]", [123456789012345678901.0]),
    "a [NUM] of 1": ("a [ NUM ] of [NUM]", [1]),
}
BY_THE_PAPER = {
    "-5": ("-[NUM]", [5]),
    "1,234.5": ("[NUM] [NUM]", [1, 234.5]),
    "1, 2, 3": ("[NUM] [NUM] [NUM]", [1, 2, 3]),
    "1 , 2": ("[NUM] , [NUM]", [1, 2]),
    "1e-05 .5 7.": ("[NUM]e-[NUM] .[NUM] [NUM].", [1, 5, 5, 7]),
    "007": ("[NUM]", [7]),
    "a [NUM] of 1": ("a [ NUM ] of [NUM]", [1]),
}


def test_a_sign_belongs_to_its_number_but_for_the_papers_rule() -> None:
    assert {text: read(text) for text in READ} == READ
    assert {text: read_paper(text) for text in BY_THE_PAPER} == BY_THE_PAPER


@given(ANY_TEXT)
@example("1E400")
def test_as_many_values_as_tokens_or_one_line_whatever_the_text(text: str) -> None:
    expected = [float(value) for _, _, value in number_spans(text)]
    if math.inf in map(abs, expected):
        with pytest.raises(UserError, match="is beyond float64"):
            read(text)
        return
    for function in (read, read_paper):
        written, values = function(text)
        assert written.count(NUMBER) == len(values)
    assert read(text)[1] == expected


# ---- the tokenizer as a person calls it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trained as scale=tiny does, which has no sentinel of its own."""
    path = tmp_path_factory.mktemp("tokenizer") / "trained"
    train_tokenizer([f"What is {a} times {a * a}? + - / ( )" for a in range(50)], path, kind="xval", vocab_size=80)
    return path


@pytest.fixture(scope="module", params=["default", "paper"])
def tokenizer(request: pytest.FixtureRequest, folder: Path) -> Any:
    return load_tokenizer(folder, kind="xval", paper_compat=request.param == "paper")


def _pairs(tokenizer: Any, batch: Any) -> list[tuple[str, float]]:
    return list(zip(tokenizer.convert_ids_to_tokens(batch["input_ids"]), batch["number_values"], strict=True))


def test_a_text(tokenizer: Any) -> None:
    batch = tokenizer("2 + 2.5")
    assert _pairs(tokenizer, batch) == [("[NUM]", 2.0), ("▁+", 1.0), ("[NUM]", 2.5), ("</s>", 1.0)]
    assert batch["attention_mask"] == [1, 1, 1, 1]
    assert set(batch) == {"input_ids", "attention_mask", "number_values"}
    assert tokenizer.decode(batch["input_ids"], skip_special_tokens=True) == "[NUM] +[NUM]"
    assert (tokenizer("")["number_values"], tokenizer("", add_special_tokens=False)["number_values"]) == ([1.0], [])
    assert tokenizer.tokenize("x 3") == ["▁", "x", "[NUM]"]
    with pytest.raises(ValueError, match="one at a time: join them first"):
        tokenizer("2 + 3", "4 + 5")


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_counts_one(tokenizer: Any, side: str) -> None:
    batch = tokenizer(["7", "2 + 3"], padding=True, return_tensors="pt", padding_side=side)
    assert (batch["number_values"].dtype, batch["number_values"].shape) == (torch.float32, batch["input_ids"].shape)
    short = [7, 1, 1, 1] if side == "right" else [1, 1, 7, 1]
    assert batch["number_values"].tolist() == [short, [2, 1, 3, 1]]
    np.testing.assert_array_equal(tokenizer("7", return_tensors="np")["number_values"], [[7, 1]])


@pytest.mark.parametrize(("side", "kept"), [("right", [2, 1, 3, 1]), ("left", [1, 4, 1, 1])])
def test_truncation_keeps_each_number_at_its_token(folder: Path, side: str, kept: list[float]) -> None:
    tokenizer = load_tokenizer(folder, kind="xval")
    tokenizer.truncation_side = side
    batch = tokenizer("2 + 3 + 4 ?", truncation=True, max_length=4)
    places = [token == "[NUM]" for token in tokenizer.convert_ids_to_tokens(batch["input_ids"])]
    assert batch["number_values"] == kept
    assert [value != 1 for value in kept] == places


@pytest.mark.parametrize(
    ("text", "default", "paper"),
    [
        ("-5", "-5", "-5"),
        ("7 - 5", "7 - 5", "7 -5"),
        ("-7/-5", "-7 / -5", "-7 /-5"),
        ("times", "times", "times"),
    ],
)
def test_numerals_are_written_where_the_numbers_were(folder: Path, text: str, default: str, paper: str) -> None:
    for paper_compat, expected in ((False, default), (True, paper)):
        tokenizer: Any = load_tokenizer(folder, kind="xval", paper_compat=paper_compat)
        batch = tokenizer(text)
        pairs = zip(batch["input_ids"], batch["number_values"], strict=True)
        numerals = [format(value, "g") for token, value in pairs if token == tokenizer.number_token_id]
        assert tokenizer.write(batch["input_ids"], numerals) == expected
        for wrong in ([*numerals, "1"], numerals[1:]):
            if wrong != numerals:
                with pytest.raises(ValueError, match=f"{len(wrong)} numerals for {len(numerals)} numbers"):
                    tokenizer.write(batch["input_ids"], wrong)


def test_it_is_saved_and_loaded(tokenizer: Any, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    for loaded in (load_tokenizer(tmp_path, kind="xval"), XValTokenizer.from_pretrained(str(tmp_path))):
        assert isinstance(loaded, XValTokenizer)
        assert loaded.number_reader() is tokenizer.number_reader()
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert loaded("-5 and 2.5")["number_values"] == tokenizer("-5 and 2.5")["number_values"]
    other: Any = load_tokenizer(tmp_path, kind="xval", paper_compat=not tokenizer.paper_compat)
    assert other.number_reader() is not tokenizer.number_reader()


@pytest.mark.data
def test_t5_has_one_more_token(data_root: Path) -> None:
    tokenizer: Any = load_tokenizer(data_root / "tokenizers" / "t5", kind="xval")
    assert (len(tokenizer), tokenizer.number_token_id, tokenizer.mask_token_id) == (32101, 32100, 32099)
    batch = tokenizer("Solve 0 = -4*b + 1,015.5 for b.")
    assert tokenizer.unk_token_id not in batch["input_ids"]
    assert [value for value in batch["number_values"] if value != 1] == [0, -4, 1015.5]
    # The original's example: the sign is a text of its own.
    tokenizer.init_kwargs["paper_compat"] = True
    assert _pairs(tokenizer, tokenizer("- 5", add_special_tokens=False)) == [("▁", 1.0), ("-", 1.0), ("[NUM]", 5.0)]
