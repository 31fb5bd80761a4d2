"""Token ids of texts from those of their words, where a tokenizer never looks across a space."""

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

from tokenizers import Tokenizer

# They change no printable ASCII.
_NORMALIZERS = {"Precompiled", "NFC", "NFKC"}
_KNOWN = 200_000  # words whose ids are kept, about 80 MB


class WordEncoder:
    """``encoder(texts)``: the ids of each text, those of ``backend`` without special tokens, from those of its words.

    Most words of a data set recur, and each is tokenized once. Tokenized whole are texts that are not of ASCII, or have
    two spaces in a row, and all texts of a tokenizer of which it is not known that it divides a text at each space.
    """

    def __init__(self, backend: Tokenizer) -> None:
        self.backend, self.known = backend, dict[str, list[int]]()
        self.divides = _divides_at_spaces(json.loads(backend.to_str()))

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [self._words(text) for text in texts]
        if len(self.known) > _KNOWN:
            self.known.clear()
        words = [word for word in dict.fromkeys(chain.from_iterable(parts)) if word not in self.known]
        whole = [text for text, words_of in zip(texts, parts, strict=True) if not words_of]
        found = (each.ids for each in self.backend.encode_batch_fast([*words, *whole], add_special_tokens=False))
        self.known.update(zip(words, found, strict=False))
        known = self.known.__getitem__
        return [[*chain.from_iterable(map(known, words_of))] if words_of else next(found) for words_of in parts]

    def _words(self, text: str) -> list[str]:
        if not (self.divides and text.isascii() and text.isprintable()) or "  " in text:
            return []
        return text.replace(" ", "\0 ").split("\0")


def _divides_at_spaces(state: dict[str, Any]) -> bool:
    """Whether no token and no rule of a tokenizer.json goes across a single space: T5's and GPT-2's kinds."""
    steps, normalizers = (_parts(state[name]) for name in ("pre_tokenizer", "normalizer"))
    by_spaces = any(each["type"] == "WhitespaceSplit" for each in steps[:1])
    of_digits = all(each["type"] == "Digits" or each.get("pattern") == {"Regex": "[0-9]"} for each in steps[:-1])
    by_bytes = of_digits and steps and steps[-1]["type"] == "ByteLevel" and steps[-1]["use_regex"]
    return (
        bool(by_spaces or by_bytes)
        and _NORMALIZERS.issuperset(each["type"] for each in normalizers)
        and all(each["special"] for each in state["added_tokens"])
    )


def _parts(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    if step is None:
        return []
    return step.get("pretokenizers") or step.get("normalizers") or [step]
