"""The losses of the paper's Figures 1b and 2 as two small CSV files: python scripts/loss_curves.py.

They are computed by the loss functions used in training. For a loss with a number term it is that term, for any other
its base.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS
from ntl.losses import cross_entropy
from ntl.losses.registry import Terms
from ntl.numbers import NumberVocabulary
from ntl.system.errors import one_line_errors

# The losses of the paper's figures, which need no package but torch.
PAPERS = ("ce", "ntl_mse", "ntl_was")
LABEL = 4
FOLDER = RESULTS / "figures"
Row = dict[str, float]


def _losses(names: Sequence[str], logits: Tensor, labels: Tensor, vocab: NumberVocabulary) -> dict[str, Tensor]:
    losses = {}
    for name in names:
        terms = _terms(name, vocab)
        losses[name] = (terms.number if terms.numbers else terms.base)(logits, labels, vocab, reduction="none")
    return losses


def _terms(name: str, vocab: NumberVocabulary) -> Terms:
    if name in PAPERS:
        return Terms.of(name, 1.0, {})
    from ntl.benchmarks.losses import check_losses
    from ntl.config import compose
    from ntl.objectives.next_token import loss_of

    check_losses([name])
    return loss_of(compose([f"loss={name}"]).loss, vocab, {"point_id": None}).terms


def _rows(columns: dict[str, Tensor]) -> list[Row]:
    # Six digits, of which a plot shows three, so that the files do not depend on a processor's order of additions.
    digits = {name: [float(f"{value:.6g}") + 0.0 for value in column.tolist()] for name, column in columns.items()}
    return [dict(zip(digits, values, strict=True)) for values in zip(*digits.values(), strict=True)]


def by_digit(names: Sequence[str] = PAPERS) -> list[Row]:
    """Return the rows of Figure 1b, one per digit: this digit has the logit 5, the others 0.01; the label is 4."""
    logits = torch.full((10, 10), 0.01, dtype=torch.float64).fill_diagonal_(5.0)
    labels = torch.full((10,), LABEL)
    vocab = NumberVocabulary.from_values(range(10))
    return _rows({"predicted": torch.arange(10), **_losses(names, logits, labels, vocab)})


def by_mass(steps: int = 50, names: Sequence[str] = PAPERS) -> list[Row]:
    """Return the rows of Figure 2, one per distribution over 3, 4 and 5 in steps of ``1 / steps``; the label is 4.

    ``ce_original`` is what the authors' notebook draws, the cross-entropy of softmax(5 p). It uses probabilities as
    logits, so that it is finite if the label has no mass and not 0 if the label has all of it.
    """
    grid = [(a, b) for a in range(steps + 1) for b in range(steps + 1 - a)]
    p3, p5 = (torch.tensor(side, dtype=torch.float64) / steps for side in zip(*grid, strict=True))
    probabilities = torch.stack([p3, (1 - p3 - p5).clamp(min=0), p5], dim=-1)
    # Rounding can leave a mass of 1e-17 that should be 0.
    probabilities = torch.where(probabilities < 1e-9, 0.0, probabilities)
    labels = torch.ones(len(grid), dtype=torch.long)
    vocab = NumberVocabulary.from_values([3, 4, 5])
    original = cross_entropy(5 * probabilities, labels, reduction="none")
    return _rows({"p3": p3, "p5": p5, **_losses(names, probabilities.log(), labels, vocab), "ce_original": original})


def main(argv: Sequence[str] | None = None) -> None:
    """Write both tables, from which `make figures` draws without torch."""
    parser = Parser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR")
    parser.add_argument("--losses", nargs="+", default=PAPERS, metavar="LOSS", help="names in config/loss")
    chosen = parser.parse_args(argv)
    folder, losses = chosen.out, chosen.losses
    tables = {"losses_by_digit": by_digit(losses), "losses_by_mass": by_mass(names=losses)}
    with one_line_errors("write to", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as stream:
                writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(report(main))
