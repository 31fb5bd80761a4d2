"""The segmentation of T5, against sentencepiece and the paper's rule, and of GPT-2, on their real files."""

import gzip
import json
import re
import tarfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast

from ntl.models.special import pad_id

Tokenizer = PreTrainedTokenizerFast
HAS_DIGIT = re.compile("[0-9]")
# The Rust normalizer goes by grapheme: it drops a second combining mark, where sentencepiece says <unk>. U+0085 is
# white space to it. The last two are marks of sentencepiece itself.
NO_MARKS = st.text(
    st.characters(codec="utf-8", exclude_categories=["M", "Cs"], exclude_characters="\x85\u2581\u2585"), max_size=60
)


def archive_lines(path: Path) -> Iterator[str]:
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            if file is not None:
                yield from file.read().decode().split("\n")[:-1]


def json_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def multirc(data_root: Path) -> list[str]:
    passages = [row["passage"] for name in ("train", "val") for row in json_rows(data_root / f"multirc/{name}.jsonl")]
    questions = [question for passage in passages for question in passage["questions"]]
    answers = [answer["text"] for question in questions for answer in question["answers"]]
    return [passage["text"] for passage in passages] + [question["question"] for question in questions] + answers


def rjokes(data_root: Path) -> list[str]:
    with gzip.open(data_root / "rjokes/dev.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n").split("\t", 1)[1] for line in file]


def gsm8k(data_root: Path, name: str) -> tuple[list[str], list[str]]:
    """Questions, and answers without their calculator annotations."""
    rows = json_rows(data_root / f"gsm8k/{name}.jsonl")
    return [row["question"] for row in rows], [re.sub("<<.*?>>", "", row["answer"]) for row in rows]


def cut_pieces(sentencepiece: SentencePieceProcessor, text: str) -> list[str]:
    """The segmentation of the paper's own tokenizer: a stock piece that holds a digit becomes its characters."""
    pieces = sentencepiece.encode(text, out_type=str)
    return [part for piece in pieces for part in (piece if HAS_DIGIT.search(piece) else [piece])]


def differences_from_sentencepiece(
    tokenizer: Tokenizer, sentencepiece: SentencePieceProcessor, texts: list[str]
) -> list[tuple[list[int], list[int]]]:
    ours = [encoding.ids for encoding in tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)]
    return [(a, b) for a, b in zip(ours, sentencepiece.encode(texts), strict=True) if a != b]


def are_ties(differences: list[tuple[list[int], list[int]]]) -> bool:
    """The same pieces in another order have the same score: `o oooo` and `oooo o` are equally likely."""
    return all(sorted(ours) == sorted(theirs) for ours, theirs in differences)


@pytest.mark.data
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("-15.67", "▁ - 1 5 . 6 7"),
        ("1,234.5", "▁ 1 , 2 3 4 . 5"),
        ("mp3 1st", "▁ mp 3 ▁ 1 s t"),
        ("5²", "▁ 5 2"),
        ("５", "▁ 5"),
        ("\u0663\u0664", "▁ <unk>"),
        ("", ""),
    ],
)
def test_t5_digits_stand_alone_behind_the_word_start(t5: Tokenizer, text: str, pieces: str) -> None:
    assert t5.convert_ids_to_tokens(t5(text, add_special_tokens=False).input_ids) == pieces.split()


@pytest.mark.data
def test_t5_keeps_its_vocabulary(t5: Tokenizer, t5_default: Tokenizer) -> None:
    assert t5.get_vocab() == t5_default.get_vocab()
    assert t5("2014").input_ids == [3, 357, 632, 536, 591, 1]
    assert (len(t5), t5.pad_token_id, t5.eos_token_id, t5.unk_token_id, t5.bos_token) == (32100, 0, 1, 2, None)
    assert t5.convert_tokens_to_ids(list("0123456789")) == [632, 536, 357, 519, 591, 755, 948, 940, 927, 1298]
    assert t5.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"]) == [32099, 32000]
    assert t5.decode([32099, 536, 1], skip_special_tokens=True) == "1"


@pytest.mark.data
def test_t5_default_is_stock(t5_default: Tokenizer, sentencepiece_t5: SentencePieceProcessor) -> None:
    for text in ("12345", "3.14 and -7", "1,000 in 2014", "(3/2)x=54"):
        assert t5_default(text).input_ids == [*sentencepiece_t5.encode(text), 1]
    assert t5_default.tokenize("12345") == ["▁", "123", "45"]


@pytest.mark.slow
@pytest.mark.data
def test_t5_digit_free_text_is_as_in_sentencepiece(
    t5: Tokenizer, sentencepiece_t5: SentencePieceProcessor, data_root: Path
) -> None:
    texts = [*multirc(data_root), *gsm8k(data_root, "test")[0], *rjokes(data_root)[::8]]
    free = [text for text in texts if not HAS_DIGIT.search(unicodedata.normalize("NFKC", text))]
    assert len(free) == 39_022
    differences = differences_from_sentencepiece(t5, sentencepiece_t5, free)
    assert are_ties(differences)
    assert len(differences) == 4


@pytest.mark.data
@given(text=NO_MARKS)
@example("a\n\tb  c\u00a0d\u200be")
@example("e\u0301 \u2034 ½ ﬁ")
def test_t5_any_digit_free_text_is_as_in_sentencepiece(
    t5: Tokenizer, sentencepiece_t5: SentencePieceProcessor, text: str
) -> None:
    text = "".join(char for char in text if not HAS_DIGIT.search(unicodedata.normalize("NFKC", char)))
    assert are_ties(differences_from_sentencepiece(t5, sentencepiece_t5, [text]))


@pytest.mark.data
@given(text=st.text(max_size=60) | st.from_regex(r"[-+.,0-9a-z ()]{1,30}", fullmatch=True))
def test_no_piece_with_a_digit_is_longer_than_one_character(t5: Tokenizer, gpt2: Tokenizer, text: str) -> None:
    for tokenizer in (t5, gpt2):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        pieces = tokenizer.convert_ids_to_tokens(ids)
        assert [piece for piece in pieces if HAS_DIGIT.search(piece) and len(piece) > 1] == []


@pytest.mark.data
def test_t5_arithmetic_round_trips_exactly(t5: Tokenizer, data_root: Path) -> None:
    lines = list(archive_lines(data_root / "mathematics_dataset" / "arithmetic-regen.tar.gz"))
    assert len(lines) == 245_998
    ids = [encoding.ids for encoding in t5.backend_tokenizer.encode_batch(lines[::25])]
    assert t5.batch_decode(ids, skip_special_tokens=True) == lines[::25]


@pytest.mark.data
def test_t5_numeric_answers_are_cut_as_in_the_paper(
    t5: Tokenizer, sentencepiece_t5: SentencePieceProcessor, data_root: Path
) -> None:
    lines = list(archive_lines(data_root / "mathematics_dataset" / "arithmetic-regen.tar.gz"))
    answers = sorted(set(lines[1::2]))
    assert len(answers) == 903
    answers += [text.split("#### ")[1] for name in ("train", "test") for text in gsm8k(data_root, name)[1]]
    answers += ["0.5", "-0.05", "1,234,567", "-192,000,000", "007", "12."]
    for answer in answers:
        assert t5.tokenize(answer) == cut_pieces(sentencepiece_t5, answer)


@pytest.mark.data
def test_t5_question_where_the_paper_cuts_more(t5: Tokenizer, sentencepiece_t5: SentencePieceProcessor) -> None:
    assert cut_pieces(sentencepiece_t5, "(1") == ["▁", "(", "1"]
    assert t5.tokenize("(1") == ["▁(", "1"]


@pytest.mark.data
def test_gpt2_single_digits(gpt2: Tokenizer, gpt2_default: Tokenizer) -> None:
    assert gpt2.tokenize(" 12345") == ["Ġ", "1", "2", "3", "4", "5"]
    assert gpt2_default.tokenize(" 12345") == ["Ġ123", "45"]
    assert gpt2.convert_tokens_to_ids(list("0123456789")) == list(range(15, 25))
    assert gpt2("²\u0663").input_ids == gpt2_default("²\u0663").input_ids


@pytest.mark.data
def test_gpt2_stays_without_a_pad_token_and_appends_nothing(gpt2: Tokenizer, gpt2_default: Tokenizer) -> None:
    for tokenizer in (gpt2, gpt2_default):
        assert (tokenizer.pad_token, len(tokenizer), pad_id(tokenizer)) == (None, 50257, 50256)
        assert (tokenizer.eos_token_id, tokenizer.bos_token_id) == (50256, 50256)
        assert tokenizer("Hello world").input_ids == [15496, 995]
        assert tokenizer("").input_ids == []


@pytest.mark.data
def test_gpt2_digit_free_text_has_the_stock_ids(gpt2: Tokenizer, gpt2_default: Tokenizer, data_root: Path) -> None:
    stock = GPT2Tokenizer.from_pretrained(str(data_root / "tokenizers" / "gpt2"))
    rows = (data_root / "multirc" / "val.jsonl").read_text(encoding="utf-8").split("\n")
    passages = [json.loads(row)["passage"] for row in rows if row]
    texts = [question["question"] for passage in passages for question in passage["questions"]]
    free = [text for text in texts if not HAS_DIGIT.search(text)]
    assert (len(texts), len(free)) == (953, 891)
    assert gpt2_default(texts).input_ids == stock(texts).input_ids
    assert gpt2(free).input_ids == stock(free).input_ids


@pytest.mark.data
@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
@example(" it 's ok . 3 .5 ,\r\n\t  ½ \u0663")
def test_gpt2_any_text_round_trips_exactly(gpt2: Tokenizer, gpt2_default: Tokenizer, text: str) -> None:
    assert gpt2.decode(gpt2(text).input_ids, skip_special_tokens=True) == text
    free = HAS_DIGIT.sub("", text)
    assert gpt2(free).input_ids == gpt2_default(free).input_ids
