"""From a model to predictions.jsonl and its scores, during a run or for a finished one."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from ntl import evaluation
from ntl.config import DecodingConfig
from ntl.config.decoding import TreeConfig
from ntl.data.dataset import TextDataset
from ntl.decoding.batches import Answer, cut_off, decode, progress_lines
from ntl.decoding.checks import RULE, different_questions, max_new_tokens
from ntl.decoding.distribution import LARGEST, NumberDistribution
from ntl.decoding.generation import own_settings
from ntl.decoding.likelihood import PIECES, Piece
from ntl.decoding.point import DISTRIBUTION
from ntl.evaluation import number_metrics, score_predictions, write_predictions
from ntl.evaluation.interval import Calibration, errors_of
from ntl.evaluation.metrics import COVERED, RIDGE
from ntl.evaluation.numeric import crps, list_metrics
from ntl.evaluation.predictions import SCHEMA
from ntl.evaluation.scores import sample_key
from ntl.numbers import parse_number
from ntl.runs.folder import is_first
from ntl.runs.parts import RunParts, TextRows
from ntl.system.messages import logger

# The metrics of the decoded validation examples that are logged.
VALIDATED = ("accuracy", "mae", "bleu", "rouge1", "exact_match")


def decode_examples(
    parts: RunParts, decoding: DecodingConfig, examples: Any, label: str = "", **options: Any
) -> list[Answer]:
    """Decode encoded examples, with lines of progress if there is a ``label``: the answers, in their order.

    Each rank decodes a share and returns all answers; every rank must call this. ``options``: as of
    `ntl.decoding.batches.decode`; with ``max_new_tokens`` the run's own length and chat template are not used.
    """
    rank, ranks = (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    share = range(rank, len(examples), ranks)  # dealt in turn: examples are sorted by length
    chosen: list[Any] = [examples[index] for index in share]
    how: dict[str, Any] = {"collate": parts.collator.prompts, **options}
    if "max_new_tokens" not in options:
        how |= {"max_new_tokens": max_new_tokens(parts), "chat": parts.chat}
    if chosen and "documents" in chosen[0]:  # a question that is asked has no data set
        how["collate"] = parts.collator
        of_documents = ([*map(int, example["documents"])] for example in chosen)
        chosen = [{**example, "documents": (d[0], d[1:])} for example, d in zip(chosen, of_documents, strict=True)]
    if label:
        how["progress"] = progress_lines(label, len(share))
    mine = decode(decoding, model=parts.model, tokenizer=parts.tokenizer, examples=chosen, **how)
    if ranks == 1:
        return mine
    shares: list[Any] = [None] * ranks
    distributed.all_gather_object(shares, mine)
    return [shares[index % ranks][index // ranks] for index in range(len(examples))]


def decode_in_training(parts: RunParts, decoding: DecodingConfig, examples: Any) -> list[Answer]:
    """As ``decode_examples``, without affecting the training: the random state is restored."""
    device = parts.model.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return decode_examples(parts, decoding, examples)


def decode_validation(parts: RunParts) -> dict[str, float]:
    """Decode the validation examples of an evaluation as the test splits are decoded, and return their metrics.

    These are accuracy and MAE, of texts BLEU, ROUGE-1 and exact match, and ``trainer.best``; an undefined one is left
    out. Every rank must call this; the training is not affected.
    """
    config, dataset = parts.config, parts.dataset
    rows, examples = parts.rows("validation"), parts.encoded("validation").first(config.trainer.eval_rows)
    texts = [answer.text for answer in decode_in_training(parts, config.decoding, examples)]
    decoded = [rows[index] for index in range(len(texts))]
    correct = [row["answer"] for row in decoded]
    if dataset.metrics == "number":
        scores = number_metrics(texts, correct, groups=[dataset.group(row["id"]) for row in decoded])
    elif dataset.metrics == "numbers":
        scores, _ = list_metrics(texts, correct)
    else:
        scores = evaluation.text_metrics(texts, correct)
    named = {*VALIDATED, config.trainer.best} & scores.keys()
    return {name: scores[name] for name in sorted(named) if math.isfinite(scores[name])}


def calibrate(parts: RunParts, decoding: DecodingConfig, rows: int, **options: Any) -> Calibration:
    """Decode ``rows`` validation examples of different questions, the same for every run, and compare the answers."""
    texts, examples = parts.rows("validation"), parts.encoded("validation")
    different = different_questions(parts)
    order = sorted(different, key=lambda index: sample_key(texts[index]["id"]))[:rows]
    answers = decode_examples(parts, decoding, [examples[index] for index in order], "validation", **options)
    correct = (RULE.extract(texts[index]["answer"]) for index in order)
    compared = RULE.compare(
        [RULE.extract(answer.text) for answer in answers], [number for number in correct if number is not None]
    )
    spreads = [answer.about.get("sd") for answer in answers]
    # One unit of the last decimal that is written: a narrower distribution says no more.
    scale = decoding.interval_scale
    least = 10.0**-decoding.decimals if isinstance(decoding, TreeConfig) and scale == "linear" else None
    return Calibration.from_errors(errors_of(compared, scale), spreads, least, scale)


def predictions_name(decoding: DecodingConfig, *more: str, name: str = "") -> str:
    """The predictions file of a decoding, under its own name or its ``name`` in ``config.extra_decodings``."""
    return f"{'-'.join(['predictions', name or decoding.name, str(decoding.num_beams), *more])}.jsonl"


def decoded_examples(parts: RunParts, split: str) -> Any:
    """The encoded examples of a split that are decoded: of validation, the first ``eval_rows``."""
    is_test = split in parts.dataset.test_splits
    return parts.encoded(split) if is_test else parts.encoded(split).first(parts.config.trainer.eval_rows)


def decode_splits(
    parts: RunParts,
    splits: Sequence[str],
    path: Path,
    decoding: DecodingConfig | None = None,
    searches: dict[Any, Any] | None = None,
) -> Any:
    """Decode all examples of the splits, write the predictions file, and score it from the file.

    ``decoding`` is by default the run's own; what one by number has found is in ``searches`` for the next. Of several
    processes, each decodes a share; the first one writes and scores, and the others return None.
    """
    config = decoding or parts.config.decoding
    if own := own_settings(parts.model, config.num_beams):
        words = ", ".join(f"{name}={value}" for name, value in own.items())
        logger.warning(f"decoding={config.name}: the model's own generation config has {words}, which is not used.")
    header = header_of(parts, config)
    more = {"searches": searches} if isinstance(config, TreeConfig) else {}
    if config.interval_rows and "validation" not in splits:
        header["calibration"] = calibrate(parts, config, config.interval_rows, **more).header
    rows: list[dict[str, Any]] = []
    texts_of, cut = dict[str, Any](), dict[str, str]()
    for split in splits:
        examples = decoded_examples(parts, split)
        whole = parts.dataset.metrics == "likelihood"
        texts = texts_of[split] = parts.rows(split) if whole else [*islice(parts.rows(split), len(examples))]
        parts.warn_of_lost_text(split)
        answers = decode_examples(parts, config, examples, split, **more)
        cut[split] = cut_off(answers)
        if whole:
            rows += _documents(split, texts, answers)
        else:
            pairs = enumerate(zip(texts, answers, strict=True))
            rows += [_line(parts, split, row, examples[index], answer) for index, (row, answer) in pairs]
    if not is_first():
        return None
    if parts.ridge:
        questions = [row["question"] for split in splits for row in texts_of[split]]
        rows = [{**row, RIDGE: answer} for row, answer in zip(rows, parts.ridge.answers(questions), strict=True)]
    if parts.dataset.metrics == "number":
        header["baselines"] = evaluation.constant_baselines(parts.prepared.train_targets())
    if parts.dataset.metrics == "likelihood":
        sizes = {split: sum(len(row["answer"].encode()) for row in parts.rows(split)) for split in splits}
        header |= {"bytes": sizes, "digits": parts.config.tokenizer.digits_only}
    write_predictions(path, header, rows)
    scores = score_predictions(path)
    for split in splits:
        remark, represented = f"; {cut[split]}" * bool(cut[split]), scores.metrics.get(f"{split}/represented", 1.0)
        if represented < COVERED:
            remark = (
                f"; numbers hold {represented:.3f} of the probability, the rest is text: answers are of this part alone"
            )
        logger.info(f"decoded {split} by {config.name.replace('_', ' ')}: {len(texts_of[split]):,} examples{remark}")
    return scores


def header_of(parts: RunParts, config: DecodingConfig) -> dict[str, Any]:
    """The header of a predictions file, without what depends on its rows."""
    header = {"schema": SCHEMA, "dataset": parts.config.dataset.name, "metrics": parts.dataset.metrics}
    return {**header, "decoding": described(config), "baselines": {}}


def described(decoding: DecodingConfig) -> dict[str, Any]:
    """The settings of a decoding."""
    usual = {"interval_rows": 0, "interval_scale": "linear"}
    return {name: value for name, value in asdict(decoding).items() if (name, value) not in usual.items()}


def _documents(split: str, texts: TextRows, scored: Sequence[Answer]) -> list[dict[str, Any]]:
    """One line per document: the sums of its pieces, which may lie in several examples."""
    sums: dict[int, list[float]] = {}
    for answer in scored:
        for document, *amounts in answer.about[PIECES]:
            totals = sums.get(document, [0] * len(amounts))
            sums[document] = [a + b for a, b in zip(totals, amounts, strict=True)]
    of_rows = (dict(zip(Piece._fields[1:], sums[index], strict=True)) for index in range(len(texts)))
    return [{"split": split, "id": row["id"], **sums_of} for row, sums_of in zip(texts, of_rows, strict=True)]


def _line(parts: RunParts, split: str, row: Any, example: Any, answer: Answer) -> dict[str, Any]:
    """A line of the predictions file; "crps" compares a distribution with the raters' answers or the one answer."""
    dataset: TextDataset = parts.dataset
    asked, about = row["question"], {**answer.about}
    line = {"split": split, "id": row["id"], "answer": row["answer"], "prediction": answer.text}
    facts = {"group": dataset.group(row["id"]), "truth": dataset.truth(asked), "shortcut": dataset.shortcut(asked)}
    distribution: NumberDistribution | None = about.pop(DISTRIBUTION, None)
    if distribution is not None:
        labels = json.loads(row["labels"]) if "labels" in row else [float(parse_number(row["answer"]) or 0)]
        if max(map(abs, labels)) <= LARGEST:
            about["crps"] = crps(distribution.values, distribution.shares, labels)
    if dataset.metrics == "text":
        matches = evaluation.token_matches(answer.token_ids, example["answer_ids"].tolist())._asdict()
        about |= {f"tokens_{name}": count for name, count in matches.items()}
    if count_malformed := getattr(parts.tokenizer, "count_malformed", None):
        about["malformed"] = count_malformed(answer.token_ids)
    return line | {name: value for name, value in facts.items() if value is not None} | about
