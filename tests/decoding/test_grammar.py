"""Which token sequences write a number."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_models import NAMES, TreeTokenizer

from ntl.config import UserError
from ntl.decoding.grammar import BARE, DEAD, ENDS, FRACTION, POINT, SIGN, START, WHOLE, NumberTokens, advance
from ntl.numbers import parse_number
from ntl.tokenizers import load_tokenizer

NUMBER = re.compile(r"\s*[-+−]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", START),
        (" \t", START),
        (" -", SIGN),
        ("−", SIGN),
        ("12", WHOLE),
        (" +07", WHOLE),
        ("5.", POINT),
        (".", BARE),
        ("-.", BARE),
        ("-.5", FRACTION),
        ("5.25", FRACTION),
        ("5.2.5", DEAD),
        ("1 2", DEAD),
        ("12 ", DEAD),
        ("- 5", DEAD),
        ("--5", DEAD),
        ("1,234", DEAD),
        ("1e3", DEAD),
        ("²", DEAD),
        ("٣", DEAD),
    ],
)
def test_states(text: str, state: int) -> None:
    assert advance(START, text) == state


@given(st.text("0 15.-+−,ex\n²", max_size=6), st.text("0 15.-+−,ex", max_size=4))
def test_a_text_ends_where_the_number_grammar_says_and_tokens_do_not_matter(first: str, second: str) -> None:
    text = first + second
    accepted = advance(START, text) in ENDS
    assert accepted == bool(NUMBER.fullmatch(text))
    assert not accepted or parse_number(text) is not None
    assert advance(advance(START, first), second) == advance(START, text)


def test_tokens_by_their_decoded_pieces() -> None:
    tokens = NumberTokens.from_tokenizer(TreeTokenizer())
    pieces = {NAMES[token_id]: piece for token_id, piece in zip(tokens.ids.tolist(), tokens.pieces, strict=True)}
    assert pieces == {"▁": " ", "-": "-", ".": ".", "1": "1", "2": "2", "12": "12", "▁1": " 1", "▁12": " 12"}
    assert tokens.end_id == NAMES.index("</s>")
    by_name = dict(zip(pieces, tokens.table.T.tolist(), strict=True))
    #                         START  SIGN   WHOLE  POINT     BARE      FRACTION
    assert by_name["12"] == [WHOLE, WHOLE, WHOLE, FRACTION, FRACTION, FRACTION]
    assert by_name["▁12"] == [WHOLE, DEAD, DEAD, DEAD, DEAD, DEAD]
    assert by_name["."] == [BARE, BARE, POINT, DEAD, DEAD, DEAD]
    assert by_name["▁"] == [START, DEAD, DEAD, DEAD, DEAD, DEAD]


def test_a_tokenizer_without_digits() -> None:
    with pytest.raises(UserError, match="no token with a digit"):
        NumberTokens.from_tokenizer(TreeTokenizer(["<pad>", "</s>", "▁", "-", "x"]))


@pytest.mark.data
@pytest.mark.parametrize(("folder", "mark"), [("t5", "▁"), ("gpt2", "Ġ")])
def test_published_tokenizers(data_root, folder: str, mark: str) -> None:
    tokenizer = load_tokenizer(data_root / "tokenizers" / folder, "default")
    tokens = NumberTokens.from_tokenizer(tokenizer)
    pieces = dict(zip(tokenizer.convert_ids_to_tokens(tokens.ids.tolist()), tokens.pieces, strict=True))
    assert pieces[f"{mark}12"] == " 12"
    assert pieces["7"] == "7"
    assert all(re.fullmatch(r"\s*[-+−]?[0-9]*\.?[0-9]*", piece) for piece in pieces.values())
    assert not tokens.ids.eq(tokenizer.eos_token_id).any()
