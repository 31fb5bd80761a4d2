"""One loop over batches for every decoding, its lines of progress, and the room for its questions."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ntl.config.decoding import DecodingConfig, TreeConfig
from ntl.config.targets import build
from ntl.data.chat import Chat
from ntl.models.interface import evaluating
from ntl.system.errors import Diverged, UserError
from ntl.system.messages import logger

# A plain dict, as answers are pickled between processes.
NOTHING: Mapping[str, Any] = {}
SECONDS_BETWEEN = 5.0  # lines of progress


class Answer(NamedTuple):
    """A decoded answer: its text and its token ids, with the end token if there is one and without padding.

    ``about`` holds further columns of its row in predictions.jsonl. ``cut``: as many tokens as it may have, and no end.
    """

    text: str
    token_ids: list[int]
    about: Mapping[str, Any] = NOTHING
    cut: bool = False


def answer_of(
    tokenizer: Any, ids: list[int], ends: Sequence[int], most: int, about: Mapping[str, Any] = NOTHING
) -> Answer:
    """Return the answer of its token ids, up to ``most``, of which the last may be one of the end tokens."""
    ended = bool(ids) and ids[-1] in ends
    # Some published tokenizers would otherwise take out the space before a point, which a label has.
    plain = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    text = tokenizer.decode(ids[:-1] if ended else ids, **plain).strip()
    return Answer(text, ids, about, cut=len(ids) >= most and not ended)


def cut_off(answers: Sequence[Answer]) -> str:
    """Say how many answers are cut, so that digits of theirs may be missing; "" for none."""
    if not (lengths := [len(answer.token_ids) for answer in answers if answer.cut]):
        return ""
    many = f"{len(lengths):,} of {len(answers):,} answers are cut off after {max(lengths):,} tokens"
    return f"{many}, and so may be their numbers"


NOT_FINITE = "a logit or prediction of the model is NaN or infinite; take another checkpoint, or float32."


def checked(logits: torch.Tensor) -> torch.Tensor:
    """Return logits (..., V), or predictions with V = 1, of which -inf alone may be infinite, but not a whole row.

    Diverged: there is NaN or inf, which leaves nothing to decode.
    """
    if not logits.amax(-1).isfinite().all():
        raise Diverged(NOT_FINITE)
    return logits


Example = Mapping[str, Any]
Collate = Callable[[list[Example]], dict[str, torch.Tensor]]
# What ``decoding._target_`` returns: a batch and its inputs on the model's device -> one answer per example.
Read = Callable[[Sequence[Example], Mapping[str, torch.Tensor]], list[Answer]]


@torch.inference_mode()
def decode(
    config: DecodingConfig,
    *,
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    collate: Collate,
    max_new_tokens: int,
    progress: Callable[[int], None] = lambda done: None,
    chat: Chat | None = None,
    **options: Any,
) -> list[Answer]:
    """Decode by ``config._target_``: one answer per example, in the order of the examples.

    Args:
        collate: Makes the inputs of a batch, for example input_ids and attention_mask (B, S).
        max_new_tokens: Used where the config says 0; taken from the training data, never from the test answers.
        progress: Called after each batch with the number of examples that are done.
        chat: The template that the questions went through, whose end of a turn ends an answer, too.
        options: Further arguments of the decoding itself.
    """
    if chat:
        options["also"] = [chat.end_id]
        if chat.opening and isinstance(config, TreeConfig):
            raise UserError(
                f"decoding={config.name} dataset.format=chat: the chat template writes {chat.opening[:40]!r} before an "
                "answer, and this decoding reads a number alone; use decoding=greedy."
            )
    limit = config.max_new_tokens or max_new_tokens
    answers: dict[int, Answer] = {}
    # Long questions come first, so that a batch has little padding.
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index]["question_ids"]))
    with evaluating(model):
        read: Read = build(config, model=model, tokenizer=tokenizer, max_new_tokens=limit, **options)
        for start in range(0, len(order), config.batch_size):
            indices = order[start : start + config.batch_size]
            batch = [examples[index] for index in indices]
            read_answers = read(batch, {name: tensor.to(model.device) for name, tensor in collate(batch).items()})
            if chat:
                read_answers = [answer._replace(text=chat.text(answer.text)) for answer in read_answers]
            answers.update(zip(indices, read_answers, strict=True))
            progress(len(answers))
    return [answers[index] for index in range(len(examples))]


def progress_lines(split: str, total: int) -> Callable[[int], None]:
    """Return what logs ``decoding interpolate 2,048/10,000, 31 s left`` when called with the number of done examples.

    There is no line for the last example, as the caller logs the total.
    """
    started = last_line = time.monotonic()

    def progress(done: int) -> None:
        nonlocal last_line
        now = time.monotonic()
        if now - last_line >= SECONDS_BETWEEN and done < total:
            last_line = now
            left = (total - done) * (now - started) / done
            logger.info(f"decoding {split} {done:,}/{total:,}, {left:.0f} s left")

    return progress


def too_long(examples: Sequence[Example], model: Any, limit: int, most: float = math.inf) -> str:
    """Say which question has more tokens than the model reads beside an answer of ``limit`` tokens; "" for none.

    ``most`` tokens are read in any case.
    """
    positions = getattr(model.config, "max_position_embeddings", None) or math.inf  # inf: they are relative
    # The last generated token is not an input; a question to an encoder has positions of its own.
    most = min(most, positions if model.config.is_encoder_decoder else positions + 1 - limit)
    for number, example in enumerate(examples, 1):
        if (length := len(example["question_ids"])) > most:
            reads = f"the model reads {max(most, 0):,} beside an answer of {limit:,}"
            return f"{number} has {length:,} tokens, and {reads}"
    return ""
