"""Ids in, logits out: what a model config builds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.models.hub import require as require
    from ntl.models.hub import source as source
    from ntl.models.interface import LMHead as LMHead
    from ntl.models.interface import checked_lm_head as checked_lm_head
    from ntl.models.interface import hidden_states as hidden_states
    from ntl.models.interface import lm_head as lm_head
    from ntl.models.pretrained import checkpoint_activations as checkpoint_activations
    from ntl.models.pretrained import embedding_rows as embedding_rows
    from ntl.models.pretrained import fit_vocabulary as fit_vocabulary
    from ntl.models.pretrained import load_pretrained as load_pretrained

_EXPORTS = {
    "LMHead": "interface",
    "checkpoint_activations": "pretrained",
    "checked_lm_head": "interface",
    "embedding_rows": "pretrained",
    "fit_vocabulary": "pretrained",
    "hidden_states": "interface",
    "lm_head": "interface",
    "load_pretrained": "pretrained",
    "require": "hub",
    "source": "hub",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
