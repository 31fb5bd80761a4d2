"""The tokenizer of the Regression Transformer: T5's pieces for text, tokens ``_d_e_`` for numbers."""

from typing import Any

from transformers import PreTrainedTokenizerFast

from ntl.numbers.text import MAX_PLACE, MIN_PLACE, find_place_tokens, place_tokens
from ntl.tokenizers.rt import count_malformed, read, write


class RTTokenizer(PreTrainedTokenizerFast):
    """Reads numbers as :func:`ntl.tokenizers.rt.read` does and writes them as :func:`ntl.tokenizers.rt.write` does.

    Offsets refer to the text in which numbers are written as tokens.
    """

    @classmethod
    def added_tokens(cls, max_place: int = MAX_PLACE) -> tuple[str, ...]:
        """All digits of the places up to ``max_place``."""
        return place_tokens(last=max_place)

    @property
    def max_place(self) -> int:
        """The highest place of the tokens."""
        places = find_place_tokens(self.get_added_vocab()).values()
        return max((place for _, place in places), default=MIN_PLACE - 1)

    @property
    def reader(self) -> str:
        """The dotted name of the function with which encoding processes read numbers (``ntl.data.encode_worker``)."""
        place = self.max_place
        return "ntl.tokenizers.rt.read" if place == MAX_PLACE else f"ntl.tokenizers.rt.read:{place}"

    def count_malformed(self, ids: list[int]) -> int:
        """The number of errors in the numbers that these tokens write."""
        return count_malformed(self._known(ids))

    def _encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **options: Any) -> Any:
        place = self.max_place
        return super()._encode_plus(_read_all(text, place), _read_all(text_pair, place), *args, **options)

    def _decode(self, token_ids: Any, skip_special_tokens: bool = False, **options: Any) -> str:
        ids = token_ids["input_ids"] if isinstance(token_ids, dict) else token_ids
        ids = [ids] if isinstance(ids, int) else ids
        unwritten = frozenset(self.all_special_tokens if skip_special_tokens else ())
        return write(self._known(ids), self.convert_tokens_to_string, unwritten)

    def _known(self, ids: list[int]) -> list[str]:
        # An embedding may have more rows than the tokenizer has tokens.
        tokens = self.convert_ids_to_tokens(list(ids))
        return [token for token in tokens if token is not None]


def _read_all(text: Any, max_place: int) -> Any:
    """A text, or lists of texts at any depth."""
    if isinstance(text, (list, tuple)):
        return type(text)(_read_all(item, max_place) for item in text)
    return read(text, max_place)[0] if isinstance(text, str) else text
