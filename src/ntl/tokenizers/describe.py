"""The identity of a tokenizer."""

import hashlib
import json
from typing import Any

from transformers import PreTrainedTokenizerFast


def backend_state(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The content of tokenizer.json, without the padding and truncation that the last call left behind."""
    return json.loads(tokenizer.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """sha256 (hex) of the canonical tokenizer.json: the same behaviour, the same key, wherever it was loaded from."""
    text = json.dumps(backend_state(tokenizer), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
