"""The models that a model config builds, from token ids to logits."""

from typing import TYPE_CHECKING

from ntl.system.lazy import exports

if TYPE_CHECKING:
    from ntl.config.model import source as source
    from ntl.config.model import tokenizer_source as tokenizer_source
    from ntl.losses.fast import LMHead as LMHead
    from ntl.models.interface import checked_lm_head as checked_lm_head
    from ntl.models.interface import hidden_states as hidden_states
    from ntl.models.interface import lm_head as lm_head
    from ntl.models.pretrained import checkpoint_activations as checkpoint_activations
    from ntl.models.pretrained import embedding_rows as embedding_rows
    from ntl.models.pretrained import fit_vocabulary as fit_vocabulary
    from ntl.models.pretrained import load_pretrained as load_pretrained
    from ntl.system.hub import identity as identity
    from ntl.system.hub import require as require

__getattr__, __all__ = exports(__name__, __file__)
