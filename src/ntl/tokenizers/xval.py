"""How xVal reads a text: each number is one token with a value (Golkar et al., 2023); and its tokenizer."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice
from typing import Any, ClassVar

from transformers import BatchEncoding, PreTrainedTokenizerFast

from ntl.numbers.text import number_spans
from ntl.system.errors import UserError

NUMBER = "[NUM]"
# The token as literal text, split so that it does not become a number.
_LITERAL = "[ NUM ]"
_PAPER_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TOKEN = re.compile(re.escape(NUMBER))
_SIGN = re.compile(r"([+-]) (?=[0-9.])")
_PAPER_COMMA = re.compile(rf"(?<={re.escape(NUMBER)}), ?(?={re.escape(NUMBER)})")


def read(text: str) -> tuple[str, list[float]]:
    """The text with ``[NUM]`` in place of every number, and the numbers' values in order.

    Numbers are found by ``number_spans`` and include their sign: "x = -1,234.5" -> "x = [NUM]", -1234.5.
    UserError for a number beyond float64.
    """
    return _read(text, ((start, end, float(value)) for start, end, value in number_spans(text)))


def read_paper(text: str) -> tuple[str, list[float]]:
    """As the original reads it, including its errors: numbers have no sign, and a comma between two numbers is lost.

    "- 5" -> "- [NUM]", 5; "1,234.5" -> "[NUM] [NUM]", 1 and 234.5; "1e-5" -> "[NUM]e-[NUM]".
    """
    matches = _PAPER_NUMBER.finditer(text)
    written, values = _read(text, ((match.start(), match.end(), float(match.group())) for match in matches))
    return _PAPER_COMMA.sub(" ", written), values


def _read(text: str, spans: Iterable[tuple[int, int, float]]) -> tuple[str, list[float]]:
    parts: list[str] = []
    values: list[float] = []
    done = 0
    for start, end, value in spans:
        if not math.isfinite(value):
            raise UserError(
                f"the number {text[start:end][:40]!r} is beyond float64, and xval needs values: correct the data"
            )
        parts.append(text[done:start].replace(NUMBER, _LITERAL))
        values.append(value)
        done = end
    parts.append(text[done:].replace(NUMBER, _LITERAL))
    return NUMBER.join(parts), values


class XValTokenizer(PreTrainedTokenizerFast):
    """A tokenizer with one more token, ``[NUM]``, which replaces every number of a text.

    ``tokenizer("2 + 2.5")`` also returns ``number_values``: the number at each ``[NUM]``, unscaled, and 1 elsewhere,
    including padding. ``paper_compat`` reads numbers as the original does (``ntl.tokenizers.xval``). Decoding does not
    restore whether there was a space between a number and its neighbours.
    """

    ROLES: ClassVar[dict[str, str]] = {"mask_token": "<extra_id_0>"}
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask", "number_values"]

    @staticmethod
    def added_tokens() -> tuple[str, ...]:
        return (NUMBER,)

    # No __init__: transformers rebuilds a class with one from its vocabulary instead of reading tokenizer.json.
    @property
    def paper_compat(self) -> bool:
        return bool(self.init_kwargs.get("paper_compat", False))

    def number_reader(self) -> Callable[[str], tuple[str, list[float]]]:
        """The function that replaces the numbers of a text by ``[NUM]``, and returns them."""
        return read_paper if self.paper_compat else read

    @property
    def number_token_id(self) -> int:
        """The id of ``[NUM]``: 32100 with the vocabulary of T5."""
        return self.get_vocab()[NUMBER]

    def write(self, ids: Sequence[int], numerals: Sequence[str]) -> str:
        """The text of ids with a numeral for each ``[NUM]``, without special tokens.

        Numbers are separated from text by spaces, except for a sign that remained in the text (``paper_compat``).
        ValueError where the numbers of numerals and of ``[NUM]`` differ.
        """
        number = self.number_token_id
        if (count := list(ids).count(number)) != len(numerals):
            raise ValueError(f"{len(numerals)} numerals for {count} numbers")
        remaining = iter(numerals)
        parts: list[str] = []
        for is_number, group in groupby(ids, key=number.__eq__):
            run = list(group)
            words = () if is_number else (str(self.decode(run, skip_special_tokens=True)).strip(),)
            parts += islice(remaining, len(run)) if is_number else words
        text = " ".join(part for part in parts if part)
        return _SIGN.sub(r"\1", text) if self.paper_compat else text

    def _encode_plus(
        self, text: Any, text_pair: Any = None, *, is_split_into_words: bool = False, **kwargs: Any
    ) -> BatchEncoding:
        if is_split_into_words or text_pair is not None:
            raise ValueError("xVal reads the numbers of whole texts, one at a time: join them first")
        tensors, single = kwargs.pop("return_tensors", None), isinstance(text, str)
        pairs, number = [self.number_reader()(sample) for sample in ([text] if single else text)], self.number_token_id
        written = [sample for sample, _ in pairs]
        batch = super()._encode_plus(written[0] if single else written, **kwargs)
        # The values by where ``[NUM]`` stands, since truncation may remove either end.
        places = ([match.start() for match in _TOKEN.finditer(sample)] for sample in written)
        values = [dict(zip(starts, numbers, strict=True)) for starts, (_, numbers) in zip(places, pairs, strict=True)]
        rows = [
            [
                numbers[start] if token == number else 1.0
                for token, (start, _) in zip(encoding.ids, encoding.offsets, strict=True)
            ]
            for numbers, encoding in zip(values, batch.encodings or [], strict=True)
        ]
        batch["number_values"] = rows[0] if single else rows
        return batch.convert_to_tensors(tensors, prepend_batch_axis=single)
