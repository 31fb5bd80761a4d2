"""Plain text is scored, not decoded: how likely its tokens are, each given all before it in its example.

Shapes: B batch, T labels of an example, N its number labels, V vocabulary, K number tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ntl.config.decoding import LikelihoodConfig
from ntl.decoding.batches import Answer, Example, Read
from ntl.models import embedding_rows
from ntl.numbers import NumberVocabulary
from ntl.tokenizers import number_vocabulary

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

    An example also has ``documents``, as ``ntl.data.packed.Packed.documents`` gives them, and the inputs have labels.
    """
    rows = embedding_rows(model)
    vocab = number_vocabulary(tokenizer, digits_only=config.digits_only, vocab_size=rows).to(model.device)

    def read(batch: Sequence[Example], inputs: Mapping[str, Tensor]) -> list[Answer]:
        given = {name: tensor for name, tensor in inputs.items() if name != "labels"}
        logits_BTV = model(**given, use_cache=False).logits
        answers = []
        for example, logits_TV, labels_T in zip(batch, logits_BTV, inputs["labels"], strict=True):
            first, lengths = example["documents"]
            answers.append(Answer("", [], {PIECES: pieces(first, lengths, logits_TV, labels_T, vocab)}))
        return answers

    return read


def pieces(
    first: int, lengths: Sequence[int], logits_TV: Tensor, labels_T: Tensor, vocab: NumberVocabulary
) -> list[Piece]:
    """The pieces of an example whose first ``lengths[0]`` labels are of document ``first``, the next of the next.

    Logits and labels may be longer: what stands behind is padding.
    """
    total = sum(lengths)
    logits_TV, labels_T = logits_TV[:total].float(), labels_T[:total]
    ce_T = logits_TV.logsumexp(-1) - logits_TV.gather(-1, labels_T[:, None])[:, 0]
    values_T = vocab.values[labels_T]
    numbers_T = ~values_T.isnan()
    logits_NK, values_N = logits_TV[numbers_T][:, vocab.token_ids], values_T[numbers_T]
    right_N = logits_TV[numbers_T].argmax(-1) == labels_T[numbers_T]
    error_N = (vocab.token_values[logits_NK.argmax(-1)] - values_N).abs()
    mean_error_N = (logits_NK.softmax(-1) @ vocab.token_values - values_N).abs()
    sums_T5 = torch.zeros(total, 5, dtype=torch.float64, device=logits_TV.device)
    sums_T5[:, 0] = ce_T
    sums_T5[:, 1] = numbers_T
    sums_T5[numbers_T, 2:] = torch.stack([right_N, error_N, mean_error_N], dim=-1).double()
    found = []
    for place, (count, part_C5) in enumerate(zip(lengths, sums_T5.cpu().split(list(lengths)), strict=True)):
        ce, numbers, right, error, mean_error = part_C5.sum(0).tolist()
        found.append(Piece(first + place, count, ce, round(numbers), round(right), error, mean_error))
    return found
