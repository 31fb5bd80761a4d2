"""Text to ids and back: stock and digit-level segmentation of published tokenizers, and tiny trained ones."""

from typing import TYPE_CHECKING

from ntl.system.lazy import exports

if TYPE_CHECKING:
    from ntl.tokenizers.describe import tokenizer_fingerprint as tokenizer_fingerprint
    from ntl.tokenizers.load import load_tokenizer as load_tokenizer
    from ntl.tokenizers.train import train_tokenizer as train_tokenizer
    from ntl.tokenizers.vocabulary import number_vocabulary as number_vocabulary

__getattr__, __all__ = exports(__name__, __file__)
