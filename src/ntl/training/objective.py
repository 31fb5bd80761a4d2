"""The objective of a run, a module around its model, and the masking of its input."""

from functools import partial
from typing import Any, cast

import numpy as np
import torch

from ntl.config import build
from ntl.config.loss import ExpectedErrorConfig, RegressionConfig
from ntl.decoding.expected_error import expected_error, number_masses
from ntl.decoding.tree import NumberTokens
from ntl.models.interface import end_ids
from ntl.numbers import NumberVocabulary
from ntl.objectives.masking import Masking, maskable
from ntl.objectives.next_token import loss_of
from ntl.objectives.number_heads import scale_targets
from ntl.runs.parts import RunParts
from ntl.system.errors import UserError
from ntl.system.messages import logger

# Rows that are searched for a token that may be masked.
ROWS_LOOKED_AT = 64


def build_objective(parts: RunParts) -> torch.nn.Module:
    """Build the objective, a module around the model: ``objective(config, model=, loss=, implementation=)``.

    One of a number head has ``weight=`` in place of a loss. Its ``forward(**batch)`` returns a `JointLoss`: scalars
    in training and one value per example (B,) in evaluation. In training, ``counts`` (2,) passes the denominators
    of the whole step, sums over its batches of ``count(labels)``: how many labels the base term and the number term
    count. Where examples have weights, both also get ``loss_weights``. An objective that predicts tokens may keep
    ``diagnosed``, as `NextToken` does; it is then logged.
    """
    config, vocab, model = parts.config, parts.number_vocab(), cast(Any, parts.model)
    loss, settings = config.loss, config.objective
    if config.trainer.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    more: dict[str, Any] = {"weight": loss.weight}
    if vocab:
        known = {"point_id": parts.tokenizer.get_vocab().get("."), "embedding": model.get_output_embeddings().weight}
        more = {"loss": loss_of(loss, vocab, known), "implementation": loss.implementation}
    if loss.has_number and loss.squash is None and vocab and vocab.is_wide:
        logger.warning(
            f"loss={loss.name} tokenizer={config.tokenizer.name}: the largest number token is "
            f"{vocab.token_values.max():,.0f}, and so large can the number loss be beside the cross entropy; "
            "tokenizer=digit splits numbers into digits, loss=ntl_was_squashed bounds the distances."
        )
    # Weights that are scored as they are keep the unit that they were trained in.
    as_it_is = not config.trainer.max_steps and hasattr(model.config, "target_mean")
    if isinstance(settings, RegressionConfig) and not as_it_is:
        scale_targets(model.config, settings, parts.encoded("train").last_values())
    if isinstance(settings, ExpectedErrorConfig):
        tokens = NumberTokens.from_tokenizer(parts.tokenizer, end_ids(model, parts.tokenizer), parts.device)
        limits = {"num_beams": settings.num_beams, "max_new_tokens": parts.encoded("train").about["longest_answer"]}
        how = {"kind": settings.kind, "outside": settings.outside, "grid": settings.grid or None}
        error = partial(expected_error, **how)
        more |= {"tokens": tokens, "masses": partial(number_masses, tokens=tokens, **limits), "error": error}
    return build(settings, model=model, **more)


def build_masking(parts: RunParts) -> Masking | None:
    """Build what masks input tokens in training; None if nothing does."""
    config, mask, train = parts.config, parts.config.objective.mask, parts.encoded("train")
    if not mask.fraction:
        return None
    if mask.copy != "none" and (longest := train.about["longest_answer"] - 1) <= mask.min_answer:
        raise UserError(
            f"objective.mask.min_answer={mask.min_answer}: the longest training answer has {longest} tokens, so "
            "nothing would be masked; lower it, or leave objective.mask.copy out."
        )
    vocab = cast(NumberVocabulary, parts.number_vocab())
    allowed = maskable(mask, parts.tokenizer, vocab, is_computed=config.dataset.is_computed)
    masked = ("answer_ids",) if mask.copy != "none" else ("question_ids", "answer_ids")
    first = range(min(len(train), ROWS_LOOKED_AT))
    if not any(bool(allowed[np.asarray(train[row][ids], np.int64)].any()) for row in first for ids in masked):
        raise UserError(
            f"objective.mask.numbers={mask.numbers} dataset={config.dataset.name}: no token of the first "
            f"{len(first)} training examples may be masked; choose another objective.mask.numbers."
        )
    token: Any = None if mask.variant == "random" else parts.tokenizer.mask_token_id
    length = parts.longest_input("train")
    return Masking(mask, seed=config.seed, length=length, maskable=allowed, mask_token_id=token)
