"""Ids in, logits out: what a model config builds."""

from typing import TYPE_CHECKING

from ntl.config.lazy import exports

if TYPE_CHECKING:
    from ntl.models.hub import identity as identity
    from ntl.models.hub import require as require
    from ntl.models.hub import source as source
    from ntl.models.hub import tokenizer_source as tokenizer_source
    from ntl.models.interface import LMHead as LMHead
    from ntl.models.interface import checked_lm_head as checked_lm_head
    from ntl.models.interface import hidden_states as hidden_states
    from ntl.models.interface import lm_head as lm_head
    from ntl.models.pretrained import checkpoint_activations as checkpoint_activations
    from ntl.models.pretrained import embedding_rows as embedding_rows
    from ntl.models.pretrained import fit_vocabulary as fit_vocabulary
    from ntl.models.pretrained import load_pretrained as load_pretrained

__getattr__, __all__ = exports(__name__, __file__)
