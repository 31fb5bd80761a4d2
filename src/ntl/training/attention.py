"""`scripts/attention.py`: how much a trained decoder attends to masked tokens, and to the answer in the question.

The share of the attention that falls on some tokens is divided by their share of the tokens that can be attended to: 1
is what uniform attention gives. It is that of the positions that predict the answer, averaged over heads and examples.

Shapes: B examples, T sequence length, H heads.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntl.config.cli import Parser
from ntl.config.composition import read_config
from ntl.config.loss import MaskConfig
from ntl.data.collate import IGNORE_INDEX
from ntl.results.load import find_run
from ntl.system.errors import UserError
from ntl.training.masking import Masking, maskable

BATCH = 16
SPANS = ("masked", "answer")
HOLE = -1  # no token id
Row = dict[str, Any]


def relative_attention(weights: Tensor, queries: Tensor, keys: Tensor, attended: Tensor) -> tuple[float, float]:
    """Sum the attention on some tokens, and what uniform attention would give, over the positions that ask.

    Args:
        weights: (B, H, T, T), the attention of each position to itself and those before it.
        queries, keys, attended: (B, T) bool, the positions that ask, the tokens of interest, and all but padding.
    """
    causal = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).tril()
    reach = (causal & attended[:, None]).double()  # (B, T, T)
    of_keys = (reach * keys[:, None]).sum(-1)
    asked = queries & (of_keys > 0)
    found = (weights.double().mean(1) * keys[:, None]).sum(-1)[asked]
    return float(found.sum()), float((of_keys / reach.sum(-1))[asked].sum())


def answer_in_question(question: Sequence[int], answer: Sequence[int]) -> list[int]:
    """Return the positions of the question where the tokens of the answer stand, every time; [] where they do not."""
    size = len(answer)
    starts = [at for at in range(len(question) - size + 1) if list(question[at : at + size]) == list(answer)]
    return sorted({at + place for at in starts for place in range(size)}) if size else []


def _trained(mask: MaskConfig) -> str:
    return f"{mask.fraction:.0%} masked, {mask.variant}" if mask.fraction else "no masks"


def measure(folder: Path, split: str, count: int, fraction: float) -> Iterator[Row]:
    """Yield a row for each layer, and one for all of them (layer 0), of a run's newest checkpoint.

    The first ``count`` examples of the split have each its own tokens masked; a model without a mask token reads them
    as they are, and its ``masked`` are the same positions.

    Raises:
        UserError: The run is not one of a decoder-only language model, or the split does not exist.
    """
    config = read_config(folder)
    if config.model.family != "decoder" or config.dataset.answers == "none":
        raise UserError(f"{folder}: attention is read from answers of a decoder-only language model; give such a run.")
    from ntl.training.decode import restore

    parts, _ = restore(folder, say=lambda line: None)
    if split not in parts.dataset.splits:
        raise UserError(f"--split {split}: choose one of {', '.join(parts.dataset.splits)}")
    model: Any = parts.model.eval()
    model.set_attn_implementation("eager")  # the others give no weights
    data, token = parts.encoded(split), getattr(parts.tokenizer, "mask_token_id", None)
    mask = MaskConfig(fraction=fraction, numbers="allow")
    vocab: Any = parts.number_vocab()
    allowed = maskable(mask, parts.tokenizer, vocab, is_computed=False)
    masking = Masking(mask, seed=0, length=0, maskable=allowed, mask_token_id=HOLE)
    # What an answer begins with may be a mark that the question does not have.
    marks = {parts.tokenizer.get_vocab().get(each) for each in ("▁", "Ġ")}
    sums: dict[tuple[int, str], np.ndarray] = {}
    total = min(count, len(data))
    for start in range(0, total, BATCH):
        examples = [data[place] for place in range(start, min(start + BATCH, total))]
        batch = {name: each.to(parts.device) for name, each in parts.collator(examples).items()}
        clean, queries = batch["input_ids"], batch.pop("labels") != IGNORE_INDEX
        attended = batch["attention_mask"].bool()
        places = {"input_ids": clean, "attention_mask": batch["attention_mask"]}
        masking(places, step=0, first_row=start, examples=torch.arange(start, start + len(examples)))
        masked = places["input_ids"] == HOLE
        if token is not None:
            batch["input_ids"] = torch.where(masked, token, clean)
        answers = torch.zeros_like(masked)
        for row, each in enumerate(examples):
            told = [token_id for token_id in each["answer_ids"][:-1].tolist() if token_id not in marks]
            answers[row, answer_in_question(each["question_ids"].tolist(), told)] = True
        with torch.no_grad():
            layers = model(**batch, use_cache=False, output_attentions=True).attentions
        for layer, weights in enumerate(layers, start=1):
            for span, keys in (("masked", masked), ("answer", answers & ~masked)):
                found = np.array(relative_attention(weights, queries, keys, attended))
                for key in ((layer, span), (0, span)):
                    sums[key] = sums.get(key, np.zeros(2)) + found
    for layer in sorted({layer for layer, _ in sums}):
        ratios = {span: sums[layer, span] for span in SPANS}
        yield {
            "run": folder.name,
            "split": split,
            "examples": total,
            "dataset": config.dataset.name,
            "trained": _trained(config.objective.mask),
            "layer": layer,
            **{span: float(f"{each[0] / each[1]:.4g}") if each[1] else None for span, each in ratios.items()},
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, or with --json a list of rows. UserError for a wrong setting."""
    parser = Parser(
        description="How much the positions that predict the answer attend to masked tokens, and to the answer where "
        "the question has it, relative to uniform attention.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folder, or the id of a run under --outputs")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("--split", default="validation", help="(default: validation)")
    parser.add_argument("--rows", type=int, default=256, help="examples, from the first on (default: 256)")
    parser.add_argument("--fraction", type=float, default=0.15, help="share of masked tokens (default: 0.15)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw the layers to this PNG or SVG file")
    parser.add_argument("--out", type=Path, metavar="CSV", help="also write the rows to this file")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of a table")
    chosen = parser.parse_args(argv)
    if chosen.rows < 1 or not 0 < chosen.fraction < 1:
        raise UserError(f"--rows {chosen.rows} --fraction {chosen.fraction}: at least one row, and between 0 and 1")
    rows = [
        row
        for name in chosen.runs
        for row in measure(find_run(name, chosen.outputs), chosen.split, chosen.rows, chosen.fraction)
    ]
    if chosen.out:
        with chosen.out.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if chosen.figure:
        from ntl.results.figures.attention import attention_figure
        from ntl.results.figures.style import style

        with style():
            figure = attention_figure(rows)
            figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center")
            chosen.figure.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(chosen.figure)
    if chosen.json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        where = f"layer {row['layer']}" if row["layer"] else "all layers"
        told = ", ".join(f"{span} {'none' if row[span] is None else row[span]}" for span in SPANS)
        print(f"{row['run']}, {where}: {told}")
    return 0
