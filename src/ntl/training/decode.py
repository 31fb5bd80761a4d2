"""From a model to predictions.jsonl and its scores, during a run or for a finished one.

The checks of data against model and decodings come before anything is trained or decoded.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from ntl import evaluation
from ntl.config import DecodingConfig
from ntl.config.decoding import NumberHeadConfig, SpeculativeConfig, TreeConfig
from ntl.config.identity import plain
from ntl.config.trainer import is_decoded
from ntl.data.dataset import TextDataset
from ntl.data.sets.file import File
from ntl.decoding.batches import Answer, DecodingLines, decode
from ntl.decoding.distribution import LARGEST, NumberDistribution
from ntl.decoding.generation import own_settings
from ntl.decoding.likelihood import PIECES, Piece
from ntl.decoding.point import DISTRIBUTION
from ntl.decoding.speculative import check_window
from ntl.decoding.tree import ENDS, START, advance
from ntl.evaluation import number_metrics, score_predictions, write_predictions
from ntl.evaluation.interval import LEVEL, Calibration, errors_of, least_answers, one_of_each
from ntl.evaluation.metrics import COVERED, RIDGE
from ntl.evaluation.numeric import crps, list_metrics
from ntl.evaluation.predictions import SCHEMA
from ntl.evaluation.rules import RULES
from ntl.evaluation.scores import sample_key
from ntl.numbers import parse_number
from ntl.system.errors import UserError
from ntl.training.checkpoints import is_first
from ntl.training.parts import RunParts, TextRows

# The original code allows ten tokens beyond the longest label; ours is the longest TRAINING label.
EXTRA_TOKENS = 10
RULE = RULES["default"]
# The metrics of the decoded validation examples that are logged.
VALIDATED = ("accuracy", "mae", "bleu", "rouge1", "exact_match")
_RT_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]{1,12}0*)?")  # twelve decimals have a token


def max_new_tokens(parts: RunParts) -> int:
    """How many tokens an answer may have: as in ``decoding``, else from the longest answer of the training data."""
    return parts.config.decoding.max_new_tokens or parts.encoded("train").about["longest_answer"] + EXTRA_TOKENS


def splits_of(parts: RunParts, decoding: DecodingConfig) -> tuple[str, ...]:
    """The test splits of a decoding. UserError for one that the data set does not have."""
    known = parts.dataset.test_splits
    chosen = tuple(getattr(decoding, "splits", ())) or known
    if unknown := [split for split in chosen if split not in known]:
        raise UserError(
            f"decoding {decoding.name}, splits: {parts.dataset.name} has no test split {unknown[0]!r}; choose from "
            f"{', '.join(known)}."
        )
    return chosen


def check_lengths(parts: RunParts, splits: Sequence[str] = ()) -> None:
    """Raise ``UserError`` unless every example, and every answer that may be generated, has a position in the model.

    ``splits`` are by default those of training, and the test splits.
    """
    positions = getattr(parts.model.config, "max_position_embeddings", None)  # None: they are relative
    if positions is None:
        return
    config, dataset, limit = parts.config, parts.dataset, parts.config.trainer.max_input_length
    is_text = dataset.metrics == "likelihood"
    decodings = (config.decoding, *config.extra_decodings.values())
    decoded = dataset.test_splits
    if is_decoded(config.trainer) or any(decoding.interval_rows for decoding in decodings):
        decoded = (*decoded, "validation")
    generates = parts.model.can_generate() and not is_text
    longest = max(each.max_new_tokens or max_new_tokens(parts) for each in decodings) if generates else 0
    for split in splits or dict.fromkeys(("train", "validation", *dataset.test_splits)):
        about, answer = parts.encoded(split).about, longest if split in decoded else 0
        question = about["longest_question"]
        for decoding in decodings if answer else ():
            if isinstance(decoding, SpeculativeConfig):
                check_window(decoding, parts.model, question + (decoding.max_new_tokens or max_new_tokens(parts)))
        if parts.model.config.is_encoder_decoder:
            needed = max(question, about["longest_answer"], answer)
        else:
            trained = 0 if splits and answer else parts.longest_input(split)
            needed = max(trained, question + answer - 1)  # the last generated token is not an input
        if needed <= positions:
            continue
        reads = f"model={config.model.name}: it reads {positions} tokens, and"
        if is_text:
            raise UserError(
                f"{reads} trainer.max_input_length={limit} packs more into a block; lower it, or take another model."
            )
        lower = "decoding.max_new_tokens" if splits else f"trainer.max_input_length, now {limit}, below that"
        raise UserError(
            f"{reads} {dataset.name} {split} needs {needed}, answers included, of them {question} for its longest "
            f"question; lower {lower}, or take another model or tokenizer."
        )


def check_decodings(parts: RunParts, decodings: Mapping[str, DecodingConfig]) -> None:
    """UserError where too few validation answers are there for intervals (``interval_rows``), or of ``check_scales``.

    Also for an answer of a file whose number the model's tokens, or a decoding by number, cannot write. That a decoding
    rounds answers of a file is said.
    """
    config, dataset = parts.config, parts.dataset
    for group, decoding in decodings.items():
        count = len(one_of_each(_asked(parts))) if decoding.interval_rows else 0
        if 0 < min(decoding.interval_rows, count) < (least := least_answers(LEVEL)):
            raise UserError(
                f"{group}.interval_rows={decoding.interval_rows}: intervals of 90% need {least} validation answers or "
                f"more, to different questions, and {dataset.name} has {count}; raise it, or give more."
            )
    scaled = {group: each for group, each in decodings.items() if each.interval_rows or each.interval_scale == "log"}
    check_scales(parts, {f"{group}.interval_scale": each.interval_scale for group, each in scaled.items()})
    trees = [f"{group}={each.name}" for group, each in decodings.items() if isinstance(each, TreeConfig)]
    rounds = [(group, each) for group, each in decodings.items() if each.name != "median"]
    rounding = {group: each.decimals for group, each in rounds if isinstance(each, NumberHeadConfig | TreeConfig)}
    is_rt, most = config.tokenizer.kind == "rt", 0
    if not isinstance(config.dataset, File) or dataset.metrics != "number" or not (is_rt or trees or rounding):
        return
    for row in (row for split in dataset.all_splits for row in parts.rows(split)):
        number = dataset.scored(row["answer"]).replace("\N{MINUS SIGN}", "-")
        most = max(most, len(number.partition(".")[2]))
        misread = [f"tokenizer={config.tokenizer.name}"] if is_rt and not _RT_NUMBER.fullmatch(number) else []
        if misread := [*misread, *(trees if advance(START, number) not in ENDS else [])]:
            remedy = "write it as digits and a point in the file"
            if re.fullmatch(r"[+-]?[0-9]+\.[0-9]+", number):
                remedy = "round it to 12 decimals in the file"
            elif config.dataset.answers == "number":
                remedy = "dataset.number_format=auto writes it as digits and a point"
            raise UserError(f"{misread[0]}: the answer {number[:60]!r} of {row['id']} is read as another; {remedy}.")
    for group, decimals in rounding.items():
        if decimals < most:
            parts.say(f"{group}.decimals={decimals}: it rounds, and answers have up to {most} decimals; raise it.")


def check_scales(parts: RunParts, scales: Mapping[str, str]) -> None:
    """UserError where intervals are on the scale log and a validation answer is not above 0.

    ``scales`` are settings and their values. A line advises log where answers span more than a factor of 1,000.
    """
    rows = parts.rows("validation") if scales else []
    numbers = [(number, row["id"]) for row in rows if (number := RULE.extract(row["answer"])) is not None]
    (least, where), (largest, _) = min(numbers, default=(0, "")), max(numbers, default=(0, ""))
    for setting, scale in scales.items():
        if scale == "log" and numbers and least <= 0:
            raise UserError(
                f"{setting}=log: the answer {least} of {where} is not above 0, as such intervals need; take linear."
            )
    advised = [f"{setting}=log" for setting, scale in scales.items() if scale == "linear"]
    if advised and 0 < 1000 * least < largest:
        spans = f"validation: answers are from {least:.3g} to {largest:.3g}"
        parts.say(f"{spans}; {' '.join(advised)} makes intervals relative to the answer.")


def decode_examples(
    parts: RunParts, decoding: DecodingConfig, examples: Any, label: str = "", **options: Any
) -> list[Answer]:
    """Decode encoded examples, with lines of progress if there is a ``label``: the answers, in their order.

    Each rank decodes a share and returns all answers; every rank must call this. ``options`` are those of
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
        of_documents = ([*map(int, each["documents"])] for each in chosen)
        chosen = [{**each, "documents": (d[0], d[1:])} for each, d in zip(chosen, of_documents, strict=True)]
    if label:
        how["progress"] = DecodingLines(parts.say, label, len(share))
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
    known = [rows[index] for index in range(len(texts))]
    correct = [row["answer"] for row in known]
    if dataset.metrics == "number":
        scores = number_metrics(texts, correct, groups=[dataset.group(row["id"]) for row in known])
    elif dataset.metrics == "numbers":
        scores, _ = list_metrics(texts, correct)
    else:
        scores = evaluation.text_metrics(texts, correct)
    named = {*VALIDATED, config.trainer.best} & scores.keys()
    return {name: scores[name] for name in sorted(named) if math.isfinite(scores[name])}


def _asked(parts: RunParts) -> list[str]:
    return [row.get("before", "") + row["question"] for row in parts.rows("validation")]


def calibrate(parts: RunParts, decoding: DecodingConfig, rows: int, **options: Any) -> Calibration:
    """Decode ``rows`` validation examples of different questions, the same for every run, and compare the answers."""
    texts, examples = parts.rows("validation"), parts.encoded("validation")
    different = one_of_each(_asked(parts))
    if len(different) < len(texts):
        count = f"{len(texts):,} rows are of {len(different):,} different questions"
        parts.say(f"validation: {count}; intervals are from one row of each.")
    order = sorted(different, key=lambda index: sample_key(texts[index]["id"]))[:rows]
    answers = decode_examples(parts, decoding, [examples[index] for index in order], "validation", **options)
    correct = (RULE.extract(texts[index]["answer"]) for index in order)
    compared = RULE.compare(
        [RULE.extract(answer.text) for answer in answers], [number for number in correct if number is not None]
    )
    spreads = [each.about.get("sd") for each in answers]
    # One unit of the last decimal that is written: a narrower distribution says no more.
    scale = decoding.interval_scale
    least = 10.0**-decoding.decimals if isinstance(decoding, TreeConfig) and scale == "linear" else None
    return Calibration.from_errors(errors_of(compared, scale), spreads, least, scale)


def predictions_name(decoding: DecodingConfig, *more: str, name: str = "") -> str:
    """The predictions file of a decoding, under its own name or its ``name`` in ``config.extra_decodings``."""
    return f"{'-'.join(['predictions', name or decoding.name, str(decoding.num_beams), *more])}.jsonl"


def decoded_examples(parts: RunParts, split: str) -> Any:
    """The encoded examples of a split that are decoded: of validation, those of an evaluation."""
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
        parts.say(f"decoding={config.name}: the model's own generation config has {words}, which is not used.")
    header = header_of(parts, config)
    more = {"searches": searches} if isinstance(config, TreeConfig) else {}
    if config.interval_rows and "validation" not in splits:
        header["calibration"] = calibrate(parts, config, config.interval_rows, **more).header
    rows: list[dict[str, Any]] = []
    texts_of: dict[str, Any] = {}
    for split in splits:
        examples = decoded_examples(parts, split)
        whole = parts.dataset.metrics == "likelihood"
        texts = texts_of[split] = parts.rows(split) if whole else [*islice(parts.rows(split), len(examples))]
        parts.warn_of_lost_text(split)
        answers = decode_examples(parts, config, examples, split, **more)
        parts.say(f"decoded {split}: {len(texts):,} examples")
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
        if (represented := scores.metrics.get(f"{split}/represented", 1.0)) < COVERED:
            parts.say(
                f"{split}: the numbers that decoding={config.name} finds hold {represented:.3f} of the probability, "
                "the rest is text, and its answers are those of a part."
            )
    return scores


def header_of(parts: RunParts, config: DecodingConfig) -> dict[str, Any]:
    """The header of a predictions file, without what depends on its rows."""
    known = {"schema": SCHEMA, "dataset": parts.config.dataset.name, "metrics": parts.dataset.metrics}
    return {**known, "decoding": described(config), "baselines": {}}


def described(decoding: DecodingConfig) -> dict[str, Any]:
    """The settings of a decoding."""
    usual = {"interval_rows": 0, "interval_scale": "linear"}
    return {name: value for name, value in plain(decoding).items() if (name, value) not in usual.items()}


def _documents(split: str, texts: TextRows, scored: Sequence[Answer]) -> list[dict[str, Any]]:
    """One line per document: the sums of its pieces, which may lie in several examples."""
    sums: dict[int, list[float]] = {}
    for answer in scored:
        for document, *amounts in answer.about[PIECES]:
            known = sums.get(document, [0] * len(amounts))
            sums[document] = [a + b for a, b in zip(known, amounts, strict=True)]
    of_rows = (dict(zip(Piece._fields[1:], sums[index], strict=True)) for index in range(len(texts)))
    return [{"split": split, "id": row["id"], **each} for row, each in zip(texts, of_rows, strict=True)]


def _line(parts: RunParts, split: str, row: Any, example: Any, answer: Answer) -> dict[str, Any]:
    """A line of the predictions file; "crps" is that of a distribution against the raters' or the one answer."""
    dataset: TextDataset = parts.dataset
    asked, about = row["question"], {**answer.about}
    line = {"split": split, "id": row["id"], "answer": row["answer"], "prediction": answer.text}
    known = {"group": dataset.group(row["id"]), "truth": dataset.truth(asked), "shortcut": dataset.shortcut(asked)}
    found: NumberDistribution | None = about.pop(DISTRIBUTION, None)
    if found is not None:
        labels = json.loads(row["labels"]) if "labels" in row else [float(parse_number(row["answer"]) or 0)]
        if max(map(abs, labels)) <= LARGEST:
            about["crps"] = crps(found.values, found.shares, labels)
    if dataset.metrics == "text":
        matches = evaluation.token_matches(answer.token_ids, example["answer_ids"].tolist())._asdict()
        about |= {f"tokens_{name}": count for name, count in matches.items()}
    if count_malformed := getattr(parts.tokenizer, "count_malformed", None):
        about["malformed"] = count_malformed(answer.token_ids)
    return line | {name: value for name, value in known.items() if value is not None} | about
