"""Tokenizers that write numbers their own way: the Regression Transformer's tokens ``_d_e_``, and xVal's values."""

import math
import re
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ntl.config import UserError
from ntl.evaluation import extract_answer
from ntl.numbers.text import number_spans
from ntl.tokenizers import load_tokenizer, train_tokenizer
from ntl.tokenizers.rt import UNKNOWN, count_malformed, read
from ntl.tokenizers.rt import write as write_tokens
from ntl.tokenizers.xval import NUMBER, XValTokenizer, read_paper
from ntl.tokenizers.xval import read as read_xval


def write(tokens: list[str]) -> str:
    return write_tokens(tokens, lambda words: "".join(words).replace("▁", " ").removeprefix(" "), [UNKNOWN])


def values_in(text: str) -> list[Decimal]:
    return [value for _, _, value in number_spans(text)]


def pieces(text: str) -> list[str]:
    """The tokens of what ``read`` writes, each word between numbers one with T5's word-start mark."""
    found = re.findall(r"_[0-9]_-?[0-9]+_|[^\s_]+", text)
    return [token if token.startswith("_") else f"▁{token}" for token in found]


READ = {
    "-15.67": "-_1_1_ _5_0_ _6_-1_ _7_-2_",
    "007": "_7_0_",
    "0.0000000000001": "_0_0_",
    "0.009": "_0_0_ _0_-1_ _0_-2_ _9_-3_",
    "1,234.5": "_1_0_,_2_2_ _3_1_ _4_0_ _5_-1_",
    "1e5": "_1_0_e_5_0_",
    "5. 3": "_5_0_. _3_0_",
    ".5": "._5_0_",
    "": "",
}
ROUNDED = {
    "0.0000000000005": "0.000000000001",  # half up
    "0.00000000000049999": "0",
    "9.9999999999995": "10",
    "99999999999999999999.4999999999999": "99999999999999999999.5",
    f"0.{'0' * 500}1": "0",
}
# Tokens -> their text, and how many errors are in them.
WRITTEN = {
    "_1_1_ _2_2_": ("10  200", 2),
    "_5_-1_ _3_0_": ("0.5  3", 0),
    "_1_3_ _2_-2_": ("1000.02", 1),
    "_0_2_ _0_1_ _7_0_": ("7", 0),
    "_9_19_ _9_-12_": ("90000000000000000000.000000000009", 1),
    "▁- _1_1_ _2_0_": ("-12", 0),
    "": ("", 0),
    "▁( _3_0_ ▁/ _2_0_ ▁)": ("( 3 / 2 )", 0),
    "▁( a ) ▁- _3_0_": ("(a) - 3", 0),
    "_5_0_ ▁% ▁- _3_0_": ("5 % - 3", 0),
    "_5_0_ ▁- ▁- _3_0_": ("5 - -3", 0),
    "▁− _3_0_ ▁+ _4_0_": ("−3 + 4", 0),
    "_3_0_ ▁large ▁boxes ▁+ _1_0_ ▁- _2_0_": ("3 large boxes + 1 - 2", 0),
    "_3_0_ ▁hours ▁. ▁Then ▁- _4_0_": ("3 hours . Then -4", 0),
    "<unk> ▁- _4_0_": ("- 4", 0),
    "_1_4_ _4_3_ <unk> _4_-2_": ("14000 0.04", 1),
    "_1_0_ <unk> _2_2_ _3_1_ _4_0_": ("1  234", 0),
    "_5_0_ s ▁a": ("5s a", 0),
}


def test_by_hand() -> None:
    assert {text: read(text) for text in READ} == {text: (tokens, []) for text, tokens in READ.items()}
    assert {text: write(read(text)[0].split()) for text in ROUNDED} == ROUNDED
    found = {tokens: (write(tokens.split()), count_malformed(tokens.split())) for tokens in WRITTEN}
    assert found == WRITTEN


@given(st.integers(0, 10**19 - 1), st.integers(0, 10**14 - 1), st.sampled_from(["", "-"]))
def test_a_number_comes_back(whole: int, fraction: int, sign: str) -> None:
    numeral = f"{whole}.{fraction:014}"
    tokens = pieces(read(sign + numeral)[0])
    with localcontext(prec=60):
        expected = Decimal(numeral).quantize(Decimal("1E-12"), ROUND_HALF_UP)
        assert extract_answer(write(tokens)) == (-expected if sign else expected)
    assert count_malformed(tokens) == 0


NUMERALS = st.integers(0, 10**6).map(str) | st.sampled_from(["0.5", "12.25", "1000.001"])
UNITS = st.sampled_from(["hours", "large boxes", "of the 7 cats", "%", "km", ")", "times x", "sheets of paper"])
OPERANDS = st.one_of(NUMERALS, st.sampled_from("xyz"), st.tuples(NUMERALS, UNITS).map(" ".join))
BEFORE = st.sampled_from(["", "=", "is", "It is", "3 hours =", "3 plus", "7 and", "####", "(", "3 hours:", "we have"])


@given(st.lists(OPERANDS, min_size=1, max_size=5), st.lists(st.sampled_from(["-", "+", "−"]), min_size=5, max_size=5))
def test_a_difference_is_no_negative_number(operands: list[str], signs: list[str]) -> None:
    text = " ".join(word for pair in zip(operands, signs, strict=False) for word in pair).rsplit(" ", 1)[0]
    written = write(pieces(read(text)[0]))
    assert values_in(written) == values_in(text)
    assert written.split() == text.split()


@given(BEFORE, NUMERALS, OPERANDS)
def test_a_negative_number_stays_one(before: str, numeral: str, after: str) -> None:
    text = f"{before} -{numeral} - {after}".strip()
    assert values_in(write(pieces(read(text)[0]))) == values_in(text)


@given(st.text(st.sampled_from("0123456789._- <>extra_id_x"), max_size=20))
@example("<extra_id_10> _5_-1_ _5_20_")
def test_what_is_read_already_stays(text: str) -> None:
    once = read(text)[0]
    assert read(once)[0] == once


def test_a_place_beyond_the_tokens_is_one_line() -> None:
    assert read(f"000{'9' * 20}.5")[0].startswith("_9_19_ _9_18_")
    told = r"^'What is 1+.{,60}: a number has 25 digits before its point, .* 20; take a model that reads digits"
    with pytest.raises(UserError, match=told):
        read(f"What is {'1' * 25}.5 plus 1?" + " a" * 100)


# ---- the tokenizer as a user calls it, from tiny files and from T5's


@pytest.fixture
def rt(tmp_path: Path) -> Any:
    return train_tokenizer(["12 cats and dogs", "What is 12 times 34.5?"] * 20, tmp_path / "trained", kind="rt")


@pytest.mark.data
def test_ids_behind_t5s(real: Any) -> None:
    t5_rt = real("t5", "rt")
    assert len(t5_rt) == 32420
    assert t5_rt.convert_tokens_to_ids(["_0_-12_", "_9_-12_", "_0_-11_", "_9_19_"]) == [32100, 32109, 32110, 32419]
    ids = t5_rt("<extra_id_0> (3/2), 1,234.5").input_ids
    pieces = "<extra_id_0> ▁( _3_0_ ▁ / _2_0_ ▁ ), _1_0_ ▁ , _2_2_ _3_1_ _4_0_ _5_-1_ </s>"
    assert t5_rt.convert_ids_to_tokens(ids) == pieces.split()
    assert t5_rt.decode(ids, skip_special_tokens=True) == "( 3 / 2 ), 1 , 234.5"
    vocab = t5_rt.get_vocab()
    assert all(vocab[token] == token_id for token, token_id in real("t5", "default").get_vocab().items())


def test_all_ways_to_call_it(rt: Any) -> None:
    ids = rt.convert_tokens_to_ids(["_1_1_", "_2_0_", "▁cats", "</s>"])
    three = [*rt.convert_tokens_to_ids(["_3_0_", "</s>"])]
    assert rt("12 cats").input_ids == ids
    assert rt.tokenize("12 cats") == ["_1_1_", "_2_0_", "▁cats"]
    assert rt(["12 cats", "3"]).input_ids == [ids, three]
    assert rt(["12", "cats"], is_split_into_words=True).input_ids == ids
    assert rt("12 cats", "3").input_ids == ids + three
    assert rt(text_target="3").input_ids == three
    padded = rt(["12 cats", "3"], padding=True, return_tensors="pt")
    assert padded.input_ids.tolist() == [ids, [*three, rt.pad_token_id, rt.pad_token_id]]
    assert rt.decode(ids) == "12 cats</s>"
    assert rt.decode(padded.input_ids, skip_special_tokens=True) == ["12 cats", "3"]
    assert rt.batch_decode([ids, three], skip_special_tokens=True) == ["12 cats", "3"]
    assert rt.decode(ids[0], skip_special_tokens=True) == "10"
    assert rt.decode([*three, 10_000], skip_special_tokens=True) == "3"
    assert rt("").input_ids == [rt.eos_token_id]


def test_a_number_ends_at_what_the_tokenizer_does_not_know(rt: Any) -> None:
    ids = rt.convert_tokens_to_ids(["_1_4_", "_4_3_", "<unk>", "_4_-2_"])
    assert rt.decode(ids, skip_special_tokens=True) == "14000 0.04"
    assert rt.decode(ids) == "14000<unk> 0.04"
    assert rt.count_malformed(ids) == 1
    assert rt.count_malformed(rt("12 cats 0.05").input_ids) == 0
    padded = rt.convert_tokens_to_ids(["<pad>", "▁", "_5_1_", "<pad>", "_7_0_", "</s>"])
    assert rt.decode(padded, skip_special_tokens=True) == "50 7"


# ---- xVal: numbers of a text as [NUM] and values, and values beside ids, whatever is padded or cut off


ANY_TEXT = st.one_of(st.text(), st.text(alphabet="0123456789+-,.e [NUM]x"))


OF_TEXT = {
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
    assert {text: read_xval(text) for text in OF_TEXT} == OF_TEXT
    assert {text: read_paper(text) for text in BY_THE_PAPER} == BY_THE_PAPER


@given(ANY_TEXT)
@example("1E400")
def test_as_many_values_as_tokens_or_one_line_whatever_the_text(text: str) -> None:
    expected = [float(value) for _, _, value in number_spans(text)]
    if math.inf in map(abs, expected):
        with pytest.raises(UserError, match="is beyond float64"):
            read_xval(text)
        return
    for function in (read_xval, read_paper):
        written, values = function(text)
        assert written.count(NUMBER) == len(values)
    assert read_xval(text)[1] == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trained as scale=tiny does, which has no sentinel of its own."""
    path = tmp_path_factory.mktemp("tokenizer") / "trained"
    train_tokenizer([f"What is {a} times {a * a}? + - / ( )" for a in range(50)], path, kind="xval", vocab_size=80)
    return path


@pytest.fixture(scope="module", params=["default", "paper"])
def xval(request: pytest.FixtureRequest, folder: Path) -> Any:
    return load_tokenizer(folder, kind="xval", paper_compat=request.param == "paper")


def _pairs(xval: Any, batch: Any) -> list[tuple[str, float]]:
    return list(zip(xval.convert_ids_to_tokens(batch["input_ids"]), batch["number_values"], strict=True))


def test_a_text(xval: Any) -> None:
    batch = xval("2 + 2.5")
    assert _pairs(xval, batch) == [("[NUM]", 2.0), ("▁+", 1.0), ("[NUM]", 2.5), ("</s>", 1.0)]
    assert batch["attention_mask"] == [1, 1, 1, 1]
    assert set(batch) == {"input_ids", "attention_mask", "number_values"}
    assert xval.decode(batch["input_ids"], skip_special_tokens=True) == "[NUM] +[NUM]"
    assert (xval("")["number_values"], xval("", add_special_tokens=False)["number_values"]) == ([1.0], [])
    assert xval.tokenize("x 3") == ["▁", "x", "[NUM]"]
    with pytest.raises(ValueError, match="one at a time: join them first"):
        xval("2 + 3", "4 + 5")


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_counts_one(xval: Any, side: str) -> None:
    batch = xval(["7", "2 + 3"], padding=True, return_tensors="pt", padding_side=side)
    assert (batch["number_values"].dtype, batch["number_values"].shape) == (torch.float32, batch["input_ids"].shape)
    short = [7, 1, 1, 1] if side == "right" else [1, 1, 7, 1]
    assert batch["number_values"].tolist() == [short, [2, 1, 3, 1]]
    np.testing.assert_array_equal(xval("7", return_tensors="np")["number_values"], [[7, 1]])


@pytest.mark.parametrize(("side", "kept"), [("right", [2, 1, 3, 1]), ("left", [1, 4, 1, 1])])
def test_truncation_keeps_each_number_at_its_token(folder: Path, side: str, kept: list[float]) -> None:
    xval = load_tokenizer(folder, kind="xval")
    xval.truncation_side = side
    batch = xval("2 + 3 + 4 ?", truncation=True, max_length=4)
    places = [token == "[NUM]" for token in xval.convert_ids_to_tokens(batch["input_ids"])]
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
        xval: Any = load_tokenizer(folder, kind="xval", paper_compat=paper_compat)
        batch = xval(text)
        pairs = zip(batch["input_ids"], batch["number_values"], strict=True)
        numerals = [format(value, "g") for token, value in pairs if token == xval.number_token_id]
        assert xval.write(batch["input_ids"], numerals) == expected
        for wrong in ([*numerals, "1"], numerals[1:]):
            if wrong != numerals:
                with pytest.raises(ValueError, match=f"{len(wrong)} numerals for {len(numerals)} numbers"):
                    xval.write(batch["input_ids"], wrong)


def test_it_is_saved_and_loaded(xval: Any, tmp_path: Path) -> None:
    xval.save_pretrained(tmp_path)
    for loaded in (load_tokenizer(tmp_path, kind="xval"), XValTokenizer.from_pretrained(str(tmp_path))):
        assert isinstance(loaded, XValTokenizer)
        assert loaded.number_reader() is xval.number_reader()
        assert loaded.get_vocab() == xval.get_vocab()
        assert loaded("-5 and 2.5")["number_values"] == xval("-5 and 2.5")["number_values"]
    other: Any = load_tokenizer(tmp_path, kind="xval", paper_compat=not xval.paper_compat)
    assert other.number_reader() is not xval.number_reader()


@pytest.mark.data
def test_t5_has_one_more_token(data_root: Path) -> None:
    xval: Any = load_tokenizer(data_root / "tokenizers" / "t5", kind="xval")
    assert (len(xval), xval.number_token_id, xval.mask_token_id) == (32101, 32100, 32099)
    batch = xval("Solve 0 = -4*b + 1,015.5 for b.")
    assert xval.unk_token_id not in batch["input_ids"]
    assert [value for value in batch["number_values"] if value != 1] == [0, -4, 1015.5]
    # The original's example: the sign is a text of its own.
    xval.init_kwargs["paper_compat"] = True
    assert _pairs(xval, xval("- 5", add_special_tokens=False)) == [("▁", 1.0), ("-", 1.0), ("[NUM]", 5.0)]
