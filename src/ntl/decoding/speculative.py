"""Greedy decoding in blocks: the heads of multi-token prediction draft tokens, and the model itself verifies them.

Gloeckle et al. (2024), Section 3.2, after Stern et al. (2018). A forward pass reads the last token that is final and
the drafts behind it. Head 1 gives the token of plain greedy decoding behind each of them: drafts are kept up to the
first that is another one. The heads at the last token that was kept draft the next block, in the same pass.

Rows keep different numbers of drafts. Each row writes its keys and values at columns of its own, over its rejected
drafts, and a mask hides what lies behind the token that attends. A row whose answer is done leaves the batch.

Shapes: B rows, S prompt length, N heads, W tokens of a pass, C columns, D hidden size.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache

from ntl.config.decoding import SpeculativeConfig
from ntl.config.loss import MTPConfig
from ntl.decoding.batches import Answer, Example, Read, answer_of, checked
from ntl.decoding.tree import added_mask, masks_refused
from ntl.models.interface import end_ids, lm_head
from ntl.models.mtp import Decoder, Heads
from ntl.system.errors import UserError

SPECULATION = "speculation"
# A draft is one of this many first tokens, which are the most frequent ones of most vocabularies, or of the questions.
FREQUENT = 8192


def speculate(
    config: SpeculativeConfig, *, model: Any, tokenizer: Any, max_new_tokens: int, also: Sequence[int] = ()
) -> Read:
    """The tokens of plain greedy decoding; ``about[SPECULATION]`` counts the row's tokens and forward passes.

    It also has how many drafts of the heads 2, 3, ... were kept. UserError for a model that was not trained with heads,
    has fewer than ``config.heads``, or has layers that cannot be rolled back.
    """
    settings = getattr(model, "mtp_config", None)
    if settings is None:
        raise UserError(f"decoding={config.name}: the model has no heads to draft with; train it with objective=mtp.")
    if config.heads > settings.heads:
        raise UserError(f"decoding.heads={config.heads}: the model has {settings.heads} heads; choose at most that.")
    if why := masks_refused(model):
        raise UserError(f"decoding={config.name} model_type {model.config.model_type}: {why}; use decoding=greedy.")
    heads, ends = config.heads or settings.heads, end_ids(model, tokenizer, also)

    def read(batch: Sequence[Example], inputs: Mapping[str, Tensor]) -> list[Answer]:
        check_window(config, model, inputs["input_ids"].shape[1] + max_new_tokens)
        rows = Rows(model, settings, heads, inputs, max_new_tokens, ends)
        with few_rows(model):
            while len(rows):
                rows.draft(*rows.verify())
        answers = [rows.answers[row] for row in range(len(batch))]
        return [answer_of(tokenizer, ids, ends, max_new_tokens, {SPECULATION: counts}) for ids, counts in answers]

    return read


def check_window(config: SpeculativeConfig, model: Any, needed: int) -> None:
    """UserError where a question and its answer have more tokens together than the model attends to."""
    window = getattr(model.config, "sliding_window", None)
    if window and needed > window:
        raise UserError(
            f"decoding={config.name}: the model attends to the last {window} tokens, and questions and answers "
            f"have up to {needed}; use decoding=greedy."
        )


def product(layer: Any, hidden: Tensor) -> Tensor:
    """Return hidden · weightᵀ + bias, (..., D) to (..., V); two to eight rows on a CPU as weight · rowsᵀ.

    A pass is bound by reading the weights. BLAS reads them as they lie for one row, and copies them first for a few
    more: four rows with SmolLM2's unembedding take more than twice as long as in this form.
    """
    weight, bias = layer.weight, layer.bias  # of a head also: its scale and cap change no order
    rows = hidden.numel() // hidden.shape[-1]
    if not 1 < rows <= 8 or hidden.device.type != "cpu" or hidden.dtype.itemsize < 4:
        return F.linear(hidden, weight, bias)
    flat = hidden.reshape(rows, -1)
    if rows > 2:  # other widths have slow kernels
        flat = F.pad(flat, (0, 0, 0, -rows % 4))
    logits = (weight @ flat.t()).t()[:rows].contiguous().view(*hidden.shape[:-1], -1)
    return logits if bias is None else logits + bias


@contextmanager
def few_rows(model: nn.Module) -> Iterator[None]:
    """Have the linear maps of a model computed by `product`."""
    layers: list[Any] = [part for part in model.modules() if type(part) is nn.Linear and "forward" not in vars(part)]
    for layer in layers:
        layer.forward = partial(product, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


class RowCache(DynamicCache):
    """Keys and values of every block, written at columns (B, W) that each row has for itself.

    ``first`` is added to the index of a block, for modules that count from 0 again.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity, self._stored, self.first = capacity, {}, 0

    def place(self, columns: Tensor, width: int) -> None:
        """Say where the next pass writes, and that it attends to ``width`` columns."""
        self._rows = torch.arange(len(columns), device=columns.device)[:, None]
        self._columns, self._width, self.first = columns, width, 0

    def keep(self, rows: Tensor) -> None:
        """Forget all other rows; ``rows`` are indices."""
        self._stored = {index: [states[rows] for states in stored] for index, stored in self._stored.items()}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write and return keys and values (B, heads, W, size); they are returned with all columns."""
        new = [states.transpose(1, 2) for states in (key_states, value_states)]
        index = self.first + layer_idx
        if index not in self._stored:  # zeros, as what is masked must be finite
            self._stored[index] = [states.new_zeros(len(states), self._capacity, *states.shape[2:]) for states in new]
        for stored, states in zip(self._stored[index], new, strict=True):
            stored[self._rows, self._columns] = states
        keys, values = (states[:, : self._width].transpose(1, 2) for states in self._stored[index])
        return keys, values


class Rows:
    """The rows of a batch: their tokens, of which those up to column ``last_B`` are final and read, and drafts behind.

    A pass is `verify` and then `draft`.

    Attributes:
        answers: The token ids of each row that is done, with its end token, and its counts, by its place in the batch.
    """

    _of_rows = ("row_B", "tokens_BC", "start_B", "last_B", "active_B", "length_B", "forwards_B", "accepted_BN")

    def __init__(
        self, model: Any, settings: MTPConfig, heads: int, inputs: Mapping[str, Tensor], limit: int, ends: Sequence[int]
    ) -> None:
        prompt, mask = inputs["input_ids"], inputs["attention_mask"]
        rows, self.prompt = prompt.shape
        self.model, self.limit, self.heads = model, limit, heads
        self.ends = prompt.new_tensor(ends)
        self.settings = replace(settings, heads=heads)
        self.sequential = settings.kind == "sequential"
        self.depth, self.head, self.dtype = len(Decoder(model).blocks), lm_head(model), model.dtype
        self.draft_head, self.drafts = self.head, torch.arange(len(self.head.weight), device=prompt.device)
        if heads > 1 and len(self.drafts) > 2 * FREQUENT:  # reading the unembedding would be most of a draft's time
            self.drafts = torch.cat([self.drafts[:FREQUENT], prompt[mask.bool()]]).unique()
            weight, bias = self.head.weight[self.drafts], self.head.bias
            self.draft_head = self.head._replace(weight=weight, bias=None if bias is None else bias[self.drafts])
        capacity = self.prompt + limit + 2 * heads
        self.cache = RowCache(capacity)
        self.tokens_BC = F.pad(prompt, (0, capacity - self.prompt))
        self.start_B = self.prompt - mask.sum(1)
        self.last_B = self.start_B.new_full((rows,), self.prompt - 2)  # the first pass reads the prompt
        self.row_B = torch.arange(rows, device=prompt.device)
        self.active_B = torch.ones_like(self.start_B, dtype=torch.bool)
        self.length_B, self.forwards_B = torch.zeros_like(self.start_B), torch.zeros_like(self.start_B)
        self.accepted_BN = self.start_B.new_zeros(rows, heads - 1)
        self.answers: dict[int, tuple[list[int], dict[str, Any]]] = {}
        # Of a pass: how many tokens it verifies, and how many before them it reads.
        self.verified, self.before = 1, self.prompt - 1

    def __len__(self) -> int:
        """The rows that are not done."""
        return len(self.row_B)

    def verify(self) -> tuple[Heads, Iterator[tuple[int, Tensor]], Tensor]:
        """Run the model on the last token and the drafts, and keep those that are the tokens of greedy decoding.

        Returns what `draft` takes: the heads, the states of the further ones, and the place (B,) they draft from.
        """
        new = self.last_B[:, None] + 1  # column of the first token that the model has not read
        offsets = torch.arange(-self.before, self.verified, device=new.device)
        heads = self._heads((new + offsets).clamp(min=0))
        states = heads.states()
        _, states_BWD = next(states)
        best_BW = checked(product(self.head, heads.read(states_BWD[:, self.before :]))).argmax(-1)
        return heads, states, self.before + self._verify(new, best_BW)

    def draft(self, heads: Heads, states: Iterator[tuple[int, Tensor]], place_B: Tensor) -> None:
        """Draft the next block, after which the rows that are done leave."""
        active, behind = bool(self.active_B.any()), self.last_B + 1
        rows = torch.arange(len(self), device=place_B.device)
        if active and self.sequential:  # a head reads the draft of the one before it
            self.cache.first = self.depth
            for index, states_BWD in states:
                read_BD = heads.read(states_BWD[rows, place_B])
                self.tokens_BC[rows, behind + index] = self._drafts(read_BD)
        elif active and self.heads > 1:  # one product reads the unembedding for all of them
            read_NBD = torch.stack([heads.read(states_BWD[rows, place_B]) for _, states_BWD in states])
            places_BN = behind[:, None] + torch.arange(1, self.heads, device=rows.device)
            self.tokens_BC.scatter_(1, places_BN, self._drafts(read_NBD).t())
        # Sequential heads have read drafts at the last places, which are read again once their tokens are final.
        self.verified, self.before = self.heads, max(self.heads - 2, 0) if self.sequential else 0
        self._leave()

    def _heads(self, columns_BW: Tensor) -> Heads:
        width = int(columns_BW.max()) + 1
        every_C = torch.arange(width, device=columns_BW.device)
        seen_BWC = (every_C <= columns_BW[..., None]) & (every_C >= self.start_B[:, None, None])
        # A draft beyond the longest answer may have no position of its own in the model; it is never used.
        positions_BW = columns_BW.clamp(max=self.prompt + self.limit - 1) - self.start_B[:, None]
        self.cache.place(columns_BW, width)
        return Heads(
            self.model,
            self.settings,
            self.tokens_BC.gather(1, columns_BW),
            added_mask(seen_BWC, self.dtype),
            ahead=lambda places: self.tokens_BC.gather(1, columns_BW + places),
            position_ids=positions_BW.clamp(min=0),
            past_key_values=self.cache,
            use_cache=True,
        )

    def _drafts(self, hidden: Tensor) -> Tensor:
        return self.drafts[product(self.draft_head, hidden).argmax(-1)]

    def _verify(self, new: Tensor, best_BW: Tensor) -> Tensor:
        """Keep the drafts that are greedy decoding's tokens ``best_BW``, and return how many of each row."""
        places_W = torch.arange(self.verified, device=new.device)
        behind_BW = new + 1 + places_W
        draft_BN = self.tokens_BC.gather(1, behind_BW[:, :-1])
        kept_B = (draft_BN == best_BW[:, :-1]).cumprod(1).sum(1)
        self.tokens_BC.scatter_(1, behind_BW, best_BW)
        final_BW = places_W <= kept_B[:, None]
        ends_BW = final_BW & torch.isin(best_BW, self.ends)
        ended_B = ends_BW.any(1)
        added_B = torch.where(ended_B, ends_BW.int().argmax(1), kept_B) + 1
        added_B = torch.minimum(added_B, self.limit - self.length_B)
        accepted_B = torch.minimum(added_B, kept_B)
        self.accepted_BN[:, : self.verified - 1] += places_W[:-1] < accepted_B[:, None]
        self.length_B += added_B
        self.forwards_B += 1
        self.active_B = ~ended_B & (self.length_B < self.limit)
        self.last_B = (new[:, 0] + kept_B).clamp(max=self.prompt + self.limit - 2)
        return kept_B

    def _leave(self) -> None:
        """Take the answers of the rows that are done, and keep the others."""
        if self.active_B.all():
            return
        answers_BC = self.tokens_BC[:, self.prompt :]
        counted = (self.row_B, self.active_B, answers_BC, self.length_B, self.forwards_B, self.accepted_BN)
        for row, active, ids, length, forwards, accepted in zip(*(values.tolist() for values in counted), strict=True):
            if not active:
                counts = {"tokens": length, "forwards": forwards, "accepted": accepted}
                self.answers[row] = ids[:length], counts
        rows = self.active_B.nonzero()[:, 0]
        for name in self._of_rows:
            setattr(self, name, getattr(self, name)[rows])
        self.cache.keep(rows)
