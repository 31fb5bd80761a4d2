"""What can be said about a tokenizer: its identity, and the texts it cannot write."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from transformers import PreTrainedTokenizerFast


def backend_state(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The content of tokenizer.json, without the padding and truncation that the last call left behind."""
    return json.loads(tokenizer.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """sha256 (hex) of the canonical tokenizer.json: the same behaviour, the same key, wherever it was loaded from."""
    text = json.dumps(backend_state(tokenizer), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def count_unknown(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> int:
    """The number of texts of which some character is lost in ``unk_token``; 0 for a byte-level tokenizer."""
    unknown = tokenizer.unk_token_id
    if unknown is None:
        return 0
    encoded = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return sum(unknown in encoding.ids for encoding in encoded)
