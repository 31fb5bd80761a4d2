"""`scripts/estimate.py`: the size of a model and the memory of a training step, computed without any weights."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ntl.config import Config, build, compose
from ntl.config.cli import Parser
from ntl.config.legality import PLAIN
from ntl.config.targets import locate
from ntl.system.errors import UserError

GIB = 2**30
# The tokens of an answer and its end token, by the data set's ``answers``: the longest of all data sets of that kind,
# rounded up (mathematics 20, GSM8K 363, MultiRC 239, in T5's digit-level tokens).
ANSWER_TOKENS = {"number": 24, "reasoning": 384, "text": 256}
# The memory of every batch size follows from these two, because the bytes of each tensor are linear in the batch size.
# A batch of one row is no use, as some views treat it differently.
TRACED = (2, 3)
NOT_COUNTED = (
    "not counted: the CUDA context and its libraries (0.5 to 1 GiB), what the allocator leaves unused between blocks, "
    "workspaces of single kernels, other processes"
)


@dataclass(frozen=True)
class _Tokenizer:
    """The part of a tokenizer's interface that models and collators need if only shapes matter."""

    size: int
    pad_token_id: int = 0
    eos_token_id: int = 1
    mask_token_id: int = 2
    number_token_id: int = 3

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True)
class Shape:
    """A model on the meta device, with what the objective adds.

    ``parameters`` counts tied parameters once and does not count adapters; ``multiplied`` counts the unembedding once
    for each head that reads it.
    """

    model: Any
    tokenizer: _Tokenizer
    parameters: int
    multiplied: int
    embedding_rows: int
    note: str


def shape(config: Config) -> Shape:
    """Build the model without storage.

    A published model has its published number of embedding rows; in training, a tokenizer with more tokens, such as
    GPT-2's with a pad token, adds rows. For a tiny stand-in, whose tokenizer is trained on the data, the largest
    possible number is assumed, ``tokenizer.vocab_size``; ``note`` says so. Raises UserError for a ``model.path``.
    """
    import torch

    from ntl.models import embedding_rows

    if config.model.path:
        raise UserError(f"model.path={config.model.path}: the estimate reads the shapes of config/model; leave it out.")
    published = bool(getattr(config.model, "vocab_size", 0))
    tokenizer = _Tokenizer(0 if published else config.tokenizer.vocab_size)
    with torch.device("meta"):
        model: Any = build(replace(config.model, pretrained=False), tokenizer=tokenizer)
        notes: list[str] = []
        if config.objective.adds:
            model = locate(config.objective.adds)(model, config.objective, "", notes.append)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rows = embedding_rows(model)
    number_rows = f" and {rows - len(tokenizer)} of number tokens" if rows > len(tokenizer) else ""
    if not published:
        notes.append(f"with tokenizer.vocab_size={len(tokenizer)} rows{number_rows}, the most its tokenizer may need")
    further = getattr(config.objective, "heads", 1) - 1
    unembedding = model.get_output_embeddings().weight.numel() if further else 0
    return Shape(model, tokenizer, parameters, parameters + further * unembedding, rows, "; ".join(notes))


def estimate(
    config: Config, *, question_tokens: int = 0, answer_tokens: int = 0, memory_gib: float = 80.0
) -> dict[str, Any]:
    """Estimate the size of a model and the memory of a training step, traced on shapes with the run's own objective.

    Args:
        question_tokens: The length of the longest question. 0 stands for ``trainer.max_input_length``, or for a decoder
            for the positions that the answer leaves.
        answer_tokens: The length of the longest answer with its end token; 0 stands for ``ANSWER_TOKENS``.
        memory_gib: The memory of the device.

    Returns:
        The sizes, with these entries among others. ``bytes``: "gradients" and "adamw_state" are those of the trained
        parameters, and "training" adds the float32 weights to them. "activations" is the peak of everything else, for
        ``batch_size`` padded examples of the given lengths. "peak" is the peak of the total, which is at most
        "training" + "activations". ``largest_batch``: the largest batch size whose peak is at most ``memory_gib`` x
        2^30 bytes, or 0.
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
    constant, batch = 4 * weights + 8 * trained, config.trainer.batch_size
    return {
        "model": config.model.name,
        "requires": config.model.requires,
        "parameters": built.parameters,
        "trained_parameters": trained,
        "embedding_rows": built.embedding_rows,
        "bytes": {
            "weights_float32": 4 * weights,
            "weights_bfloat16": 2 * weights,  # for decoding; trainer.bf16=true keeps the weights in float32
            "gradients": 4 * trained,
            "adamw_state": 8 * trained,  # two float32 moments
            "training": constant + 4 * trained,
            "activations": growth.activations(batch),
            # The peak may also be in the optimizer step, which has all gradients but no activations.
            "peak": constant + max(growth.peak(batch), 4 * trained),
        },
        "batch_size": batch,
        "question_tokens": lengths[0],
        "answer_tokens": lengths[1],
        "memory_gib": memory_gib,
        "largest_batch": growth.largest_batch(room) if (room := int(memory_gib * GIB) - constant) >= 4 * trained else 0,
        "note": built.note,
    }


def _lengths(config: Config, model: Any, question: int, answer: int) -> tuple[int, int]:
    longest = config.trainer.max_input_length
    # An example of plain text is full.
    answer = answer or ANSWER_TOKENS.get(config.dataset.answers, longest)
    positions = None if model.config.is_encoder_decoder else getattr(model.config, "max_position_embeddings", None)
    if config.dataset.answers == PLAIN:
        return question or 1, min(answer, positions or answer)
    if positions is not None:
        answer = min(answer, positions // 2)
        # The last generated token is never an input.
        longest = min(longest, positions - answer + int(model.can_generate()))
    return question or longest, answer


def _growth(config: Config, built: Shape, lengths: tuple[int, int]) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ntl.costs.memory import Growth, Timeline, shapes_of, trace
    from ntl.data.collate import COPIES, training_collator
    from ntl.models import checkpoint_activations
    from ntl.numbers import NumberVocabulary
    from ntl.training.objectives.terms import terms_of

    model, tokenizer = built.model, built.tokenizer
    if config.trainer.gradient_checkpointing:
        checkpoint_activations(model)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    shapes_of(model, mode)
    collate = training_collator(locate(config.objective.collator)(model.config, tokenizer), config.objective.mask)
    ids = range(model.get_input_embeddings().num_embeddings)
    digits = range(tokenizer.number_token_id, tokenizer.number_token_id + 10)

    def timeline(batch_size: int) -> Timeline:
        # A new objective each time, because tensors that it caches in its first batch would be missing in the second.
        numbers = NumberVocabulary.from_values([i - digits[0] if i in digits else float("nan") for i in ids])
        terms = terms_of(config.loss, numbers)
        batch = collate(_examples(batch_size, lengths, tokenizer))
        batch.pop(COPIES, None)
        return trace(
            build(config.objective, model=model, terms=terms, number_vocab=numbers),
            batch,
            mode,
            bf16=bool(config.trainer.bf16),
            fused=config.device != "cpu",
            accumulate=config.trainer.accumulation_steps > 1,
        )

    return Growth.between(timeline(TRACED[0]), timeline(TRACED[1]), TRACED)


def _examples(count: int, lengths: tuple[int, int], tokenizer: _Tokenizer) -> list[dict[str, Any]]:
    # The first has the given lengths, the others are one token shorter, so that there is padding, which takes memory.
    import numpy as np

    examples = []
    for row in range(count):
        question, answer = (max(length - (row > 0), 1) for length in lengths)
        ids = {"question_ids": np.full(question, tokenizer.number_token_id)}
        ids["question_ids"][-1] = tokenizer.eos_token_id
        ids["answer_ids"] = np.full(answer, tokenizer.number_token_id)
        examples.append({**ids, "question_values": np.ones(question), "answer_values": np.ones(answer)})
    return examples


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError for an override that does not compose."""
    parser = Parser(
        description="Print a model's number of parameters, the memory of a training step, and the largest batch that "
        "fits. Nothing is downloaded or allocated."
    )
    sizes = ", ".join(f"{size} for a {kind}" for kind, size in ANSWER_TOKENS.items())
    answers = f"default by the data set's answers: {sizes}"
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for train.py: model=gpt2_small")
    parser.add_argument("--memory", type=float, default=80.0, metavar="GIB", help="of the device in GiB (default 80)")
    parser.add_argument("--question-tokens", type=int, default=0, metavar="N", help="default trainer.max_input_length")
    parser.add_argument("--answer-tokens", type=int, default=0, metavar="N", help=answers)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_intermixed_args(argv)
    lengths = {"question_tokens": given.question_tokens, "answer_tokens": given.answer_tokens}
    result = estimate(compose(given.overrides), memory_gib=given.memory, **lengths)
    print(json.dumps(result, indent=1) if given.json else text(result))


def text(result: dict[str, Any]) -> str:
    """Format the result for reading, with sizes in MiB (2^20 bytes)."""
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
