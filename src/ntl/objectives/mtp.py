"""Multi-token prediction: the losses of several heads, each a given number of tokens ahead, added up.

Shapes: B batch, T sequence length, D hidden size, H heads.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ntl.config.loss import MTPConfig
from ntl.losses import JointLoss
from ntl.losses.rows import IGNORE_INDEX
from ntl.losses.sums import SumCount
from ntl.models.interface import checked_lm_head, hidden_states, is_sharded, lm_head, own_end_ids
from ntl.models.mtp import Heads
from ntl.objectives.next_token import NextToken

# (head, what the unembedding reads of it, its logits if they are there) -> its weighted loss
HeadLoss = Callable[..., Tensor]


def labels_ahead(labels: Tensor, ahead: int, ends: Sequence[int], documents: Tensor | None = None) -> Tensor:
    """Return the labels (B, T) of the head that predicts ``ahead`` tokens beyond the next one.

    They are -100 where ``labels`` are, beyond the end of a row, and beyond an end token, which no head looks across: in
    packed text, another document begins there. ``documents`` (B, T) of the input say it in place of end tokens.
    """
    shifted = values_ahead(labels, ahead, IGNORE_INDEX)
    if documents is not None:
        return shifted.masked_fill(values_ahead(documents, ahead + 1, -1) != documents, IGNORE_INDEX)
    for between in range(ahead):
        for end in ends:
            shifted = shifted.masked_fill(values_ahead(labels, between, IGNORE_INDEX) == end, IGNORE_INDEX)
    return shifted


def scheduled(weights: Sequence[float], schedule: str, progress: float) -> list[float]:
    """Return the heads' factors after a share of the training, 0 to 1, which has as many equal parts as heads.

    ``forward`` adds a head in each part and ``reverse`` takes one away (Aynetdinov and Akbik, 2025). ``annealed`` lets
    the last head fade to 0 in the first part, the one before it in the second, and so on.
    """
    part, count = progress * len(weights), len(weights)
    shares = {
        "constant": [1.0] * count,
        "forward": [float(part >= index) for index in range(count)],
        "reverse": [float(index == 0 or part < count - index) for index in range(count)],
        "annealed": [min(max(count - index - part, 0.0), 1.0) if index else 1.0 for index in range(count)],
    }[schedule]
    return [weight * share for weight, share in zip(weights, shares, strict=True)]


def values_ahead(values: Tensor, places: int, beyond: int) -> Tensor:
    """Return values (B, T, ...) moved by some places, with ``beyond`` at the end."""
    end = values.new_full((values.shape[0], places, *values.shape[2:]), beyond)
    return torch.cat([values[:, places:], end], dim=1)[:, : values.shape[1]]


class MultiTokenPrediction(NextToken):
    """The weighted sum over heads of `NextToken`'s loss, head k on the labels k - 1 places further on.

    Every head's terms are divided by that head's own counts. With ``one_at_a_time``, heads run forward and backward one
    after the other (Gloeckle et al., 2024, Section 2), inside one autograd function.

    Attributes:
        progress: The share of the training that is done, 0 to 1, which ``head_schedule`` reads.
    """

    def __init__(self, config: MTPConfig, *, model: PreTrainedModel, **given: Any) -> None:
        super().__init__(config, model=model, **given)
        self.settings = config
        self.num_heads, self.progress = config.heads, 0.0
        self.weights = list(config.head_weights) or [1.0] * config.heads
        checked_lm_head(model)

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - a decoder alone
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        labels: Tensor,
        counts: Tensor | None = None,
        loss_weights: Tensor | None = None,
    ) -> JointLoss:
        """Compute the total, and sums and counts of the terms of each head.

        ``labels`` (B, T) are the next tokens, as of `NextToken`, and ``counts`` (H, 2) the denominators of the total in
        training, by default the counts of this batch. A head's labels have their weights.
        """
        how = "reference"
        if self.training:
            how = how if counts is None else self.implementation(input_ids.device)
            counts = self.count(labels, loss_weights) if counts is None else counts
        loss, joints = self.losses(labels, counts, loss_weights, how)
        if self.settings.kind == "shared":
            inputs: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
            read = (hidden_states(self.model, **inputs),) if how == "linear" else ()
            read = read or (None, self.model(**inputs, use_cache=False).logits)
            total = torch.stack([loss(index, *read) for index in range(self.num_heads)]).sum()
        else:
            heads = Heads(self.model, self.settings, input_ids, attention_mask)
            total = self._total(heads, lambda index, states: loss(index, heads.read(states)))
        return self.joined(total, joints)

    def losses(
        self,
        labels: Tensor,
        counts: Tensor | None,
        loss_weights: Tensor | None,
        how: str,
        documents: Tensor | None = None,
    ) -> tuple[HeadLoss, dict[int, JointLoss]]:
        """Return the loss of each head, and where a call of it leaves the head's terms; arguments as of ``forward``."""
        joints: dict[int, JointLoss] = {}
        factors = scheduled(self.weights, self.settings.head_schedule, self.progress)

        def loss(index: int, hidden_BTD: Any, logits_BTV: Any = None) -> Tensor:
            diagnosed, over = self.diagnosed, None if counts is None else counts[index]
            head_labels, weights = self._ahead(index, labels, loss_weights, documents)
            if how == "linear" and logits_BTV is None:
                joint = self._joint(hidden_BTD, head_labels, over, weights, how, lm_head(self.model))
            else:
                logits: Any = lm_head(self.model).logits(hidden_BTD) if logits_BTV is None else logits_BTV
                joint = self._joint(logits, head_labels, over, weights, "fused" if how == "linear" else how)
            correct = SumCount(torch.zeros_like(joint.base.sum), torch.zeros_like(joint.base.count))
            if not self.training:
                counted, _ = self.loss.counted(head_labels, weights)
                correct = SumCount(((logits.argmax(-1) == head_labels) * counted).sum(-1), joint.base.count)
            if index:  # the diagnostics are of head 1
                self.diagnosed = diagnosed
            # Without the graph, which would otherwise be held until all heads are done.
            joints[index] = joint._replace(total=joint.total.detach(), heads=((joint.base, joint.number, correct),))
            return factors[index] * joint.total

        return loss, joints

    def joined(self, total: Tensor, losses: dict[int, JointLoss]) -> JointLoss:
        """Return the total with the terms of all heads."""
        of_heads = tuple(head for index in range(self.num_heads) for head in losses[index].heads)
        return losses[0]._replace(total=total, heads=of_heads)

    def count(self, labels: Tensor, loss_weights: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """Return how many labels CE and NTL count at each head, or the sums of their weights, (H, 2)."""
        of_heads = (self._ahead(index, labels, loss_weights, documents) for index in range(self.num_heads))
        return torch.stack([NextToken.count(self, *of_head) for of_head in of_heads])

    def _ahead(
        self, index: int, labels: Tensor, weights: Tensor | None, documents: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the labels (B, T) of a head and their weights."""
        labels = labels_ahead(labels, index, own_end_ids(self.model), documents)
        return labels, None if weights is None else values_ahead(weights, index, 0)

    def _total(self, heads: Heads, loss: Callable[[int, Tensor], Tensor]) -> Tensor:
        again = torch.is_grad_enabled() and self.training and self.settings.one_at_a_time
        if again and not is_sharded(self.model):
            parameters = [weight for weight in nn.ModuleList(heads.modules).parameters() if weight.requires_grad]
            return _OneAtATime.apply(heads, loss, heads.trunk, *parameters)
        # Sharded weights are gathered by hooks of the backward pass, so that each head is computed again there.
        total: Any = 0.0
        for chain in heads.chains:
            states = heads.trunk
            for index in chain:
                states = maybe_again(again, heads.state, index, states)
                total = total + maybe_again(again, loss, index, states)
        return total


def maybe_again(again: bool, function: Callable[..., Tensor], *args: Any) -> Tensor:
    return checkpoint(function, *args, use_reentrant=False) if again else function(*args)  # pyright: ignore


class _OneAtATime(torch.autograd.Function):
    """Map the trunk's output and the parameters of the heads to the total; the gradients are computed in the forward.

    The states of a chain are held until its last head is done, and the backward goes from there towards the trunk.
    """

    @staticmethod
    def forward(ctx: Any, heads: Heads, loss: HeadLoss, trunk: Tensor, *parameters: Tensor) -> Tensor:
        sums: list[Any] = [None] * (1 + len(parameters))
        totals = []

        def backward(output: Tensor, gradient: Any, leaf: Tensor) -> Tensor:
            """Add the gradients of the parameters; return the leaf's."""
            with torch.autocast(leaf.device.type, enabled=False):
                grad, *others = torch.autograd.grad(output, [leaf, *parameters], gradient, allow_unused=True)
            add(others, 1)
            return torch.zeros_like(leaf) if grad is None else grad

        def add(gradients: Any, first: int) -> None:
            for place, gradient in enumerate(gradients, first):
                if gradient is not None:  # at first a copy: what autograd returns for two tensors may be one
                    sums[place] = gradient.clone() if sums[place] is None else sums[place].add_(gradient)

        for chain in heads.chains:
            after, held, incoming = trunk, [], None
            for index in chain:
                before = after.detach().requires_grad_()
                with torch.enable_grad():
                    after = heads.state(index, before)
                held.append((index, before, after))
            while held:
                index, before, after = held.pop()
                leaf = after.detach().requires_grad_()
                with torch.enable_grad():
                    total = loss(index, leaf)
                totals.append(total.detach())
                leaf_grad = backward(total, None, leaf)
                incoming = backward(after, leaf_grad if incoming is None else incoming + leaf_grad, before)
                del total, leaf, leaf_grad, before, after
            add([incoming], 0)
        ctx.gradients = sums
        return torch.stack(totals).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("objective=mtp allows one backward pass; set objective.one_at_a_time=false for more")
        if grad.device.type == "cpu" and grad == 1:  # a pass over all of them, for nothing
            return None, None, *gradients
        return None, None, *(None if tensor is None else tensor.mul_(grad.to(tensor.dtype)) for tensor in gradients)
