"""Weights of labels: of a row or of parts of its answer, and 0 in the number loss at numbers that are labels.

Those of T labels are (T,), or with a pattern (T, 2): of cross entropy and of the number loss. ``ntl.losses.ce_ntl``
takes both.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

_BYTE = re.compile("<0x([0-9A-F]{2})>")


class TokenTexts:
    """What each token of a tokenizer adds to a text, as bytes: ``texts(ids)``; nothing for a special token."""

    def __init__(self, tokenizer: Any) -> None:
        from ntl.tokenizers.load import special_ids  # here: a table is read without transformers

        self.tokenizer, self.bytes_of, self.special = tokenizer, dict[str, int](), special_ids(tokenizer)
        if "ByteLevel" in json.dumps(json.loads(tokenizer.backend_tokenizer.to_str())["decoder"]):
            from transformers.convert_slow_tokenizer import bytes_to_unicode

            self.bytes_of = {char: byte for byte, char in bytes_to_unicode().items()}

    def __call__(self, ids: Sequence[int]) -> list[bytes]:
        tokens = self.tokenizer.convert_ids_to_tokens(ids)
        return [b"" if int(id) in self.special else self._bytes(token) for id, token in zip(ids, tokens, strict=True)]

    def _bytes(self, token: str) -> bytes:
        if self.bytes_of and all(char in self.bytes_of for char in token):
            return bytes(map(self.bytes_of.__getitem__, token))
        return bytes([int(match[1], 16)]) if (match := _BYTE.fullmatch(token)) else token.replace("▁", " ").encode()


def matched(texts: Sequence[bytes], pattern: re.Pattern[str]) -> np.ndarray:
    """Which tokens (T,) a match of the pattern in their joint text touches; a space at its beginning is left out."""
    texts = [texts[0].lstrip(), *texts[1:]] if texts else []
    text = b"".join(texts).decode("utf-8", "surrogateescape")
    inside = np.zeros(len(texts), bool)
    ends = list(accumulate(map(len, texts)))
    for match in pattern.finditer(text):
        first, last = (len(text[:place].encode("utf-8", "surrogateescape")) for place in match.span())
        inside |= (np.array(ends) > first) & (np.array([0, *ends[:-1]]) < last)
    return inside


def of_parts(texts: Sequence[bytes], answer: str, weight: float | Sequence[tuple[int, float]]) -> np.ndarray:
    """The weight of each token (T,) of an answer; a list has the characters and the weight of each of its parts.

    Tokens before the answer have the weight of its first character, tokens behind it the weight of its last. ValueError
    for an answer with parts that the tokens do not write as it stands.
    """
    if not isinstance(weight, Sequence):
        return np.full(len(texts), weight, np.float32)
    of_chars = np.repeat([value for _, value in weight], [length for length, _ in weight])
    of_bytes = np.repeat(of_chars, [len(char.encode()) for char in answer])
    written = answer.strip().encode()
    start = b"".join(texts).find(written)
    if start < 0:
        raise ValueError(
            "the tokenizer does not write it as it stands, so that its parts cannot be found; give one weight"
        )
    places = np.cumsum(list(map(len, texts))) - 1 - start
    return of_bytes[answer.encode().find(written) :][places.clip(0, len(written) - 1)].astype(np.float32)


def checked(value: Any, name: str) -> float:
    """A weight as a number. ValueError for what is no finite number of at least 0."""
    try:
        weight = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise ValueError(f"{name!r} is {value!r}: a weight is a finite number of at least 0, such as 0.5")
    return weight


class WeightedCollator:
    """A collator of Trainer or TRL whose batches have ``loss_weights`` as well, for `NumberTokenLoss`.

    ``columns`` of the data set, one number for each row or one for each label, are multiplied; leave
    ``remove_unused_columns=False``. Numbers in text that the regular expression ``exclude_numbers`` matches, as the
    ``tokenizer`` writes the labels, have weight 0 in the number loss.

    Args:
        collator: Makes the batches from the other columns, with ``labels`` (B, T), or (1, T) of rows end to end.
    """

    def __init__(
        self,
        collator: Callable[[list[dict[str, Any]]], dict[str, Any]],
        columns: str | Sequence[str] = (),
        *,
        exclude_numbers: str = "",
        tokenizer: Any = None,
    ) -> None:
        if exclude_numbers and tokenizer is None:
            raise ValueError("exclude_numbers is matched in text: give the tokenizer, too")
        self.collator, self.columns = collator, [columns] if isinstance(columns, str) else [*columns]
        self.pattern = re.compile(exclude_numbers) if exclude_numbers else None
        self.texts = TokenTexts(tokenizer) if self.pattern else None

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        import torch  # with what needs it, since a table is read without it

        from ntl.losses.rows import LOSS_WEIGHTS

        kept = [{name: value for name, value in example.items() if name not in self.columns} for example in examples]
        batch, weights = self.collator(kept), [self._weights(example) for example in examples]
        labels, plain = batch["labels"], [np.asarray(example.get("labels", example["input_ids"])) for example in kept]
        if len(labels) != len(weights):  # end to end
            weights, plain = [np.concatenate(weights)], [np.concatenate(plain)]
        padded = np.ones((*labels.shape, *weights[0].shape[1:]), np.float32)
        for row, ids, of_example, before in zip(padded, labels.numpy(), weights, plain, strict=True):
            length, more = len(of_example), len(row) - len(of_example)
            # The collator pads on either side, with one value, and may ignore further labels.
            right = more >= 0 and (ids[:length] == before).sum() >= (ids[more:] == before).sum()
            if more < 0 or len({*(ids[length:] if right else ids[:more]).tolist()}) > 1:
                raise ValueError(f"the collator makes {len(row)} labels of {length}: no weights for cuts and copies")
            (row[:length] if right else row[more:])[:] = of_example
        return {**batch, LOSS_WEIGHTS: torch.from_numpy(padded)}

    def _weights(self, example: Mapping[str, Any]) -> np.ndarray:
        labels = example.get("labels", example["input_ids"])
        weights = np.ones(len(labels), np.float32)
        for name in self.columns:
            if name not in example:
                raise ValueError(f"no column {name!r} of weights: set remove_unused_columns=False; packing drops it")
            of_row = np.array([checked(value, name) for value in np.ravel(example[name]).tolist()], np.float32)
            if len(of_row) not in (1, len(labels)):
                raise ValueError(
                    f"{name!r} has {len(of_row)} weights for {len(labels)} labels: give one for each, or one"
                )
            weights = weights * of_row
        if self.pattern is None or self.texts is None:
            return weights
        inputs, ids = np.asarray(example["input_ids"]), np.asarray(labels)
        if len(inputs) == len(ids) and (inputs == ids)[ids >= 0].all():
            ids = inputs  # of a decoder: the question is a part of the text
        ids = np.where(ids < 0, min(self.texts.special, default=0), ids).tolist()
        return np.stack([weights, weights * ~matched(self.texts(ids), self.pattern)], axis=-1)
