"""Training objectives, as ``train.py`` runs them and as plug-ins for other trainers.

An objective of ``train.py`` is a module that wraps a model and computes the loss in its forward.
"""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.objectives.masking import MaskedInput as MaskedInput
    from ntl.objectives.multi_token import MultiToken as MultiToken

__getattr__, __all__ = exports(__name__, __file__)
