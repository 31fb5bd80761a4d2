"""The tokenizers of the Regression Transformer and of xVal, which write numbers in tokens of their own."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any, ClassVar

from transformers import BatchEncoding, PreTrainedTokenizerFast

from ntl.numbers.text import MAX_PLACE, MIN_PLACE, find_place_tokens, place_tokens
from ntl.tokenizers import rt, xval

# Text -> the text with numbers replaced by number tokens, and the values of these tokens in order.
Reader = Callable[[str], tuple[str, list[float]]]
_NUMBER = re.compile(re.escape(xval.NUMBER))
_SIGN = re.compile(r"([+-]) (?=[0-9.])")


class RTTokenizer(PreTrainedTokenizerFast):
    """Reads numbers as :func:`ntl.tokenizers.rt.read` does and writes them as :func:`ntl.tokenizers.rt.write` does.

    Offsets refer to the text in which numbers are written as tokens.
    """

    @classmethod
    def added_tokens(cls, max_place: int = MAX_PLACE) -> tuple[str, ...]:
        return place_tokens(last=max_place)

    @property
    def max_place(self) -> int:
        places = find_place_tokens(self.get_added_vocab()).values()
        return max((place for _, place in places), default=MIN_PLACE - 1)

    @property
    def reader(self) -> str:
        """The name of ``number_reader``, by which encoded data is found again."""
        place = self.max_place
        return "ntl.tokenizers.rt.read" if place == MAX_PLACE else f"ntl.tokenizers.rt.read:{place}"

    def number_reader(self) -> Reader:
        """The function that writes the numbers of a text as tokens."""
        return partial(rt.read, max_place=self.max_place)

    def count_malformed(self, ids: list[int]) -> int:
        return rt.count_malformed(self._known(ids))

    def _encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **options: Any) -> Any:
        place = self.max_place
        return super()._encode_plus(_read_all(text, place), _read_all(text_pair, place), *args, **options)

    def _decode(self, token_ids: Any, skip_special_tokens: bool = False, **options: Any) -> str:
        ids = token_ids["input_ids"] if isinstance(token_ids, dict) else token_ids
        ids = [ids] if isinstance(ids, int) else ids
        unwritten = frozenset(self.all_special_tokens if skip_special_tokens else ())
        return rt.write(self._known(ids), self.convert_tokens_to_string, unwritten)

    def _known(self, ids: list[int]) -> list[str]:
        # An embedding may have more rows than the tokenizer has tokens.
        tokens = self.convert_ids_to_tokens(list(ids))
        return [token for token in tokens if token is not None]


def _read_all(text: Any, max_place: int) -> Any:
    if isinstance(text, (list, tuple)):
        return type(text)(_read_all(item, max_place) for item in text)
    return rt.read(text, max_place)[0] if isinstance(text, str) else text


class XValTokenizer(PreTrainedTokenizerFast):
    """A tokenizer with one more token, ``[NUM]``, which replaces every number of a text.

    ``tokenizer("2 + 2.5")`` also returns ``number_values``: the number at each ``[NUM]``, unscaled, and 1 elsewhere,
    including padding. ``paper_compat`` reads numbers as the original does (``ntl.tokenizers.xval``). Decoding does not
    restore whether there was a space between a number and its neighbours.
    """

    ROLES: ClassVar[dict[str, str]] = {"mask_token": "<extra_id_0>"}
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask", "number_values"]

    @classmethod
    def added_tokens(cls, **_: Any) -> tuple[str, ...]:
        return (xval.NUMBER,)

    # No __init__: transformers rebuilds a class with one from its vocabulary instead of reading tokenizer.json.
    @property
    def paper_compat(self) -> bool:
        return bool(self.init_kwargs.get("paper_compat", False))

    @property
    def reader(self) -> str:
        """The name of ``number_reader``, by which encoded data is found again."""
        function = self.number_reader()
        return f"{function.__module__}.{function.__name__}"

    def number_reader(self) -> Reader:
        """The function that replaces the numbers of a text by ``[NUM]``, and returns them."""
        return xval.read_paper if self.paper_compat else xval.read

    @property
    def number_token_id(self) -> int:
        """The id of ``[NUM]``: 32100 with the vocabulary of T5."""
        return self.get_vocab()[xval.NUMBER]

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
        read = [self.number_reader()(each) for each in ([text] if single else text)]
        written = [each for each, _ in read]
        batch = super()._encode_plus(written[0] if single else written, **kwargs)
        # The values by where ``[NUM]`` stands, since truncation may remove either end.
        places = ([match.start() for match in _NUMBER.finditer(each)] for each in written)
        values = [dict(zip(starts, numbers, strict=True)) for starts, (_, numbers) in zip(places, read, strict=True)]
        encodings, number = batch.encodings or [], self.number_token_id
        samples = batch.get("overflow_to_sample_mapping", range(len(encodings)))
        rows = [
            [
                values[sample][start] if token == number else 1.0
                for token, (start, _) in zip(encoding.ids, encoding.offsets, strict=True)
            ]
            for sample, encoding in zip(samples, encodings, strict=True)
        ]
        unbatched = single and "overflow_to_sample_mapping" not in batch
        batch["number_values"] = rows[0] if unbatched else rows
        return batch.convert_to_tensors(tensors, prepend_batch_axis=unbatched)
