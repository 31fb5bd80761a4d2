"""Mask-enhanced autoregressive prediction (MEAP; Zhuang et al., 2025): some input tokens of training are masked.

The labels are the clean tokens. Which tokens `Masking` masks is a function of the seed, the optimizer step and
the row within the step, counted over its batches and ranks, so that a resumed run masks what the uninterrupted one
does, and two ranks what one process does. `MaskedInput` does the same in any trainer's collator, by a row's content.

Shapes: B examples, R rows (more than B where copies are rows of their own), T sequence length, V vocabulary.
"""

import math
import random
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import TrainerCallback

from ntl.config.loss import MaskConfig
from ntl.losses.rows import IGNORE_INDEX
from ntl.models.interface import pad_id
from ntl.models.pretrained import embedding_rows
from ntl.numbers import NumberVocabulary
from ntl.objectives.mixing import U64, keys_of, mix
from ntl.tokenizers.load import special_ids

# (R, 3): of each row of a batch the example that it belongs to, and where the answer of its copy begins and how long it
# is; length 0 for a row without a copy.
COPIES = "copies"
PASS = "ntl.objectives.MaskedInput.epoch"  # in the state of a Trainer's checkpoint
STEP = U64(0x9E3779B97F4A7C15)  # splitmix64's
# The released code seeds its generator with 50 to 100 in turn.
FIRST_SEED, SEEDS = 50, 51
# A sign or a point belongs to a number, which it would change.
OF_NUMBERS = re.compile(r"[▁Ġ ]?[-+.,\u2212]|.*[0-9].*", re.DOTALL)


def maskable(config: MaskConfig, tokenizer: Any, number_vocab: NumberVocabulary, *, is_computed: bool) -> Tensor:
    """Return which token ids may be masked, (V,) bool: no special token, and numbers as the config says."""
    allowed = torch.zeros(len(number_vocab.values), dtype=torch.bool)
    allowed[: len(tokenizer)] = True
    allowed[[*special_ids(tokenizer)]] = False
    numbers = {"auto": "forbid" if is_computed else "allow"}.get(config.numbers, config.numbers)
    if numbers == "only":
        allowed &= ~number_vocab.values.isnan().cpu()
    elif numbers == "forbid":
        tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        allowed[[place for place, token in enumerate(tokens) if OF_NUMBERS.fullmatch(token or "")]] = False
    return allowed


class Masking:
    """Masks batches of training, in place; of token ids those where ``maskable`` (V,) is true.

    ``length`` is the longest input of the training data: ``variant=code`` draws positions from it, as from the released
    code's constant length, so that they do not depend on what else is in a batch. Without ``mask_token_id``, tokens
    that may themselves be masked are put in. ``shifted`` labels at t are the token at t + 1.
    """

    shifted = True

    def __init__(
        self, config: MaskConfig, *, seed: int, length: int, maskable: Tensor, mask_token_id: int | None
    ) -> None:
        self.config, self.seed, self.length, self.mask_token_id = config, seed, length, mask_token_id
        self.maskable, self.choices = maskable, torch.arange(len(maskable))[maskable]

    def __call__(self, batch: dict[str, Tensor], *, step: int, first_row: int, examples: Tensor) -> Tensor:
        """Mask ``batch["input_ids"]`` (R, T), never padding nor the last position of a row.

        Where the batch has ``COPIES``, only their answers are masked, and their labels at other tokens become -100.
        ``step`` is the number of optimizer steps before this one, ``first_row`` the number of examples of this step
        before the batch, over all batches and ranks, and ``examples`` (B,) are indices in the training data.

        Returns:
            The number of masked tokens, and of all input tokens, (2,).
        """
        rows, width = batch["input_ids"].shape
        copies = batch.get(COPIES)
        if self.config.variant == "code":
            return self._mask(batch, self._by_the_code(step, rows, width, copies, examples))
        numbers = first_row + (np.arange(rows) if copies is None else copies[:, 0].cpu().numpy())
        of_rows = mix(numbers.astype(U64) * STEP + keys_of("mask", self.seed, step)[0])
        return self._mask(batch, *self._drawn(of_rows[:, None], np.arange(width)))

    def _drawn(self, keys: np.ndarray, places: np.ndarray, share: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Return what is drawn at the places within rows of these keys (uint64), bool, and the uniform scores of it."""
        scores = mix(keys + (places + 1).astype(U64) * STEP)
        return scores >> U64(11) < U64(round(share * self.config.fraction * 2**53)), scores

    def _mask(self, batch: dict[str, Tensor], drawn: np.ndarray, scores: Any = None) -> Tensor:
        ids, copies = batch["input_ids"], batch.pop(COPIES, None)
        device, width, attended, documents = ids.device, ids.shape[1], _attended(batch), document_ids(batch)
        self.maskable, self.choices = self.maskable.to(device), self.choices.to(device)
        allowed = self.maskable[ids] & attended
        if copies is None:
            allowed[:, :-1] &= documents[:, 1:] == documents[:, :-1]
            allowed[:, -1] = False
        else:
            positions, (_, start, length) = torch.arange(width, device=device), copies.T[:, :, None]
            in_copy = (positions >= start) & (positions < start + length)
            labelled = batch["labels"] != IGNORE_INDEX
            allowed &= in_copy & (labelled.roll(1, dims=1) if self.shifted else labelled)
        put: Any = self.mask_token_id
        if put is None:
            indices = mix(scores + STEP) % U64(len(self.choices))
            put = self.choices[torch.from_numpy(indices.astype(np.int64)).to(device, non_blocking=True)]
        masked = torch.from_numpy(drawn).to(device, non_blocking=True) & allowed
        batch["input_ids"] = torch.where(masked, put, ids)
        if copies is not None:
            unlearned = in_copy & ~masked
            unlearned = unlearned.roll(-1, dims=1) if self.shifted else unlearned
            batch["labels"] = batch["labels"].masked_fill(unlearned, IGNORE_INDEX)
        return torch.stack([masked.sum(), attended.sum()])

    def _by_the_code(self, step: int, rows: int, width: int, copies: Tensor | None, examples: Tensor) -> np.ndarray:
        drawn = np.zeros((rows, width), dtype=bool)
        if copies is None:  # in pre-training, the same positions in every row of all batches of a step
            count = min(max(1, int(self.length * self.config.fraction)), self.length - 1)
            positions = random.Random(FIRST_SEED + step % SEEDS).sample(range(self.length - 1), count)
            drawn[:, [position for position in positions if position < width]] = True
            return drawn
        indices = examples.tolist()
        for row, (example, start, length) in enumerate(copies.tolist()):
            if length:  # drawn once for each example, when the data is made
                generator = random.Random(f"{self.seed} {indices[example]}")
                count = max(1, int(length * self.config.fraction))
                drawn[row, generator.sample(range(start, start + length), count)] = True
        return drawn


def with_copies(
    examples: Sequence[tuple[np.ndarray, np.ndarray]], min_answer: int, *, joined: bool
) -> list[tuple[np.ndarray, np.ndarray, tuple[int, int, int]]]:
    """Return ids, labels and the row of ``COPIES`` of each row, with copies of examples whose answer is to be masked.

    An example is its ids and its labels, not shifted; the labels are its answer, of which the last one, the end token,
    is not one of the copy. Only an answer of more than ``min_answer`` tokens without it has a copy: behind the example
    (``joined``), or in a row of its own behind all examples.
    """
    rows, separate = [], []
    for place, (ids, labels) in enumerate(examples):
        answer, copied = np.flatnonzero(labels != IGNORE_INDEX), labels.copy()
        copied[answer[-1:]] = IGNORE_INDEX
        start, length = (answer[0], answer[-1] - answer[0]) if len(answer) else (0, 0)
        if length > min_answer and joined:
            both = np.concatenate([ids, ids]), np.concatenate([labels, copied])
            rows.append((*both, (place, len(ids) + start, length)))
            continue
        rows.append((ids, labels, (place, 0, 0)))
        if length > min_answer:
            separate.append((ids, copied, (place, start, length)))
    return rows + separate


class MaskedInput(Masking, TrainerCallback):
    """Masks input tokens of each batch of a collator: ``collate_fn=MaskedInput(collator, tokenizer)``.

    The collator returns ``input_ids`` and ``labels``, not shifted. What is masked in a row, or in a document of a
    packed one (`document_ids`), depends on its tokens, the seed and the epoch alone: not on the batch, rank or worker.
    The other arguments are the settings of ``objective.mask``. With ``copy``, a row's labels are its answer and the end
    token behind it.

    With ``entropies``, tokens that are easy to predict are masked, as in EntroDrop (Wang et al., 2025), which is for
    many epochs of little data. The paper masks input tokens of low entropy, at a rate that rises over the training,
    reportedly along a sigmoid. Which entropies, what is low, and the rates were not available: these are our choices.

    Args:
        entropies: The column of the features with a number for each token: the entropy of its prediction, from any
            model, computed before training. It is not given to the collator. Empty: all tokens may be masked.
        low: The share of a document's tokens that may be masked, of least entropy; of equal ones, the first.
        ramp: Epochs of the rise: in epoch e, counted from 0, the fraction is fraction / (1 + exp(5 - 10 e / ramp)).
            0: it is the same in all epochs.

    Raises:
        ValueError: There is no mask token, a setting is not allowed, or rows of a batch cannot be copied.
    """

    shifted = False

    def __init__(
        self,
        collator: Callable[[Any], Any],
        tokenizer: Any,
        fraction: float = 0.15,
        *,
        variant: str = "paper",
        numbers: str = "allow",
        copy: str = "none",
        min_answer: int = 50,
        seed: int = 0,
        entropies: str = "",
        low: float = 0.5,
        ramp: int = 0,
    ) -> None:
        config = MaskConfig(fraction, variant, numbers, copy, min_answer)
        choices = {"variant": ("paper", "random"), "numbers": ("allow", "forbid", "only")}
        choices |= {"copy": ("none", "concatenate", "separate")}
        for name, allowed in choices.items():
            if (value := getattr(config, name)) not in allowed:
                raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, not {value!r}")
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction must be above 0 and at most 1, not {fraction}")
        if not 0 < low <= 1 or ramp < 0:
            raise ValueError(f"low must be above 0 and at most 1, and ramp not negative, not {low} and {ramp}")
        if entropies and copy != "none":
            raise ValueError(f"copy={copy!r}: a copy has no entropies; leave out one of the two")
        if variant == "paper" and tokenizer.mask_token_id is None:
            raise ValueError(
                "the tokenizer has no mask token: tokenizer.add_special_tokens({'mask_token': '<|mask|>'}), then "
                "model.resize_token_embeddings(len(tokenizer)); or variant='random'"
            )
        if numbers == "only":
            vocab = NumberVocabulary.from_tokenizer(tokenizer, digits_only=False)
        else:
            vocab = NumberVocabulary.without_numbers(max(len(tokenizer), max(special_ids(tokenizer), default=0) + 1))
        allowed = maskable(config, tokenizer, vocab, is_computed=False)
        token = tokenizer.mask_token_id if variant == "paper" else None
        super().__init__(config, seed=seed, length=0, maskable=allowed, mask_token_id=token)
        self.collator, self.epoch, self._pad = collator, 0, pad_id(tokenizer)
        self.entropies, self.low, self.ramp = entropies, low, ramp

    def __call__(self, features: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - a collator
        """Return the collator's batch of the features, masked; with ``copy``, with further rows or longer ones."""
        entropies: list[Any] = []
        if self.entropies:
            if any(self.entropies not in row for row in features):
                raise ValueError(f"no {self.entropies!r} in a row; a Trainer needs remove_unused_columns=False")
            entropies = [row[self.entropies] for row in features]
            if [len(row) for row in entropies] != [len(row.get("input_ids", row[self.entropies])) for row in features]:
                raise ValueError(f"{self.entropies!r} must be a number for each token, as long as its input_ids")
            features = [{name: row[name] for name in row if name != self.entropies} for row in features]
        batch = self.collator(features)
        if self.config.copy != "none":
            batch = self._copied(batch)
        ids, attended, documents = map(Tensor.numpy, (batch["input_ids"], _attended(batch), document_ids(batch)))
        rows, columns = np.indices(ids.shape)
        starts = np.diff(documents, axis=1, prepend=-1) != 0
        places = columns - np.maximum.accumulate(np.where(starts, columns, 0), axis=1)
        of_tokens = mix(ids.astype(U64) * STEP + mix((places + 1).astype(U64))) * attended.astype(U64)
        of_documents = np.zeros(ids.shape, U64)
        np.add.at(of_documents, (rows, documents), of_tokens)
        keys = mix(of_documents[rows, documents] + keys_of("mask", self.seed, self.epoch)[0])
        share = 1 / (1 + math.exp(5 - 10 * self.epoch / self.ramp)) if self.ramp else 1.0
        drawn, scores = self._drawn(keys, places, share)
        if self.entropies:
            drawn &= self._low(np.concatenate(entropies), attended, documents)
        self._mask(batch, drawn, scores)
        return batch

    def _low(self, values: np.ndarray, attended: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return which tokens are of low entropy, (B, T) bool, of the entropies of all that are attended, in order."""
        if len(values) != attended.sum() or np.isnan(values).any():
            actual = f"{len(values)} for {attended.sum()} tokens of a batch, {np.isnan(values).sum()} of them NaN"
            raise ValueError(f"{self.entropies!r} must be a number for each token of a row, not {actual}")
        entropies, is_low = np.zeros(attended.shape), np.zeros(attended.shape, dtype=bool)
        entropies[attended] = values
        for row, numbers in enumerate(documents):
            for number in np.unique(numbers[attended[row]]):
                at = np.flatnonzero(numbers == number)
                order = np.argsort(entropies[row, at], kind="stable")
                is_low[row, at[order[: round(self.low * len(at))]]] = True
        return is_low

    def set_epoch(self, epoch: int) -> None:
        """Draw anew in each epoch, as torch's DistributedSampler; `attach` counts passes over the data by itself."""
        self.epoch = epoch

    def attach(self, trainer: Any) -> None:
        """Mask the batches of training of transformers' Trainer or one derived from it, but not of evaluation."""
        if trainer.args.dataloader_persistent_workers:
            raise ValueError("dataloader_persistent_workers=True: the workers would mask the same tokens in each epoch")
        if (token := self.mask_token_id) is not None and token >= (rows := embedding_rows(trainer.model)):
            line = f"the mask token is {token}, and the model has {rows}: model.resize_token_embeddings(len(tokenizer))"
            raise ValueError(line)
        get_own = trainer.get_train_dataloader

        def get_train_dataloader() -> Any:
            collator, trainer.data_collator = trainer.data_collator, self
            try:
                return get_own()
            finally:
                trainer.data_collator = collator

        trainer.get_train_dataloader = get_train_dataloader
        trainer.add_callback(self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Of a stream, the Trainer's epochs begin at 0 again in a resumed run.
        self.set_epoch(max(int(state.epoch or 0), state.stateful_callbacks.get(PASS, 0)) - 1)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.set_epoch(self.epoch + 1)  # not state.epoch, which is behind by a pass in a stream
        state.stateful_callbacks[PASS] = self.epoch

    def _copied(self, batch: Any) -> dict[str, Tensor]:
        if others := sorted(set(batch) - {"input_ids", "attention_mask", "labels"}):
            raise ValueError(f"copy={self.config.copy!r}: the batches also have {', '.join(others)}, which has no copy")
        tensors = zip(batch["input_ids"], batch["labels"], _attended(batch), strict=True)
        examples = [(ids[real].numpy(), labels[real].numpy()) for ids, labels, real in tensors]
        rows = with_copies(examples, self.config.min_answer, joined=self.config.copy == "concatenate")
        if not any(length for *_, (_, _, length) in rows):
            line = (
                f"no answer of this batch has more than min_answer={self.config.min_answer} tokens, so none is masked"
            )
            warnings.warn(f"copy={self.config.copy!r}: {line}; lower min_answer", stacklevel=3)
        ids, labels = ([torch.from_numpy(row[place]) for row in rows] for place in (0, 1))
        return {
            "input_ids": pad_sequence(ids, True, self._pad),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], True),
            "labels": pad_sequence(labels, True, IGNORE_INDEX),
            COPIES: torch.tensor([row[2] for row in rows]),
        }


def document_ids(batch: Any) -> Tensor:
    """Return the number within its row of the document of each input token, (B, T) int64.

    Another one begins where ``seq_idx`` or the ``attention_mask`` changes and where ``position_ids`` do not ascend.
    """
    ids = batch["input_ids"]
    begins = torch.zeros_like(ids, dtype=torch.bool)
    for name, apart in (("seq_idx", torch.ne), ("attention_mask", torch.ne), ("position_ids", torch.le)):
        values = batch.get(name)
        if isinstance(values, Tensor) and values.dim() == 2 and values.shape[-1] == ids.shape[-1]:
            begins[:, 1:] |= apart(values[:, 1:], values[:, :-1])
    return begins.cumsum(-1)


def _attended(batch: Any) -> Tensor:
    mask = batch.get("attention_mask")
    return torch.ones_like(batch["input_ids"], dtype=torch.bool) if mask is None else mask.bool()
