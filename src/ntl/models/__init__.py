"""Ids in, logits out: what a model config builds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.models.hub import require as require
    from ntl.models.hub import source as source
    from ntl.models.hub import tokenizer_source as tokenizer_source
    from ntl.models.pretrained import embedding_rows as embedding_rows
    from ntl.models.pretrained import fit_vocabulary as fit_vocabulary
    from ntl.models.pretrained import load_pretrained as load_pretrained

_EXPORTS = {
    "embedding_rows": "pretrained",
    "fit_vocabulary": "pretrained",
    "load_pretrained": "pretrained",
    "require": "hub",
    "source": "hub",
    "tokenizer_source": "hub",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
