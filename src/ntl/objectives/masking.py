"""Mask-enhanced autoregressive prediction (MEAP; Zhuang et al., 2025): some input tokens of training are masked.

The labels are those of the clean tokens. Which tokens are masked is a function of the seed, the optimizer step and the
row within the step, counted over its batches and ranks, so that a resumed run masks what the uninterrupted one does,
and two ranks what one process does.

Shapes: B examples, R rows (more than B where copies are rows of their own), T sequence length, V vocabulary.
"""

import random
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntl.config.loss import MaskConfig
from ntl.losses.rows import IGNORE_INDEX
from ntl.numbers import NumberVocabulary
from ntl.system.mixing import U64, keys_of, mix

# (R, 3): of each row of a batch the example that it belongs to, and where the answer of its copy begins and how long it
# is; length 0 for a row without a copy.
COPIES = "copies"
STEP = U64(0x9E3779B97F4A7C15)  # splitmix64's
# The released code seeds its generator with 50 to 100 in turn.
FIRST_SEED, SEEDS = 50, 51
# A sign or a point belongs to a number, which it would change.
OF_NUMBERS = re.compile(r"[▁Ġ ]?[-+.,\u2212]|.*[0-9].*", re.DOTALL)


def maskable(config: MaskConfig, tokenizer: Any, number_vocab: NumberVocabulary, *, is_computed: bool) -> Tensor:
    """Return which token ids may be masked, (V,) bool: no special token, and numbers as the config says."""
    found = torch.zeros(len(number_vocab.values), dtype=torch.bool)
    found[: len(tokenizer)] = True
    found[tokenizer.all_special_ids] = False
    numbers = {"auto": "forbid" if is_computed else "allow"}.get(config.numbers, config.numbers)
    if numbers == "only":
        found &= ~number_vocab.values.isnan().cpu()
    elif numbers == "forbid":
        tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        found[[place for place, token in enumerate(tokens) if OF_NUMBERS.fullmatch(token)]] = False
    return found


class Masking:
    """Masks batches of training, in place; of token ids those where ``maskable`` (V,) is true.

    ``length`` is the longest input of the training data: ``variant=code`` draws positions from it, as from the released
    code's constant length, so that they do not depend on what else is in a batch. Without ``mask_token_id``, tokens
    that may themselves be masked are put in.
    """

    def __init__(
        self, config: MaskConfig, *, seed: int, length: int, maskable: Tensor, mask_token_id: int | None
    ) -> None:
        self.config, self.seed, self.length, self.mask_token_id = config, seed, length, mask_token_id
        self.maskable, self.choices = maskable, torch.arange(len(maskable))[maskable]

    def __call__(self, batch: dict[str, Tensor], *, step: int, first_row: int, examples: Tensor) -> Tensor:
        """Mask ``batch["input_ids"]`` (R, T), never padding nor the last position of a row.

        Where the batch has ``COPIES``, only their answers are masked, and their labels that are not those of masked
        tokens become -100. ``step`` is the number of optimizer steps before this one, ``first_row`` that of examples of
        this step before the batch, over all batches and ranks, and ``examples`` (B,) are indices in the training data.

        Returns:
            The number of masked tokens, and of all input tokens, (2,).
        """
        ids, attended, copies = batch["input_ids"], batch["attention_mask"].bool(), batch.pop(COPIES, None)
        device, (rows, width) = ids.device, ids.shape
        self.maskable, self.choices = self.maskable.to(device), self.choices.to(device)
        allowed = self.maskable[ids]
        if copies is None:
            allowed &= attended
            allowed[:, :-1] &= attended[:, 1:]
            allowed[:, -1] = False
        else:
            positions, (_, start, length) = torch.arange(width, device=device), copies.T[:, :, None]
            in_copy = (positions >= start) & (positions < start + length)
            allowed &= in_copy
        put: Any = self.mask_token_id
        if self.config.variant == "code":
            drawn = self._by_the_code(step, rows, width, copies, examples)
        else:
            numbers = first_row + (np.arange(rows) if copies is None else copies[:, 0].cpu().numpy())
            scores = self._scores(step, numbers, width)
            drawn = scores >> U64(11) < U64(round(self.config.fraction * 2**53))
            if put is None:
                indices = mix(scores + STEP) % U64(len(self.choices))
                put = self.choices[torch.from_numpy(indices.astype(np.int64)).to(device)]
        masked = torch.from_numpy(drawn).to(device) & allowed
        batch["input_ids"] = torch.where(masked, put, ids)
        if copies is not None:
            unlearned = (in_copy & ~masked).roll(-1, dims=1)  # the label at t is the token at t + 1
            batch["labels"] = batch["labels"].masked_fill(unlearned, IGNORE_INDEX)
        return torch.stack([masked.sum(), attended.sum()])

    def _scores(self, step: int, rows: np.ndarray, width: int) -> np.ndarray:
        # (R, T) uint64, uniform
        of_rows = mix(rows.astype(U64) * STEP + keys_of("mask", self.seed, step)[0])
        return mix(of_rows[:, None] + np.arange(1, width + 1, dtype=U64) * STEP)

    def _by_the_code(self, step: int, rows: int, width: int, copies: Tensor | None, examples: Tensor) -> np.ndarray:
        drawn = np.zeros((rows, width), dtype=bool)
        if copies is None:  # in pre-training, the same positions in every row of all batches of a step
            count = min(max(1, int(self.length * self.config.fraction)), self.length - 1)
            positions = random.Random(FIRST_SEED + step % SEEDS).sample(range(self.length - 1), count)
            drawn[:, [each for each in positions if each < width]] = True
            return drawn
        indices = examples.tolist()
        for row, (example, start, length) in enumerate(copies.tolist()):
            if length:  # drawn once for each example, when the data is made
                generator = random.Random(f"{self.seed} {indices[example]}")
                count = max(1, int(length * self.config.fraction))
                drawn[row, generator.sample(range(start, start + length), count)] = True
        return drawn
