"""Files to examples to batches. All but ``chat``, ``encode`` and ``collate`` is text: no torch, no tokenizer."""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.data.dataset import dataset_named as dataset_named
    from ntl.data.prepared import Prepared as Prepared
    from ntl.data.prepared import load_dataset as load_dataset

__getattr__, __all__ = exports(__name__, __file__)
