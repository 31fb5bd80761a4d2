"""`scripts/estimate.py`: how large a model is, and what a training step of it keeps in memory, without any weights."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ntl.config import Config, build, compose
from ntl.config.targets import locate
from ntl.system.errors import UserError

GIB = 2**30
# Tokens of an answer with its end token, by the data set's ``answers``: its longest of the sets of that kind, rounded
# up (mathematics 20, GSM8K 363, MultiRC 239; T5's digit-level tokens).
ANSWER_TOKENS = {"number": 24, "reasoning": 384, "text": 256}
# Two batches give the memory of every other: each tensor's bytes are linear in the batch. One row alone is a special
# case for some views.
TRACED = (2, 3)
NOT_COUNTED = (
    "not counted: the CUDA context and its libraries (0.5 to 1 GiB), what the allocator leaves unused between blocks, "
    "workspaces of single kernels, other processes"
)


@dataclass(frozen=True)
class _Tokenizer:
    """What models and collators ask of a tokenizer, when only shapes matter."""

    size: int
    pad_token_id: int = 0
    eos_token_id: int = 1
    mask_token_id: int = 2
    number_token_id: int = 3

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True)
class Shape:
    """A model of ``config/model`` on the meta device; ``parameters`` counts tied ones once, adapters not at all."""

    model: Any
    tokenizer: _Tokenizer
    parameters: int
    embedding_rows: int
    note: str


def shape(config: Config) -> Shape:
    """Build the model without storage.

    A published model has its published rows; a tokenizer with more tokens, as GPT-2's with a pad token, adds rows in
    training. A stand-in, whose tokenizer is trained on the data, is counted with the most rows that it may get,
    ``tokenizer.vocab_size``; ``note`` says so. UserError for a ``model.path``.
    """
    import torch

    from ntl.models import embedding_rows

    if config.model.path:
        raise UserError(f"model.path={config.model.path}: the estimate reads the shapes of config/model; leave it out.")
    published = bool(getattr(config.model, "vocab_size", 0))
    tokenizer = _Tokenizer(0 if published else config.tokenizer.vocab_size)
    with torch.device("meta"):
        model: Any = build(replace(config.model, pretrained=False), tokenizer=tokenizer)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rows = embedding_rows(model)
    of_numbers = f" and {rows - len(tokenizer)} of number tokens" if rows > len(tokenizer) else ""
    most = f"with tokenizer.vocab_size={len(tokenizer)} rows{of_numbers}, the most its tokenizer may need"
    return Shape(model, tokenizer, parameters, rows, "" if published else most)


def estimate(
    config: Config, *, question_tokens: int = 0, answer_tokens: int = 0, memory_gib: float = 80.0
) -> dict[str, Any]:
    """The size of a model, and the bytes of a training step with the run's own objective, on shapes without storage.

    ``bytes``: "gradients" and "adamw_state" are those of the trained parameters, "training" is these two and the
    float32 weights. "activations" are the most bytes at a time that are none of these, for ``batch_size`` examples of
    the given lengths, padding among them; "peak" is the most of everything at a time, at most "training" +
    "activations". ``largest_batch`` is the largest whose peak is at most ``memory_gib`` x 2^30, 0 where none is.

    Args:
        question_tokens: Of the longest question; 0 takes ``trainer.max_input_length``, or what a decoder has room for.
        answer_tokens: Of the longest answer, its end token among them; 0 takes ``ANSWER_TOKENS``.
    """
    import torch

    from ntl.models.lora import add_lora

    built = shape(config)
    if config.model.lora.rank:
        with torch.device("meta"):
            add_lora(built.model, config.model.lora)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in built.model.parameters()]
    weights, trained = sum(size for size, _ in sizes), sum(size for size, is_trained in sizes if is_trained)
    lengths = _lengths(config, built.model, question_tokens, answer_tokens)
    growth = _growth(config, built, lengths)
    kept, batch = 4 * weights + 8 * trained, config.trainer.batch_size
    return {
        "model": config.model.name,
        "requires": config.model.requires,
        "parameters": built.parameters,
        "trained_parameters": trained,
        "embedding_rows": built.embedding_rows,
        "bytes": {
            "weights_float32": 4 * weights,
            "weights_bfloat16": 2 * weights,  # for decoding: trainer.bf16=true trains on weights that stay float32
            "gradients": 4 * trained,
            "adamw_state": 8 * trained,  # two float32 moments
            "training": kept + 4 * trained,
            "activations": growth.activations(batch),
            # The optimizer step, with all gradients and no activation, is a moment of its own.
            "peak": kept + max(growth.peak(batch), 4 * trained),
        },
        "batch_size": batch,
        "question_tokens": lengths[0],
        "answer_tokens": lengths[1],
        "memory_gib": memory_gib,
        "largest_batch": growth.largest_batch(room) if (room := int(memory_gib * GIB) - kept) >= 4 * trained else 0,
        "note": built.note,
    }


def _lengths(config: Config, model: Any, question: int, answer: int) -> tuple[int, int]:
    answer = answer or ANSWER_TOKENS[config.dataset.answers]
    positions = None if model.config.is_encoder_decoder else getattr(model.config, "max_position_embeddings", None)
    if positions is None:
        return question or config.trainer.max_input_length, answer
    answer = min(answer, positions // 2)
    # The last token that is generated is never read.
    unread = int(model.can_generate())
    return question or min(config.trainer.max_input_length, positions - answer + unread), answer


def _growth(config: Config, built: Shape, lengths: tuple[int, int]) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ntl.costs.memory import Growth, Timeline, shapes_of, trace
    from ntl.models import checkpoint_activations
    from ntl.numbers import NumberVocabulary
    from ntl.training.objectives.terms import terms_of

    model, tokenizer = built.model, built.tokenizer
    if config.trainer.gradient_checkpointing:
        checkpoint_activations(model)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    shapes_of(model, mode)
    collate = locate(config.objective.collator)(model.config, tokenizer)
    ids = range(model.get_input_embeddings().num_embeddings)
    digits = range(tokenizer.number_token_id, tokenizer.number_token_id + 10)

    def timeline(batch_size: int) -> Timeline:
        # Made anew each time: what an objective remembers from its first batch would be missing in the second.
        numbers = NumberVocabulary.from_values([i - digits[0] if i in digits else float("nan") for i in ids])
        terms = terms_of(config.loss, numbers)
        return trace(
            build(config.objective, model=model, terms=terms, number_vocab=numbers),
            collate(_examples(batch_size, lengths, tokenizer)),
            mode,
            bf16=config.trainer.bf16,
            fused=config.device != "cpu",
            accumulate=config.trainer.accumulation_steps > 1,
        )

    return Growth.between(timeline(TRACED[0]), timeline(TRACED[1]), TRACED)


def _examples(count: int, lengths: tuple[int, int], tokenizer: _Tokenizer) -> list[dict[str, Any]]:
    # One as long as can be, the others a token shorter: batches have padding, and padding costs memory.
    import numpy as np

    examples = []
    for row in range(count):
        question, answer = (max(length - (row > 0), 1) for length in lengths)
        question_ids = np.full(question, tokenizer.number_token_id)
        question_ids[-1] = tokenizer.eos_token_id
        examples.append(
            {
                "question_ids": question_ids,
                "answer_ids": np.full(answer, tokenizer.number_token_id),
                "question_values": np.ones(question),
                "answer_values": np.ones(answer),
            }
        )
    return examples


def main(argv: Sequence[str] | None = None) -> None:
    """The command line. UserError: an override that does not compose."""
    parser = argparse.ArgumentParser(
        description="Print a model's number of parameters, the memory that a training step of it needs, and the batch "
        "that fits. Nothing is downloaded or allocated."
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as of train.py: model=gpt2_small")
    parser.add_argument("--memory", type=float, default=80.0, metavar="GIB", help="of the device, in GiB (default 80)")
    parser.add_argument("--question-tokens", type=int, default=0, metavar="N", help="default trainer.max_input_length")
    answers = ", ".join(f"{size} for a {kind}" for kind, size in ANSWER_TOKENS.items())
    parser.add_argument(
        "--answer-tokens", type=int, default=0, metavar="N", help=f"default by the data set's answers: {answers}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_intermixed_args(argv)
    result = estimate(
        compose(arguments.overrides),
        question_tokens=arguments.question_tokens,
        answer_tokens=arguments.answer_tokens,
        memory_gib=arguments.memory,
    )
    print(json.dumps(result, indent=1) if arguments.json else text(result))


def text(result: dict[str, Any]) -> str:
    """The result for a reader, sizes in MiB (2^20 bytes)."""
    note = f" ({result['note']})" if result["note"] else ""
    lines = [f"{result['model']}: {result['parameters']:,} parameters, {result['embedding_rows']:,} tokens{note}"]
    if result["requires"]:
        lines.append(f"requires {result['requires']}")
    if result["trained_parameters"] < result["parameters"]:
        lines.append(f"{result['trained_parameters']:,} parameters are trained")
    width = max(map(len, result["bytes"]))
    lines += [f"  {name:<{width}}  {size / 2**20:12,.1f} MiB" for name, size in result["bytes"].items()]
    length = f"questions of {result['question_tokens']} tokens and answers of {result['answer_tokens']}"
    lines += [
        "training is weights_float32 + gradients + adamw_state; activations and peak are those of a step with "
        f"a batch of {result['batch_size']}, {length}",
        f"largest batch in {result['memory_gib']:g} GiB: {result['largest_batch']}",
        NOT_COUNTED,
    ]
    return "\n".join(lines)
