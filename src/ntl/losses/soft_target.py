"""DIST2Loss (arXiv 2503.02379): a soft target that falls with the squared distance, among number tokens alone.

Shape suffixes: V vocabulary, K number tokens, N the number-labelled positions.
"""

from torch import Tensor

from ntl.losses.kinds import register
from ntl.losses.rows import Logits, Reduction, number_rows, reduce
from ntl.numbers import NumberVocabulary


def dist2(
    logits: Logits,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    temperature: float = 1.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return KL(t ‖ q) = Σ_k t_k log(t_k / q_k) with the target t_k ∝ exp(−(v_k − y)²/τ), τ the temperature.

    q is the softmax over the K number tokens alone, as in the public code; in the paper it is over all tokens, which is
    `gaussian_cross_entropy` with sigma = √(τ/2) up to a constant. The loss is least at q = t, and so rises again where
    the model becomes sure of the label. The gradient is ∂L/∂z_j = q_j − t_j.

    logits are (..., V), labels (...). The mean is over number labels. The loss is inf if a number token with positive
    target mass has the logit -inf. Raises ValueError for a temperature that is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, not {temperature}")
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    distance_NK = (rows.values_K - rows.targets_N.unsqueeze(-1)).square()
    log_target_NK = (-distance_NK / temperature).log_softmax(dim=-1)
    target_NK, log_q_NK = log_target_NK.exp(), rows.logits_NK.log_softmax(dim=-1)
    # Far from the label the target underflows to 0, and 0 · -inf must be 0.
    each_NK = target_NK * (log_target_NK - log_q_NK.masked_fill(target_NK == 0, 0.0))
    return reduce(each_NK.sum(dim=-1), rows, labels, reduction)


register("dist2", dist2, distance=False)
