"""`scripts/calibrate.py`: calibration of a run's distribution over digits.

The distribution is teacher-forced: at each number label of a test set, the softmax over the number tokens alone, as the
number losses see it, is compared with the digit of the label.

Shape suffixes: K number tokens, N number labels, B bins of confidence.
"""

from pathlib import Path
from typing import Any, cast

import torch

from ntl.decoding.likelihood import teacher_forced
from ntl.decoding.predictor import restore
from ntl.losses.cdf import crps_rows
from ntl.losses.rows import IGNORE_INDEX, NumberRows, number_rows
from ntl.numbers import NumberVocabulary
from ntl.runs.parts import RunParts
from ntl.system.errors import UserError

BINS = 15
COLUMNS = ("labels", "accuracy", "confidence", "ece", "nll", "brier", "crps")


def calibration(rows: NumberRows) -> dict[str, float]:
    """Compute the calibration scores of the digit distributions (N, K).

    Returns:
        labels: N.
        accuracy: How often the most probable digit is right.
        confidence: Mean probability of the most probable digit.
        ece: Expected calibration error: |accuracy − confidence| of ``BINS`` bins of confidence, averaged with the
            number of labels as weight (Naeini et al., 2015). Lower is better, as for the following.
        nll, brier, crps: Proper scores, in nats, in squared probability, and in value units (`ntl.losses.ntl_crps`).
    """
    log_q_NK = rows.logits_NK.double().log_softmax(dim=-1)
    q_NK = log_q_NK.exp()
    confidence_N, top_N = q_NK.max(dim=-1)
    right_N = (top_N == rows.tokens_N).double()
    bin_N = (confidence_N * BINS).long().clamp(max=BINS - 1)
    gap_B = torch.zeros(BINS, dtype=torch.float64).index_add(0, bin_N, right_N - confidence_N)
    of_label_N1 = rows.tokens_N.unsqueeze(-1)
    error_NK = q_NK.scatter_add(-1, of_label_N1, -torch.ones_like(q_NK[:, :1]))
    return {
        "labels": len(right_N),
        "accuracy": float(right_N.mean()),
        "confidence": float(confidence_N.mean()),
        "ece": float(gap_B.abs().sum() / len(right_N)),
        "nll": float(-log_q_NK.gather(-1, of_label_N1).mean()),
        "brier": float(error_NK.square().sum(-1).mean()),
        "crps": float(crps_rows(rows).double().mean()),
    }


def digit_probabilities(rows: NumberRows) -> list[list[float] | None] | None:
    """Return the mean probability of each digit by target digit, as ``[target digit][digit]``.

    The row of a digit that is never a target is None. Returns None if the number tokens are not the ten digits.
    """
    if sorted(rows.values_K.tolist()) != list(range(10)):
        return None
    q_NK = rows.logits_NK.double().softmax(dim=-1)[:, rows.values_K.argsort()]
    means = [q_NK[rows.targets_N == digit].mean(dim=0) for digit in range(10)]
    return [None if mean.isnan().any() else [round(q, 5) for q in mean.tolist()] for mean in means]


def calibrate(folder: Path) -> dict[str, dict[str, Any]]:
    """Calibrate the newest complete checkpoint of a run on each test split, over all number labels of the split.

    Returns split -> scores of `calibration`, and "digits" (`digit_probabilities`) if the number tokens are the ten
    digits. UserError of ``restore``, and for a head without digits or a split without number labels.
    """
    run, _ = restore(folder)
    if run.config.model.head != "lm":
        raise UserError(f"{folder}: model={run.config.model.name} has no distribution over digits.")
    scores = {}
    for split in run.dataset.test_splits:
        rows = _number_rows(run, split)
        if not len(rows.tokens_N):
            raise UserError(f"{folder}: {split} has no number labels with tokenizer={run.config.tokenizer.name}.")
        digits = digit_probabilities(rows)
        scores[split] = calibration(rows) | ({} if digits is None else {"digits": digits})
    return scores


def _number_rows(run: RunParts, split: str) -> NumberRows:
    vocab = cast(NumberVocabulary, run.number_vocab()).to("cpu")
    batches = teacher_forced(run, run.encoded(split))
    parts = [number_rows(logits.cpu(), labels.cpu(), vocab, IGNORE_INDEX) for logits, labels in batches]
    logits, tokens, targets = map(torch.cat, zip(*(rows[:3] for rows in parts), strict=True))
    return parts[0]._replace(logits_NK=logits, tokens_N=tokens, targets_N=targets)
