"""Greedy decoding in which a digit is the median, not the mode, of the model's distribution over digits.

Greedy decoding takes the likeliest digit, best where an answer is either right or wrong. The median has the least
expected absolute error of that digit. It costs no further forward pass. Where a whole number is uncertain, its medians
digit by digit are not its median, which ``ntl.decoding.point.median`` finds.

Shape suffixes: B batch, T length so far, V vocabulary, C classes, M most members of a class.
"""

import re
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor

from ntl.decoding.batches import checked
from ntl.decoding.distribution import ROUNDING

_DIGITS = re.compile(r"([▁Ġ ]?)([0-9]+)")


class DigitMedian(LogitsProcessor):
    """A logits processor of transformers, for ``generate``, pipelines and whatever else takes one.

    Where the likeliest token is a digit, it leaves only the median of the digits: the least one at which the
    cumulated probability, among the digits alone, reaches 1/2. Of tokens of several digits these are all that are
    written like the likeliest one: with as many digits, and with or without a mark that a word starts. Signs, points,
    words and ends of text stay the likeliest ones. Rows of a batch do not affect each other, and padding has no effect.

    .. code-block:: python

        model.generate(**inputs, do_sample=False, logits_processor=[DigitMedian(tokenizer)])

    Where others call ``generate``, as in lm_eval, give them a model whose ``generate`` has it:
    ``model.generate = functools.partial(model.generate, logits_processor=[DigitMedian(tokenizer)])``.

    Args:
        tokenizer: Any object with ``get_vocab() -> {token: id}``.

    ValueError: The tokenizer has no tokens of digits; or, when it is called, the search has several beams. Diverged: a
    logit is NaN or +inf.
    """

    def __init__(self, tokenizer: Any) -> None:
        classes: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for token, token_id in tokenizer.get_vocab().items():
            if match := _DIGITS.fullmatch(token):
                mark, digits = match.groups()
                classes.setdefault((mark, len(digits)), []).append((int(digits), token_id))
        if not classes:
            raise ValueError("the tokenizer has no token of digits: DigitMedian needs one that writes numbers by them")
        members = [torch.tensor([token_id for _, token_id in sorted(values)]) for values in classes.values()]
        self.members_CM = torch.nn.utils.rnn.pad_sequence(members, batch_first=True, padding_value=-1)
        size = max(int(ids.max()) for ids in members) + 1
        self.class_V, self.sums_to_1 = torch.full((size,), -1), False
        for number, ids in enumerate(members):
            self.class_V[ids] = number

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (B, V), with -inf at all tokens but the median in rows whose likeliest token is a digit.

        ``input_ids`` (B, T) are not used.
        """
        if scores.device != self.class_V.device:
            self.class_V, self.members_CM = self.class_V.to(scores.device), self.members_CM.to(scores.device)
        # A search of beams adds up log probabilities, whose exponentials sum to 1, and hands those in. The logits of a
        # model trained with a z-loss may do so once by chance, hardly twice in a row.
        last, self.sums_to_1 = self.sums_to_1, bool((checked(scores).double().logsumexp(-1).abs() < 1e-4).all())
        if last and self.sums_to_1:
            raise ValueError("DigitMedian reads one answer at a time: set num_beams=1")
        top_B = scores.argmax(-1)
        class_B = torch.where(top_B < len(self.class_V), self.class_V[top_B.clamp(max=len(self.class_V) - 1)], -1)
        members_BM = self.members_CM[class_B.clamp(min=0)]
        logits_BM = scores.gather(-1, members_BM.clamp(min=0)).double().masked_fill(members_BM < 0, -torch.inf)
        reached_BM = logits_BM.softmax(-1).cumsum(-1) >= 0.5 - ROUNDING
        median_B1 = members_BM.gather(-1, reached_BM.int().argmax(-1, keepdim=True))
        kept_BV = torch.full_like(scores, -torch.inf).scatter(-1, median_B1.clamp(min=0), 0.0)
        return torch.where(class_B[:, None] >= 0, kept_BV, scores)
