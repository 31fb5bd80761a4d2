"""A batch cut by rows into parts of at most so many tokens, padding included.

Shapes: B rows, S positions of the input, T positions of a decoder that an encoder precedes.
"""

import torch
from torch import Tensor

from ntl.data.collate import IGNORE_INDEX

# With an encoder, these have a column for each position of the decoder; all other tensors have those of the input.
DECODER = ("decoder_input_ids", "labels")


def micro_batches(batch: dict[str, Tensor], max_tokens: int) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Return the parts of a batch, each with the indices of its rows, (R,).

    Rows of similar length come together, the longest first, and columns that are padding in all of them are left out. A
    part of R rows has R times the positions of its longest input and output, at most ``max_tokens``; a row that is
    longer is a part of its own.

    Args:
        batch: attention_mask (B, S); labels and decoder_input_ids (B, T) of an encoder-decoder; further tensors, whose
            first dimension is B, and the second, if they have one, S.
        max_tokens: 0 for any number: the batch as it is.
    """
    attended, is_seq2seq = batch["attention_mask"].bool(), "decoder_input_ids" in batch
    if not max_tokens:
        return [(torch.arange(len(attended), device=attended.device), batch)]
    labelled = batch["labels"] != IGNORE_INDEX if is_seq2seq else attended[:, :0]
    lengths = torch.stack([attended.sum(1), labelled.sum(1)], dim=1)
    parts = []
    for rows in _cut(lengths.tolist(), max_tokens):
        chosen, part = torch.tensor(rows, device=attended.device), {}
        inputs, outputs = _columns(attended[chosen]), _columns(labelled[chosen])
        for name, values in batch.items():
            columns = outputs if is_seq2seq and name in DECODER else inputs
            part[name] = values[chosen][:, columns] if values.dim() > 1 else values[chosen]
        parts.append((chosen, part))
    return parts


def _cut(lengths: list[tuple[int, int]], max_tokens: int) -> list[list[int]]:
    cut: list[list[int]] = []
    widest = (0, 0)
    for row in sorted(range(len(lengths)), key=lambda row: -sum(lengths[row])):
        read, written = lengths[row]
        wider = max(widest[0], read), max(widest[1], written)
        if cut and (len(cut[-1]) + 1) * sum(wider) <= max_tokens:
            cut[-1].append(row)
            widest = wider
        else:
            cut.append([row])
            widest = read, written
    return cut


def _columns(used: Tensor) -> slice:
    """The columns from the first to the last that some row uses: padding is at one end."""
    places = used.any(0).nonzero().flatten().tolist()
    return slice(places[0], places[-1] + 1) if places else slice(0)
