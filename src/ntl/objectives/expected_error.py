"""Next-token prediction and the expected error of the whole answer, by the tree of its digits.

Shapes: B batch, T sequence length, E rows whose answer is a number.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ntl.config.loss import ExpectedErrorConfig
from ntl.losses import JointLoss
from ntl.losses.rows import IGNORE_INDEX
from ntl.losses.sums import SumCount, mean
from ntl.models.interface import has_fixed_mask
from ntl.numbers import parse_number
from ntl.objectives.next_token import NextToken
from ntl.system.errors import UserError


class ExpectedError(NextToken):
    """`NextToken`, and weight times the `expected_error` of each row whose labels write a number.

    The prompt of a row is its input, of a decoder up to the first label. The number term of the result is the sum of
    these errors, and its count the number of these rows. ``masses(model, prompts)`` and ``error(*masses, targets)`` are
    the functions of `ntl.decoding.expected_error` with their other arguments; ``tokens`` are the number tokens.
    """

    def __init__(self, config: ExpectedErrorConfig, *, tokens: Any, masses: Any, error: Any, **given: Any) -> None:
        super().__init__(config, **given)
        self.settings, self.tokens, self.masses, self.error = config, tokens, masses, error
        self.number_weight = config.weight
        # The labels that were read last, their version, which writing over them changes, and their numbers.
        self.read: tuple[Tensor, int, dict[int, float]] | None = None
        self.pieces = dict(zip(tokens.ids.tolist(), tokens.pieces, strict=True))

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - no weights of labels
        self,
        labels: Tensor,
        counts: Tensor | None = None,
        *,
        input_ids: Tensor,
        attention_mask: Tensor,
        **inputs: Any,
    ) -> JointLoss:
        """As `NextToken.forward`, without weights of labels."""
        read = self._read_once(input_ids, attention_mask)
        given = {"input_ids": input_ids, "attention_mask": attention_mask, **inputs, **read}
        joint, targets = super().forward(labels, counts, **given), self._targets(labels)
        writes_B = self._writes(labels, targets)
        errors_B = joint.total.new_zeros(len(labels))
        if targets and joint.total.isfinite().all():  # a trainer stops at another one
            rows = torch.tensor([*targets]).to(labels.device, non_blocking=True)
            prompts = self._prompts(input_ids[rows], attention_mask[rows], labels[rows], rows, read)
            values, log_masses = self.masses(self.model, prompts)
            try:
                numbers_E = torch.tensor([*targets.values()], dtype=values.dtype)
                errors_E = self.error(values, log_masses, numbers_E.to(values.device, non_blocking=True))
            except ValueError as error:
                raise UserError(f"objective.num_beams={self.settings.num_beams} objective.grid: {error}.") from error
            errors_B = errors_B.index_put((rows,), errors_E.to(errors_B.dtype))
        errors, count = (errors_B.sum(), writes_B.sum()) if self.training else (errors_B, writes_B)
        over = count if counts is None or not self.training else counts[1]
        total = joint.total + self.settings.weight * mean(errors, over)
        return joint._replace(total=total, number=SumCount(errors.detach(), count))

    def count(self, labels: Tensor, loss_weights: Tensor | None = None) -> Tensor:
        """Return how many labels there are, and how many rows write a number, (2,)."""
        return torch.stack([(labels != IGNORE_INDEX).sum(), self._writes(labels, self._targets(labels)).sum()])

    def _writes(self, labels: Tensor, targets: Mapping[int, float]) -> Tensor:
        """Return 1 for each row with a target, (B,)."""
        writes_B = torch.tensor([int(row in targets) for row in range(len(labels))])
        return writes_B.to(labels.device, non_blocking=True)

    def _targets(self, labels: Tensor) -> dict[int, float]:
        """Return the number that the labels of each row write; a row whose labels write none is left out."""
        version = -1 if labels.is_inference() else labels._version
        if self.read is not None and self.read[0] is labels and self.read[1] == version:
            return self.read[2]  # to read them again would wait for a GPU
        targets = {}
        for row, ids in enumerate(labels.tolist()):
            answer = [token_id for token_id in ids if token_id != IGNORE_INDEX and token_id not in self.tokens.end_ids]
            number = parse_number("".join(self.pieces.get(token_id, "?") for token_id in answer).strip())
            if number is not None:
                targets[row] = float(number)
        self.read = labels, version, targets
        return targets

    def _read_once(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Any]:
        """Return further inputs of the model's forward pass, which keep what the answers' prefixes read there."""
        if self.model.config.is_encoder_decoder:
            encoder: Any = self.model.get_encoder()
            return {"encoder_outputs": (encoder(input_ids=input_ids, attention_mask=attention_mask)[0],)}
        cache = DynamicCache(config=self.model.config)
        # The cache holds labels, too, which can be masked only where it is of full attention.
        is_plain = not has_fixed_mask(self.model) and all(type(layer) is DynamicLayer for layer in cache.layers)
        return {"past_key_values": cache, "use_cache": True} if is_plain else {}

    def _prompts(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, rows: Tensor, read: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the inputs of ``masses``: a row's prompt is its input, of a decoder up to the first label."""
        if self.model.config.is_encoder_decoder:
            encoded = read["encoder_outputs"][0][rows]
            return {"input_ids": input_ids, "attention_mask": attention_mask, "encoded": encoded}
        first = (labels != IGNORE_INDEX).long().argmax(-1, keepdim=True)
        is_prompt = (torch.arange(labels.shape[1], device=labels.device) <= first) & attention_mask.bool()
        if read:  # the last token of a prompt is read again, for its logits
            read["past_key_values"].batch_select_indices(rows)
            mask = F.pad(is_prompt.scatter(1, first, False).long(), (0, 1), value=1)
            return {"input_ids": input_ids.gather(1, first), "attention_mask": mask, **read}
        longest = int(is_prompt.sum(1).max())
        order = is_prompt.int().argsort(dim=1, stable=True)[:, -longest:]  # padding on the left
        return {"input_ids": input_ids.gather(1, order), "attention_mask": is_prompt.gather(1, order).long()}
