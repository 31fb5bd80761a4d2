"""Files to examples to batches. All but ``encode`` and ``collate`` is text: no torch, no tokenizer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.data.base import Material as Material
    from ntl.data.base import TextDataset as TextDataset
    from ntl.data.loading import dataset_named as dataset_named
    from ntl.data.loading import load_dataset as load_dataset
    from ntl.data.store import Example as Example
    from ntl.data.store import Rows as Rows

_EXPORTS = {
    "Example": "store",
    "Material": "base",
    "Rows": "store",
    "TextDataset": "base",
    "dataset_named": "loading",
    "load_dataset": "loading",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
