"""Text to ids and back: published tokenizers, stock or digit-level, and small ones trained on the data."""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.tokenizers.load import load_tokenizer as load_tokenizer
    from ntl.tokenizers.load import tokenizer_fingerprint as tokenizer_fingerprint
    from ntl.tokenizers.train import train_tokenizer as train_tokenizer

__getattr__, __all__ = exports(__name__, __file__)
