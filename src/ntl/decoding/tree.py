"""A model's distribution over numbers, by a search of the prefix tree of the token sequences that write one.

    number = white-space* [sign] (digits ["." digits*] | "." digits)      sign = "+" | "-" | U+2212

as ``ntl.numbers.parse_number`` reads it, without commas and exponents. White space before the number is a word-start
mark or a leading space; it is stripped from an answer, as in ``ntl.decoding.batches``.

Probabilities are of the softmax over the whole vocabulary. They sum to less than 1: the rest belongs to answers
that are no number.

Shapes: E examples, S prompt length, L numbers that were found for an example, W its prefixes, P their tokens, R
prefixes of all examples, K tokens that occur in numbers, V vocabulary.
"""

import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.decoding.batches import checked
from ntl.decoding.distribution import NumberDistribution, represent_all, thin
from ntl.models.interface import evaluating, has_fixed_mask
from ntl.system.errors import UserError

NONE, DEAD = -torch.inf, -1
PART = 4  # of num_beams: the share of the probability that one prefix may stand for, unless it is likelier
_READS_MASKS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_FULL, _SLIDING = "full_attention", "sliding_attention"
DIGITS, SIGNS = frozenset("0123456789"), frozenset("+-\N{MINUS SIGN}")
# The prefix so far: white space only; a sign; digits; digits and a point; a point alone; digits after a point.
START, SIGN, WHOLE, POINT, BARE, FRACTION = range(6)
ENDS = (WHOLE, POINT, FRACTION)
_ON_DIGIT = {START: WHOLE, SIGN: WHOLE, WHOLE: WHOLE, POINT: FRACTION, BARE: FRACTION, FRACTION: FRACTION}
_ON_POINT = {START: BARE, SIGN: BARE, WHOLE: POINT}


def advance(state: int, text: str) -> int:
    """The state after ``text``; DEAD where no number continues like this."""
    for character in text:
        if character in DIGITS:
            state = _ON_DIGIT.get(state, DEAD)
        elif character == ".":
            state = _ON_POINT.get(state, DEAD)
        elif state == START and character in SIGNS:
            state = SIGN
        elif state != START or not character.isspace():
            state = DEAD
    return state


@dataclass(frozen=True)
class NumberTokens:
    """The tokens that numbers consist of, and the ``end_ids`` that end an answer.

    ids: (K,) int64. pieces: the text that each adds. table: (6, K) int64, the state after a token in each state.
    """

    ids: Tensor
    pieces: tuple[str, ...]
    table: Tensor
    end_ids: list[int]

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, ends: Sequence[int] = (), device: torch.device | str = "cpu") -> Self:
        """From decoded pieces, so that ``▁12`` and ``Ġ12`` both add " 12". UserError: the tokenizer has no digit.

        ``ends``: by default the tokenizer's end token alone.
        """
        pieces = {token_id: piece for token_id, piece in _pieces(tokenizer) if piece}
        steps = {token_id: [advance(state, piece) for state in range(6)] for token_id, piece in pieces.items()}
        ids = [token_id for token_id, states in steps.items() if any(state != DEAD for state in states)]
        if not any(DIGITS & set(pieces[token_id]) for token_id in ids):
            raise UserError("decoding by number: the tokenizer has no token with a digit; take another tokenizer.")
        table = torch.tensor([steps[token_id] for token_id in ids], device=device).T.contiguous()
        written = tuple(pieces[token_id] for token_id in ids)
        return cls(torch.tensor(ids, device=device), written, table, list(ends) or [tokenizer.eos_token_id])


def _pieces(tokenizer: Any) -> Iterator[tuple[int, str]]:
    ids = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
    # Decoded on its own, a token loses the white space of its word-start mark.
    first = next((token_id for token_id in ids if DIGITS & set(tokenizer.decode([token_id]))), ids[0])
    before = tokenizer.decode([first])
    pairs = tokenizer.batch_decode([[first, token_id] for token_id in ids], clean_up_tokenization_spaces=False)
    for token_id, text in zip(ids, pairs, strict=True):
        if text.startswith(before):
            yield token_id, text.removeprefix(before)


def read_numbers(
    model: Any, inputs: Mapping[str, Tensor], tokens: NumberTokens, *, num_beams: int, **limits: Any
) -> list[NumberDistribution]:
    """The distribution over numbers of each of E prompts, by reading about num_beams / PART prefixes of each length.

    What is not read goes on as a prefix that stands for it. ``limits`` are further arguments of ``search``, as in all
    functions below.
    """
    masses = [defaultdict[str, float](float) for _ in inputs["input_ids"]]
    covered = [0.0] * len(masses)
    # Texts, which prefix of the last level and which piece each is, and the probability that it stands for.
    written = [([""], np.zeros(1, dtype=np.int64), np.ones(1)) for _ in masses]
    for level in search(model, inputs, tokens, num_beams=-(-num_beams // PART), spaced=True, **limits):
        total_EW, ended_EW = level.total_EW.detach(), level.ended_EW.detach()
        end_EW = (ended_EW - total_EW).exp().cpu().numpy()
        next_EWK = (level.score_EWK.detach() - total_EW[:, :, None]).exp().cpu().numpy()
        for e in (e for e, texts in enumerate(level.texts) if texts):
            texts, place, mass = written[e]
            like = level.like[e][place]
            mass, like = np.where(like < 0, 0.0, mass), like.clip(min=0)
            for text, ended in zip(texts, (mass * end_EW[e, like]).tolist(), strict=True):
                masses[e][text] += ended
            chosen, mass = thin((mass[:, None] * next_EWK[e, like]).ravel(), 2 * num_beams)
            before, piece = np.divmod(chosen, len(tokens.pieces))
            longer = [texts[b] + tokens.pieces[k] for b, k in zip(before.tolist(), piece.tolist(), strict=True)]
            written[e] = longer, like[before] * len(tokens.pieces) + piece, mass
            covered[e] += float(ended_EW[e].exp().sum())
    return [NumberDistribution.of(numbers, part) for numbers, part in zip(masses, covered, strict=True)]


class Level(NamedTuple):
    """Prefixes of one length; an example has the first of the W columns, as many as it has texts.

    total_EW: the log probability of each prefix. ended_EW: of each prefix as the whole answer, -inf if it is no number.
    score_EWK: of each prefix with one more token. like: for each example, the column as which each entry of the level
    before's flattened score_EWK goes on, -1 for none; of a ``spaced`` search alone. chosen_2EW: which of the score_EWK
    of the level before, flattened, each prefix is, and whether it exists, int64.
    """

    texts: list[list[str]]
    total_EW: Tensor
    ended_EW: Tensor
    score_EWK: Tensor
    like: Sequence[np.ndarray]
    chosen_2EW: Tensor


def longer(texts: list[list[str]], chosen: Any, pieces: Sequence[str]) -> list[list[str]]:
    """Return the texts of the prefixes that exist, by ``chosen_2EW`` as lists and the texts of the level before."""
    return [
        [mine[place // len(pieces)] + pieces[place % len(pieces)] for place, exists in zip(*row, strict=True) if exists]
        for mine, *row in zip(texts, *chosen, strict=True)
    ]


def search(
    model: Any,
    inputs: Mapping[str, Any],
    tokens: NumberTokens,
    *,
    num_beams: int,
    max_new_tokens: int,
    tolerance: float = 0.0,
    spaced: bool = False,
    unread: list[Tensor] | None = None,
) -> Iterator[Level]:
    """Yield the prefixes of each length, with a graph if the model's logits have one.

    The prompts' keys and values are computed once. Exact as long as no example has more than ``num_beams`` prefixes of
    the same length; the most probable are kept.

    Args:
        inputs: As of ``Stepper``, (E, S).
        max_new_tokens: The longest answer, its end token included.
        tolerance: The search of an example stops when open prefixes, those that are not kept included, have this
            probability or less.
        spaced: Keep prefixes that stand for all instead (`ntl.decoding.distribution.represent`).
        unread: With a list the host waits for nothing: what does not exist is read on, too, ``texts`` are left out, and
            whether the logits are finite is added to the list, () bool, and not checked.
    """
    steps = Stepper(model, inputs)
    logits_RV = steps.start()
    texts, K, is_full = [[""] for _ in logits_RV], len(tokens.pieces), True
    total_EW = logits_RV.new_zeros((len(texts), 1), dtype=torch.float64)
    state_EW = torch.full_like(total_EW, START, dtype=torch.int64)
    # How many digits a prefix has, and how much more than itself, as a log probability, it stands for.
    digits_EW, extra_EW = torch.zeros_like(state_EW), torch.zeros_like(total_EW)
    digits_K, is_end_6, ends = (
        torch.tensor(values).to(state_EW.device, non_blocking=True)
        for values in (
            [sum(character in DIGITS for character in piece) for piece in tokens.pieces],
            [state in ENDS for state in range(6)],
            tokens.end_ids,
        )
    )
    like: Sequence[np.ndarray] = [np.zeros(1, dtype=np.int64)] * len(texts)
    live_EW, chosen_2EW = torch.ones_like(state_EW, dtype=torch.bool), torch.stack([state_EW, state_EW])
    for length in range(1, max_new_tokens + 1):
        number_EWK, end_EW = (
            _spread(rows, live_EW, is_full) for rows in _log_probabilities(logits_RV, tokens, ends, unread)
        )
        ended_EW = (total_EW + end_EW).masked_fill(~is_end_6[state_EW], NONE)
        score_EWK = total_EW[:, :, None] + number_EWK
        goes_on_EWK = (tokens.table[state_EW] != DEAD) & score_EWK.isfinite() & (length < max_new_tokens)
        score_EWK = score_EWK.masked_fill(~goes_on_EWK, NONE)
        yield Level(texts, total_EW, ended_EW, score_EWK, like, chosen_2EW)
        if length == max_new_tokens:
            break
        stand_EN = (score_EWK.detach() + extra_EW[:, :, None]).flatten(1)
        stand_EN = stand_EN.masked_fill(stand_EN.logsumexp(1, keepdim=True).exp() <= tolerance, NONE)
        if spaced:
            shape_EN = (len(_ON_DIGIT) * (digits_EW[:, :, None] + digits_K) + tokens.table[state_EW]).flatten(1)
            *kept, like = represent_all(stand_EN.cpu().numpy(), shape_EN.cpu().numpy(), num_beams)
            index_EW, stand_EW = (torch.from_numpy(array).to(stand_EN.device) for array in kept)
        else:
            best_EW, index_EW = stand_EN.topk(min(num_beams, stand_EN.shape[1]))
            stand_EW = best_EW + stand_EN.logsumexp(1, keepdim=True) - best_EW.logsumexp(1, keepdim=True)
        chosen_2EW = torch.stack([index_EW, stand_EW.isfinite()])
        if unread is None:
            chosen = chosen_2EW.tolist()
            counts = [sum(exists) for exists in chosen[1]]
            if not any(counts):
                break
            texts, is_full = longer(texts, chosen, tokens.pieces), min(counts) == max(counts)
            chosen_2EW, stand_EW = chosen_2EW[:, :, : max(counts)], stand_EW[:, : max(counts)]
        index_EW, live_EW = chosen_2EW[0], chosen_2EW[1].bool()
        total_EW = score_EWK.flatten(1).gather(1, index_EW).masked_fill(~live_EW, NONE)
        extra_EW = (stand_EW - total_EW.detach()).masked_fill(~live_EW, 0.0)
        parent_EW, token_EW = index_EW // K, index_EW % K
        state_EW = tokens.table[state_EW.gather(1, parent_EW), token_EW]
        digits_EW = digits_EW.gather(1, parent_EW) + digits_K[token_EW]
        logits_RV = steps.step(parent_EW, tokens.ids[token_EW], live_EW, is_full)


def _rows(values: Tensor, live_EW: Tensor, is_full: bool) -> Tensor:
    """Return the values (E, W, ...) of the live prefixes, (R, ...); to pick them waits for a GPU."""
    return values.flatten(0, 1) if is_full else values[live_EW]


def _spread(rows: Tensor, live_EW: Tensor, is_full: bool) -> Tensor:
    """Return the values (R, ...) of the live prefixes as (E, W, ...), with -inf for the others."""
    if is_full:
        return rows.unflatten(0, live_EW.shape)
    spread = rows.new_full((*live_EW.shape, *rows.shape[1:]), NONE)
    spread[live_EW] = rows
    return spread


def _log_probabilities(
    logits_RV: Tensor, tokens: NumberTokens, ends: Tensor, unread: list[Tensor] | None
) -> tuple[Tensor, Tensor]:
    """(R, K) of the number tokens and (R,) of all ends together."""
    if logits_RV.dtype.itemsize < 4:
        logits_RV = logits_RV.float()
    normalizer_R1 = logits_RV.logsumexp(-1, keepdim=True).double()
    if unread is None:
        checked(normalizer_R1)
    else:
        unread.append(normalizer_R1.isfinite().all())
    end_R = logits_RV[:, ends].logsumexp(-1) - normalizer_R1[:, 0]
    return logits_RV[:, tokens.ids] - normalizer_R1, end_R


def masks_refused(model: Any) -> str:
    """Return why a decoder takes no mask and position of its own for each token; "" where it does."""
    config, other = model.config, {*(getattr(model.config, "layer_types", None) or ())} - {_FULL, _SLIDING}
    if other:
        return f"layers of type {', '.join(sorted(other))} cannot be rolled back"
    if has_fixed_mask(model):
        return "its own mask counts the tokens of a row, also those that are hidden"
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return "it takes no positions, which differ from row to row"
    if (attention := getattr(config, "_attn_implementation", None)) not in ("sdpa", "eager"):
        return f"attention by {attention} takes no mask that differs from row to row"
    return ""


def added_mask(seen_EWC: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask (E, 1, W, C) that is added to the scores of attention."""
    mask_EWC = torch.zeros(seen_EWC.shape, dtype=dtype, device=seen_EWC.device)
    return mask_EWC.masked_fill_(~seen_EWC, torch.finfo(dtype).min)[:, None]


def reads_masks(model: Any) -> bool:
    """Return whether a decoder reads its cache through a mask of each token's own, tried once on three tokens.

    Some ignore it, or its positions. The third token, from which the second is hidden, must have a second one's logits.
    """
    if getattr(model.config, "sliding_window", None) or masks_refused(model):  # a window drops tokens by their number
        return False
    if model not in _READS_MASKS:
        ids = torch.arange(3, device=model.device).clamp(max=model.config.vocab_size - 1)[None]
        seen = torch.tensor([[[True, True, False], [True, False, True]]], device=model.device)
        ones = torch.ones_like(ids)  # without a mask, transformers takes ids 0 and 2 for padding, and warns
        behind = {"position_ids": ones[:, 1:], "attention_mask": added_mask(seen, model.dtype)}
        shown = ({"input_ids": ids[:, ::step], "attention_mask": ones[:, ::step]} for step in (1, 2))
        with evaluating(model), torch.no_grad():
            with_all, without = (model(**inputs, use_cache=False).logits[0, -1] for inputs in shown)
            try:
                cache = model(ids[:, :1], attention_mask=ones[:, :1], use_cache=True).past_key_values
                logits = model(ids[:, 1:], past_key_values=cache, use_cache=True, **behind).logits[0, -1]
            except (ValueError, RuntimeError, IndexError):
                logits = with_all
        _READS_MASKS[model] = bool((logits - without).norm() < 0.1 * (with_all - without).norm())
    return _READS_MASKS[model]


class Stepper:
    """Logits of the next token of every prefix, with a cache of keys and values.

    A decoder reads the prefixes of an example as more tokens of one row, each with a mask that hides what it does not
    continue: the prompt is in the cache once. Where that cannot be, each prefix is a row with a copy of all before it.

    ``inputs``: input_ids and attention_mask (E, S), for a decoder padded on the left. A part of them that was read
    before may be given as ``past_key_values``, which the mask goes over, too; and what an encoder read as ``encoded``.
    """

    def __init__(self, model: Any, inputs: Mapping[str, Any]) -> None:
        self.model, self.cache = model, inputs.get("past_key_values")
        self.ids, self.mask = inputs["input_ids"], inputs["attention_mask"]
        self.encoded: Tensor | None = inputs.get("encoded")
        if model.config.is_encoder_decoder:
            if self.encoded is None:
                self.encoded = model.get_encoder()(input_ids=self.ids, attention_mask=self.mask)[0]
            self.ids = self.mask.new_full((len(self.mask), 1), model.config.decoder_start_token_id)
        self.accepted = inspect.signature(model.forward).parameters
        self.in_one_row = self.encoded is None and reads_masks(model)
        # The examples that are read on; of their last prefixes, which exist, and which of the tokens behind the prompt
        # each consists of.
        self.rows = torch.arange(len(self.mask), device=self.mask.device)
        self.live_EW = torch.ones_like(self.mask[:, :1], dtype=torch.bool)
        self.path_EWP = self.live_EW.new_zeros(len(self.mask), 1, 0)

    def start(self) -> Tensor:
        """Logits (E, V) of the first token of every answer."""
        # Padding is on the left: positions count tokens only, as in training.
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)[:, -self.ids.shape[1] :]
        return self._forward(self.ids, self.mask, positions, logits_to_keep=1)[:, -1]

    def step(self, parent_EW: Tensor, token_EW: Tensor, live_EW: Tensor, is_full: bool) -> Tensor:
        """Logits (R, V) of the ``live`` prefixes: prefixes of the step before, at ``parent``, and a token each.

        ``is_full``: of all, whether they exist or not.
        """
        live_EW = torch.ones_like(live_EW) if is_full else live_EW
        if self.in_one_row:
            return self._step_in_one_row(parent_EW, token_EW, live_EW, is_full)
        row_EW = self.live_EW.flatten().cumsum(0).view_as(self.live_EW) - 1
        self._keep(_rows(row_EW.gather(1, parent_EW), live_EW, is_full))
        self.live_EW = live_EW
        if self.encoded is None:
            self.mask = F.pad(self.mask, (0, 1), value=1)
        return self._forward(_rows(token_EW, live_EW, is_full)[:, None], self.mask, self.mask.sum(1, keepdim=True) - 1)[
            :, -1
        ]

    def _step_in_one_row(self, parent_EW: Tensor, token_EW: Tensor, live_EW: Tensor, is_full: bool) -> Tensor:
        if not is_full and not (going := live_EW[self.rows].any(1)).all():
            self._keep(kept := going.nonzero()[:, 0])
            self.rows, self.path_EWP = self.rows[kept], self.path_EWP[kept]
        parent_EW, token_EW, live_EW = parent_EW[self.rows], token_EW[self.rows], live_EW[self.rows]
        path_EWP = self.path_EWP.gather(1, parent_EW[:, :, None].expand(-1, -1, self.path_EWP.shape[2]))
        own_EWW = torch.eye(token_EW.shape[1], dtype=torch.bool, device=token_EW.device).expand(len(token_EW), -1, -1)
        self.path_EWP = torch.cat([path_EWP, own_EWW], dim=2)
        seen_EWC = torch.cat([self.mask[:, None].bool().expand(-1, token_EW.shape[1], -1), self.path_EWP], dim=2)
        positions_EW = (seen_EWC.sum(2) - 1).masked_fill(~live_EW, 0)
        return _rows(self._forward(token_EW, added_mask(seen_EWC, self.model.dtype), positions_EW), live_EW, is_full)

    def _keep(self, rows: Tensor) -> None:
        cache: Any = self.cache
        (getattr(cache, "batch_select_indices", None) or cache.reorder_cache)(rows)
        self.mask = self.mask[rows]
        self.encoded = None if self.encoded is None else self.encoded[rows]

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, **more: int) -> Tensor:
        if self.encoded is None:
            # Models without position_ids derive them from the mask; logits_to_keep saves computing the others.
            options = {"position_ids": positions, **more}
            inputs: dict[str, Any] = {name: value for name, value in options.items() if name in self.accepted}
            inputs["input_ids"] = ids
        else:
            inputs = {"encoder_outputs": (self.encoded,), "decoder_input_ids": ids}
        output = self.model(attention_mask=mask, past_key_values=self.cache, use_cache=True, **inputs)
        self.cache = getattr(output, "past_key_values", None)
        if self.cache is None:
            kind = self.model.config.model_type
            raise UserError(f"decoding: {kind} has no cache of keys and values, which it needs; use decoding=greedy.")
        return output.logits
