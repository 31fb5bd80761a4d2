"""Text to ids and back: stock and digit-level segmentation of published tokenizers, and tiny trained ones."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.tokenizers.describe import count_unknown as count_unknown
    from ntl.tokenizers.describe import tokenizer_fingerprint as tokenizer_fingerprint
    from ntl.tokenizers.load import load_tokenizer as load_tokenizer
    from ntl.tokenizers.train import train_tokenizer as train_tokenizer
    from ntl.tokenizers.vocabulary import number_vocabulary as number_vocabulary

_EXPORTS = {
    "count_unknown": "describe",
    "load_tokenizer": "load",
    "number_vocabulary": "vocabulary",
    "tokenizer_fingerprint": "describe",
    "train_tokenizer": "train",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
