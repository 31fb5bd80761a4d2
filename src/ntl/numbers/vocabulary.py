"""The number tokens of a vocabulary and their values, and which numbers of a text they are.

Shape suffixes: V vocabulary, K number tokens.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ntl.numbers.text import find_place_tokens, number_spans

_DIGITS = frozenset("0123456789")
# Texts to check how a tokenizer writes numbers: short and long ones, alone, after a space and in a sentence.
_SAMPLES = ("7", "12", " 374", "2024", "It takes 15 of 860 steps.", "90536")
_REMEDY = "load the tokenizer with ntl.tokenizers.load_tokenizer, which makes each digit a token of its own"
# Number losses are large beside cross entropy where values span more than this. Our choice; digits span 9.
_WIDE_SPAN = 100.0
_WORD_START = re.compile("[▁Ġ ]")
_NUMBER_TOKEN = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_MERGED = re.compile("[▁Ġ ]?[+-]?[0-9.,]*[0-9][0-9.,]*%?")
MAX_LINES = 10  # of a printed list
# The byte-fallback token of any byte except the ASCII digits.
OTHER_BYTE = re.compile("<0x(?!3[0-9])[0-9A-Fa-f]{2}>")
_DIGIT = re.compile("[0-9]")
_NUMERAL = re.compile(r"[▁Ġ ]?[+-]?[0-9]*\.?[0-9]*")


@dataclass(frozen=True, eq=False)
class NumberVocabulary:
    """The number tokens of a vocabulary: all that the number losses and number decoding know of a tokenizer.

    Attributes:
        values: (V,) float32, the value of each token id; NaN for tokens that are not numbers.
        token_ids: (K,) int64, the ids of the number tokens, ascending.
        token_values: (K,) float32, their values.
        min_logits: The least width of the logits, which is the largest number-token id + 1.
        vocab_size: The exact width that the logits must have; None if only the least width is known.
    """

    values: Tensor
    token_ids: Tensor
    token_values: Tensor
    min_logits: int
    vocab_size: int | None = None

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, *, digits_only: bool = True, vocab_size: int | None = None) -> Self:
        """Find the number tokens of a tokenizer, which is left unchanged.

        Of tokens ``_d_e_`` of the Regression Transformer, only these are number tokens, and the value of each is its
        digit d, whatever its place e (``ignore_order=True`` in the original code). Warns of digits that are no tokens,
        and with digits_only=False of numbers that are written with other tokens.

        Args:
            tokenizer: Any object with `get_vocab() -> {token: id}`; one with `encode` is checked on a few numbers.
            digits_only: Whether only the bare "0" ... "9" are number tokens. Otherwise it is every token that matches
                `[+-]?[0-9]+(\\.[0-9]*)?` in ASCII after a word-start mark ("▁", "Ġ", or a space) is stripped.
            vocab_size: V, the exact width of the model's logits, if it is known.

        Raises:
            TypeError: The object is not a tokenizer.
            ValueError: The vocabulary has no number tokens, the tokenizer does not write numbers digit by digit
                although digits_only is set, or vocab_size is too small for the tokenizer's ids.
        """
        if not hasattr(tokenizer, "get_vocab"):
            what = f"{tokenizer!r}, a str," if isinstance(tokenizer, str) else f"a {type(tokenizer).__name__}"
            raise TypeError(
                f"{what} is no tokenizer: give an object with get_vocab(), such as "
                "ntl.tokenizers.load_tokenizer(folder_or_hub_id)"
            )
        vocab: dict[str, int] = tokenizer.get_vocab()
        needed = max(vocab.values(), default=-1) + 1
        if vocab_size is not None and vocab_size < needed:
            raise ValueError(
                f"vocab_size={vocab_size} does not hold the tokenizer's largest token id {needed - 1}: "
                f"resize the model's embedding to at least {needed}, or leave vocab_size out"
            )
        values = torch.full((vocab_size or needed,), math.nan, dtype=torch.float32)
        places = find_place_tokens(vocab)
        value_of = {token_id: float(digit) for token_id, (digit, _) in places.items()}
        if not places:
            value_of = {token_id: _token_value(token, digits_only) for token, token_id in vocab.items()}
        values[torch.tensor([*value_of], dtype=torch.int64)] = torch.tensor([*value_of.values()], dtype=torch.float32)
        number_vocab = replace(cls.from_values(values.masked_fill(values.isinf(), math.nan)), vocab_size=vocab_size)
        if not places and hasattr(tokenizer, "encode"):
            _check_writing(tokenizer, vocab, set(number_vocab.token_ids.tolist()), digits_only)
        if digits_only and not places and (absent := sorted(_DIGITS - vocab.keys())):
            warnings.warn(
                f"the tokenizer has no token {', '.join(absent)}, so that the number loss ignores these digits; use a "
                "tokenizer that has all ten, or digits_only=False if it writes them in longer tokens",
                stacklevel=2,
            )
        return number_vocab

    @classmethod
    def from_values(cls, values: Tensor | Sequence[float]) -> Self:
        """Create the vocabulary whose token id i has the value `values[i]`, NaN for a token that is not a number.

        Raises ValueError if the values (V,) are not one-dimensional, contain infinities, or are all NaN.
        """
        values_V = torch.as_tensor(values, dtype=torch.float32)
        if values_V.dim() != 1:
            raise ValueError(f"values must have shape (V,), not {tuple(values_V.shape)}")
        if values_V.isinf().any():
            raise ValueError("values must be finite in float32: use NaN for tokens that are not numbers")
        token_ids = (~values_V.isnan()).nonzero().squeeze(-1)
        if not len(token_ids):
            raise ValueError(
                "the vocabulary has no number token: use a digit-level tokenizer (tokenizer=digit), "
                "or digits_only=False for one whose number tokens carry a word-start mark or several digits"
            )
        return cls(values_V, token_ids, values_V[token_ids], int(token_ids[-1]) + 1)

    @classmethod
    def without_numbers(cls, size: int) -> Self:
        """Create the vocabulary of ``size`` tokens of which none is a number."""
        none = torch.full((size,), torch.nan)
        return cls(none, none[:0].long(), none[:0], 0)

    @property
    def is_wide(self) -> bool:
        """Whether the values span more than 100, so that distances between them make large losses."""
        smallest, largest = self.token_values.aminmax()
        return bool(largest - smallest > _WIDE_SPAN)

    def to(self, device: torch.device | str) -> Self:
        """Return the same vocabulary with its tensors on `device`."""
        values, token_ids, token_values = (t.to(device) for t in (self.values, self.token_ids, self.token_values))
        return replace(self, values=values, token_ids=token_ids, token_values=token_values)


def _check_writing(tokenizer: Any, vocab: dict[str, int], numbers: set[int], digits_only: bool) -> None:
    """Raise ValueError or warn if the tokenizer writes numbers with tokens that are not in ``numbers``."""
    # A few may be merged, or added, in a tokenizer that splits all others.
    merged = sorted({_WORD_START.sub(" ", token, count=1) for token in vocab if _MERGED.fullmatch(token)} - _DIGITS)
    samples = [*_SAMPLES, *(merged if digits_only else [])]
    written = [list(getattr(encoded := tokenizer.encode(sample), "ids", encoded)) for sample in samples]
    used = {token_id for ids in written for token_id in ids}
    token_of = {token_id: token for token, token_id in vocab.items() if token_id in used}
    missed = {i for i, token in token_of.items() if i not in numbers and _has_digit(token)}
    example = next((k for k, ids in enumerate(written) if missed & {*ids} or not used & numbers), None)
    if example is None:
        return
    tokens = " ".join(token_of.get(i, f"<id {i}>") for i in written[example])
    problem = f"the tokenizer writes {samples[example].strip()!r} as {tokens!r}: "
    if digits_only:
        raise ValueError(
            f"{problem}with digits_only=True only the ten bare digits count; {_REMEDY}, or use digits_only=False"
        )
    if not used & numbers:
        raise ValueError(f"{problem}no number token of its vocabulary is among them; take another tokenizer")
    ignored = " ".join(sorted(token_of[i] for i in missed))
    warnings.warn(
        f"{problem}{ignored!r} are not number tokens, so that the number loss ignores them; {_REMEDY}", stacklevel=3
    )


def _token_value(token: str, digits_only: bool) -> float:
    if digits_only:
        return float(token) if token in _DIGITS else math.nan
    text = token[1:] if _WORD_START.match(token) else token
    return float(text) if _NUMBER_TOKEN.fullmatch(text) else math.nan


# ---- which numbers of a text the number losses see, as the tokenizer writes them


class Missed(NamedTuple):
    """A number that the loss does not see: its text, the tokens that write its digits, and the reason."""

    number: str
    pieces: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Coverage:
    """How many numbers of a sample the loss sees, and those that it does not see, in order."""

    seen: int
    missed: tuple[Missed, ...]

    @property
    def share(self) -> float:
        """The share of the numbers that are seen; NaN if there is none."""
        total = self.seen + len(self.missed)
        return self.seen / total if total else math.nan

    def __str__(self) -> str:
        """The share, and the numbers that are missed most often, each with its tokens and the reason."""
        if math.isnan(self.share):
            return "there is no number in these texts"
        lines = [f"the loss sees {self.seen:,} of {self.seen + len(self.missed):,} numbers ({self.share:.1%})"]
        counted = Counter(self.missed).most_common()
        for missed, times in counted[:MAX_LINES]:
            often = f" ({times} times)" if times > 1 else ""
            lines.append(f"  {missed.number}{often} as {' '.join(missed.pieces)!r}: {missed.reason}")
        if len(counted) > MAX_LINES:
            lines.append(f"  and {len(counted) - MAX_LINES:,} more")
        return "\n".join(lines)


def coverage(texts: Iterable[str], tokenizer: Any, number_ids: Set[int]) -> Coverage:
    """Find the numbers of all texts (``ntl.numbers.text.number_spans``) and how the tokenizer writes each.

    The loss sees a number if every token that writes one of its digits is a number token. Signs, points and commas do
    not count: as tokens of their own they have no value.

    Args:
        texts: A sample of what the model is trained on.
        tokenizer: One of transformers or of tokenizers, which says where in the text each token is. Of any other, and
            of one with tokens ``_d_e_``, each number is encoded alone, after a space.
        number_ids: The ids of the number tokens.

    Raises TypeError if ``texts`` is a single text.
    """
    if isinstance(texts, str) or hasattr(texts, "columns"):
        raise TypeError(f"texts is a single {type(texts).__name__}: give a list of texts")
    vocab = tokenizer.get_vocab()
    names, unknown = {token_id: token for token, token_id in vocab.items()}, getattr(tokenizer, "unk_token_id", None)
    by_place = bool(find_place_tokens(vocab))
    seen, missed = 0, []
    for text in texts:
        placed = None if by_place else _placed(tokenizer, text)
        for start, end, _ in number_spans(text):
            if placed is None:
                encoded = tokenizer.encode(f" {text[start:end]}")
                ids = [i for i in getattr(encoded, "ids", encoded) if _has_digit(names.get(i, ""))]
            else:
                touching = [i for i, first, last in placed if _DIGIT.search(text[max(first, start) : min(last, end)])]
                # T5's "▁" before a number is placed on its first digit.
                ids = [i for i in touching if i == unknown or _has_digit(names.get(i, ""))] or touching
            outside = [token_id for token_id in ids if token_id not in number_ids]
            if ids and not outside:
                seen += 1
            else:
                pieces = tuple(names.get(token_id, f"<id {token_id}>") for token_id in ids)
                missed.append(Missed(text[start:end], pieces, _reason(outside, names, unknown)))
    return Coverage(seen, tuple(missed))


def _placed(tokenizer: Any, text: str) -> list[tuple[int, int, int]] | None:
    """The id of each token, and where it begins and ends in the text; None if the tokenizer does not say where."""
    try:
        if callable(tokenizer):
            encoded: Any = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
            ids, spans = encoded["input_ids"], encoded["offset_mapping"]
        else:  # of tokenizers
            encoded = tokenizer.encode(text)
            ids, spans = encoded.ids, encoded.offsets
    except (NotImplementedError, AttributeError):
        return None
    return [(token_id, *span) for token_id, span in zip(ids, spans, strict=True)]


def _has_digit(token: str) -> bool:
    return bool(_DIGIT.search(OTHER_BYTE.sub("", token)))


def _reason(outside: list[int], names: dict[int, str], unknown: int | None) -> str:
    written = [names.get(token_id, "") for token_id in outside]
    if unknown in outside:
        return "an unknown token, which stands for any text"
    if not any(map(_has_digit, written)):
        return "no token has its digits"
    if mixed := [name for name in written if not _NUMERAL.fullmatch(name)]:
        return f"{mixed[0]!r} is part number, part other text"
    return f"{written[0]!r} is not a number token of this loss"
