"""The models that a model config builds, from token ids to logits."""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.losses.fast import LMHead as LMHead
    from ntl.models.interface import checked_lm_head as checked_lm_head
    from ntl.models.interface import hidden_states as hidden_states
    from ntl.models.interface import lm_head as lm_head
    from ntl.models.pretrained import embedding_rows as embedding_rows

__getattr__, __all__ = exports(__name__, __file__)
