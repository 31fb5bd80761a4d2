"""Metrics of text answers, corpus BLEU, ROUGE and exact match, and of plain text.

The libraries of BLEU and ROUGE are imported on first use.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import SimpleNamespace
from typing import Any, NamedTuple

from ntl.evaluation.metrics import TEXT
from ntl.numbers.written import FOLDED
from ntl.system.errors import needs

TEXT_METRICS = tuple(metric.name for metric in TEXT)
_ROUGE = ("rouge1", "rouge2", "rougeL")
# A character of a script without spaces between words; a number with its sign; a word; any other sign.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_TOKEN = (
    rf"{_UNSPACED}\p{{M}}*|(?:(?<![\p{{L}}\p{{M}}\p{{N}}])[-+]\p{{Sc}}?)?\.?\p{{N}}+(?:[.,]\p{{N}}+)*"
    rf"|(?:(?!{_UNSPACED})[\p{{L}}\p{{M}}\p{{N}}])+|\S"
)
PAPER_BATCH = 64  # original code: evaluation batch of one device
PAPER_PADDING = 10  # original code: labels are padded to ten more columns than the longest, and these are scored


@dataclass(frozen=True, slots=True)
class TextRule:
    """Scores are means over batches in file order; ``batch`` 0 is one batch of all texts.

    Accuracy of tokens counts ``padding`` columns after the longest label of a batch, too. ``any_script``: BLEU and
    ROUGE divide texts by ``tokens_of``, and BLEU leaves out orders that all texts are too short for.
    """

    batch: int = 0
    padding: int = 0
    any_script: bool = True

    def batches(self, size: int) -> list[slice]:
        step = self.batch or max(size, 1)
        return [slice(start, start + step) for start in range(0, size, step)]


TEXT_RULES = {"default": TextRule(), "paper": TextRule(PAPER_BATCH, PAPER_PADDING, any_script=False)}


def text_metrics(predictions: Sequence[str], answers: Sequence[str], *, rule: str = "default") -> dict[str, float]:
    """Score N generated texts against one reference each; the keys are TEXT_METRICS.

    bleu: sacreBLEU corpus score, 0 to 100 (exponential smoothing, effective order). rouge1, rouge2, rougeL: mean F1 in
    [0, 1], in lower case, English words stemmed. Both divide texts of any script by ``tokens_of``. exact_match: share
    of equal texts, outer white space aside. With N = 0 all but the count are NaN. With rule="paper" BLEU (13a
    tokenizer, all four orders) and ROUGE (ASCII letters and digits) are means over batches of 64 in the given order,
    every batch with the same weight, as the original code computes them (there ROUGE is also bootstrapped).

    ValueError: lengths differ, or the rule is unknown. UserError: sacrebleu or rouge-score is not installed.
    """
    if rule not in TEXT_RULES:
        raise ValueError(f"unknown text rule {rule!r}: choose one of {', '.join(TEXT_RULES)}")
    size = len(answers)
    if size == 0:
        return dict.fromkeys(TEXT_METRICS, math.nan) | {"count": 0.0}
    batches, any_script, texts = TEXT_RULES[rule].batches(size), TEXT_RULES[rule].any_script, (predictions, answers)
    rouge = rouge_scores(predictions, answers, any_script=any_script)
    with needs("train"):
        from sacrebleu import corpus_bleu
    how: dict[str, Any] = {}
    if any_script:
        texts = [[" ".join(tokens_of(text)) for text in column] for column in texts]
        how = {"tokenize": "none", "use_effective_order": True, "force": True}
    scores = {"bleu": fmean(corpus_bleu(list(texts[0][b]), [list(texts[1][b])], **how).score for b in batches)}
    for name in _ROUGE:
        scores[name] = fmean(fmean(row[name].fmeasure for row in rouge[batch]) for batch in batches)
    scores["exact_match"] = fmean(exact_matches(predictions, answers))
    scores["count"] = float(size)
    return scores


def tokens_of(text: str) -> list[str]:
    """Words of any script and numbers with their signs; of Chinese, Japanese, Thai and the like characters; and signs.

    "It's -5,3 °C" -> It ' s -5,3 ° C
    """
    with needs("train"):
        import regex
    return regex.findall(_TOKEN, unicodedata.normalize("NFC", text).translate(FOLDED))


def rouge_scores(predictions: Sequence[str], answers: Sequence[str], *, any_script: bool = True) -> list[Any]:
    """Name -> precision, recall and fmeasure of ROUGE, for each of N texts. UserError: rouge-score is not installed."""
    with needs("train"):
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer
    english: Any = DefaultTokenizer(use_stemmer=True)

    def words_of(text: str) -> list[str]:
        """``tokens_of`` in lower case, English words stemmed; other signs only where there is nothing else."""
        tokens = tokens_of(text.lower())
        words = [token for token in tokens if token[-1].isalnum() or len(token) > 1] or tokens
        return [english.tokenize(word)[0] if word.isascii() and word.isalpha() else word for word in words]

    scorer = RougeScorer(list(_ROUGE), tokenizer=SimpleNamespace(tokenize=words_of) if any_script else english)
    return [scorer.score(answer, prediction) for prediction, answer in zip(predictions, answers, strict=True)]


class TokenCounts(NamedTuple):
    """Tokens of one answer, end tokens included and padding not.

    correct: label tokens that are generated at the same position. total: label tokens.
    """

    correct: int
    total: int
    generated: int


def token_matches(generated: Sequence[int], label: Sequence[int]) -> TokenCounts:
    """Compare the tokens of an answer with its label. Missing tokens are wrong."""
    correct = sum(a == b for a, b in zip(generated, label, strict=False))
    return TokenCounts(correct, len(label), len(generated))


def token_accuracy(counts: Sequence[TokenCounts], *, rule: str = "default") -> float:
    """Share of right tokens over the whole corpus.

    With rule="paper" it is the mean over batches of 64. As in the original code each row has ten more tokens, the
    padding after the longest label of its batch: correct unless the answer continues there.
    """
    padding, shares = TEXT_RULES[rule].padding, []
    for batch in (counts[part] for part in TEXT_RULES[rule].batches(len(counts))):
        longest, padded = max(row.total for row in batch), len(batch) * padding
        beyond = sum(min(max(row.generated - longest, 0), padding) for row in batch)
        correct, total = sum(row.correct for row in batch), sum(row.total for row in batch)
        shares.append((correct + padded - beyond) / (total + padded))
    return fmean(shares)


def exact_matches(predictions: Sequence[str], answers: Sequence[str]) -> list[bool]:
    """Per example: equal texts, outer white space aside."""
    return [prediction.strip() == answer.strip() for prediction, answer in zip(predictions, answers, strict=True)]


def likelihood_metrics(rows: Sequence[Mapping[str, Any]], size: int, *, digits: bool) -> dict[str, float]:
    """Metrics of N documents of ``size`` UTF-8 bytes together.

    ce: mean over all tokens, in nats. perplexity: e to that power. bits_per_byte: the sum of all cross entropies in
    bits, over the bytes. digit_accuracy: share of the digits where the right one is the most probable of all tokens.
    digit_mae, digit_mae_mean: mean absolute error of the most probable digit, and of the mean digit. With
    ``digits=False`` a number token may have several digits, and "digit" is "number" in these names. NaN where there is
    nothing to average.
    """

    def ratio(total: float, count: float) -> float:
        return total / count if count else math.nan

    names = ("tokens", "ce", "numbers", "right", "error", "mean_error")
    tokens, total_ce, numbers, right, error, mean_error = (math.fsum(row[name] for row in rows) for name in names)
    ce, unit = ratio(total_ce, tokens), "digit" if digits else "number"
    return {
        "ce": ce,
        "perplexity": math.exp(ce) if not ce > 700 else math.inf,
        "bits_per_byte": ratio(total_ce / math.log(2), size),
        f"{unit}_accuracy": ratio(right, numbers),
        f"{unit}_mae": ratio(error, numbers),
        f"{unit}_mae_mean": ratio(mean_error, numbers),
        **{"count": float(len(rows)), "tokens": tokens, f"{unit}s": numbers},
    }
