"""Text that is scored, not decoded: how likely its tokens are, each given all before it in its example.

Shapes: B examples of a batch, T labels of an example, V vocabulary, K number tokens.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.config.decoding import LikelihoodConfig
from ntl.decoding.batches import Answer, Example, Read, checked
from ntl.losses.rows import IGNORE_INDEX
from ntl.models import embedding_rows
from ntl.numbers import NumberVocabulary
from ntl.runs.parts import RunParts

PIECES = "pieces"


class Piece(NamedTuple):
    """Sums over the labels of one document that lie in one example.

    ``tokens`` labels of cross entropy ``ce`` (nats); of them ``numbers`` number tokens, of which ``right`` are the most
    probable of all tokens. ``error`` sums |v − label| of the value v of the most probable number token, ``mean_error``
    of the mean of the distribution over number tokens.
    """

    document: int
    tokens: int
    ce: float
    numbers: int
    right: int
    error: float
    mean_error: float


def read_likelihood(config: LikelihoodConfig, *, model: Any, tokenizer: Any, **_: Any) -> Read:
    """Each answer has no text, and in ``about[PIECES]`` its example's pieces in order.

    An example also has ``documents``: the first, and how many labels each has. The inputs have labels.
    """
    rows = embedding_rows(model)
    vocab = NumberVocabulary.from_tokenizer(tokenizer, digits_only=config.digits_only, vocab_size=rows)
    vocab = vocab.to(model.device)

    def read(batch: Sequence[Example], inputs: Mapping[str, Tensor]) -> list[Answer]:
        given = {name: tensor for name, tensor in inputs.items() if name in ("input_ids", "attention_mask")}
        logits_BTV, answers = model(**given, use_cache=False).logits, []
        for example, logits_TV, labels_T in zip(batch, logits_BTV, inputs["labels"], strict=True):
            first, lengths = example["documents"]
            answers.append(Answer("", [], {PIECES: _pieces(first, lengths, logits_TV, labels_T, vocab)}))
        return answers

    return read


def _pieces(
    first: int, lengths: Sequence[int], logits_TV: Tensor, labels_T: Tensor, vocab: NumberVocabulary
) -> list[Piece]:
    total = sum(lengths)  # behind these is padding
    logits_TV, labels_T = checked(logits_TV[:total].float()), labels_T[:total]
    ce_T = logits_TV.logsumexp(-1) - logits_TV.gather(-1, labels_T[:, None])[:, 0]
    logits_TK, values_T = logits_TV[:, vocab.token_ids], vocab.values[labels_T]
    right_T = (logits_TV.argmax(-1) == labels_T).float()
    error_T = (vocab.token_values[logits_TK.argmax(-1)] - values_T).abs()
    mean_error_T = (logits_TK.softmax(-1) @ vocab.token_values - values_T).abs()
    of_numbers_T4 = torch.stack([torch.ones_like(ce_T), right_T, error_T, mean_error_T], dim=-1)
    of_numbers_T4 = of_numbers_T4.where(~values_T.isnan()[:, None], 0)
    sums_T5 = torch.cat([ce_T[:, None], of_numbers_T4], dim=-1).double().cpu()
    parts = [(len(part_C5), *part_C5.sum(0).tolist()) for part_C5 in sums_T5.split(list(lengths))]
    return [
        Piece(document, tokens, ce, round(numbers), round(right), error, mean_error)
        for document, (tokens, ce, numbers, right, error, mean_error) in enumerate(parts, start=first)
    ]


@torch.no_grad()
def teacher_forced(parts: RunParts, examples: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits (B, T, V) float32 and the labels (B, T) of batches of encoded examples, in their order."""
    model: Any = parts.model.eval()
    size = parts.config.trainer.eval_batch_size
    for start in range(0, len(examples), size):
        batch = parts.collator([examples[index] for index in range(start, min(start + size, len(examples)))])
        inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
        labels, _ = inputs.pop("labels"), inputs.pop("loss_weights", None)
        yield model(**inputs, use_cache=False).logits.float(), labels


def answer_bits(parts: RunParts, examples: Mapping[str, Any]) -> dict[str, float]:
    """Bits of the right answer as it is written, its end included, and its mean probability, by split.

    ``examples``: split -> encoded examples. Returns "<split>/bits" and "<split>/probability"; nothing where answers are
    no numbers, or the model has no head over tokens.
    """
    if parts.dataset.metrics != "number" or parts.config.model.head != "lm":
        return {}
    scores = dict[str, float]()
    for split, encoded in examples.items():
        bits = list[float]()
        for logits, labels in teacher_forced(parts, encoded):
            by_label = checked(logits).transpose(1, 2)
            nats = F.cross_entropy(by_label, labels, reduction="none", ignore_index=IGNORE_INDEX).sum(-1)
            bits += (nats.double() / math.log(2)).tolist()
        if bits:
            scores |= {f"{split}/bits": fmean(bits), f"{split}/probability": fmean(0.5**of for of in bits)}
    return scores
