"""From a trained model to predictions.jsonl and its scores, during a run or for a finished one."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed

from ntl.config import DecodingConfig
from ntl.config.composition import read_config
from ntl.config.decoding import TreeConfig
from ntl.config.identity import plain
from ntl.config.model import HFConfig
from ntl.data.dataset import TextDataset
from ntl.data.encoded import Packed
from ntl.decoding.batches import Answer, DecodingLines, Example, decode
from ntl.decoding.generation import own_settings
from ntl.decoding.likelihood import PIECES, Piece
from ntl.decoding.point import DISTRIBUTION, LARGEST, Point
from ntl.evaluation import (
    constant_baselines,
    number_metrics,
    score_predictions,
    text_metrics,
    token_matches,
    write_predictions,
)
from ntl.evaluation.interval import Calibration
from ntl.evaluation.numeric import crps
from ntl.evaluation.rules import RULES
from ntl.evaluation.scores import sample_key
from ntl.numbers import parse_number
from ntl.results import read_record, write_record
from ntl.results.spec import RIDGE
from ntl.system.errors import UserError
from ntl.training.checkpoints import (
    CHECKPOINTS,
    check_data,
    checkpoint_at,
    is_whole,
    newest_whole,
    step_of,
)
from ntl.training.folder import best_step
from ntl.training.parts import RunParts, Say, TextRows

# The original code allows ten tokens beyond the longest label; ours is the longest TRAINING label.
EXTRA_TOKENS = 10
RULE = RULES["default"]
# The metrics that a record keeps of additional decodings (``config.beside``).
ADDITIONAL_METRICS = (
    *("accuracy", "mae", "rmse", "r2", "pearson", "mape_clipped", "mape_median", "within_1_percent", "rmse_truth"),
    *("covered", "coverage_90", "width_90", "crps"),
)
# Of the probability; below it, a decoding by number is one of a part of what the model says.
COVERED = 0.9
# The metrics of the decoded validation examples that are logged.
VALIDATED = ("accuracy", "mae", "bleu", "rouge1", "exact_match")

Item = TypeVar("Item")


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks; one alone without torch.distributed."""
    return (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)


def my_share(count: int) -> range:
    """Return the indices below ``count`` that this rank decodes, dealt in turn: examples are sorted by length."""
    rank, size = rank_and_size()
    return range(rank, count, size)


def from_all(mine: Sequence[Item]) -> list[Item] | None:
    """Gather every rank's results of ``my_share``, in the order of the indices; None on all ranks but the first."""
    rank, size = rank_and_size()
    if size == 1:
        return list(mine)
    shares: list[Any] | None = [None] * size if rank == 0 else None
    distributed.gather_object(list(mine), shares)
    if shares is None:
        return None
    whole: list[Any] = [None] * sum(map(len, shares))
    for number, share in enumerate(shares):
        whole[number::size] = share
    return whole


def max_new_tokens(parts: RunParts) -> int:
    """How many tokens an answer may have: as in ``decoding``, else from the longest answer of the training data."""
    return parts.config.decoding.max_new_tokens or parts.encoded("train").about["longest_answer"] + EXTRA_TOKENS


def calibrate(parts: RunParts, decoding: DecodingConfig, rows: int) -> Calibration | None:
    """Decode ``rows`` validation examples, the same ones for every run, and compare them with their answers.

    Every rank must call this; None on all but the first.
    """
    texts, examples = parts.rows("validation"), parts.encoded("validation")
    assert not isinstance(examples, Packed)
    order = sorted(range(len(texts)), key=lambda index: sample_key(texts[index]["id"]))[:rows]
    answers = decode_share(parts, decoding, [examples[index] for index in order], "validation")
    if answers is None:
        return None
    correct = (RULE.extract(texts[index]["answer"]) for index in order)
    compared = RULE.compare(
        [RULE.extract(answer.text) for answer in answers], [number for number in correct if number is not None]
    )
    spreads = [each.about.get("sd") for each in answers]
    # One unit of the last decimal that is written: a narrower distribution says no more.
    least = 10.0**-decoding.decimals if isinstance(decoding, TreeConfig) else None
    return Calibration.from_errors(compared.error, spreads, least)


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


def _decode(parts: RunParts, decoding: DecodingConfig, examples: Sequence[Example], **how: Any) -> list[Answer]:
    return decode(
        decoding,
        model=parts.model,
        tokenizer=parts.tokenizer,
        examples=examples,
        max_new_tokens=max_new_tokens(parts),
        chat=parts.chat,
        **{"collate": parts.collator.prompts, **how},
    )


def decode_in_training(parts: RunParts, decoding: DecodingConfig, examples: Sequence[Example]) -> list[Answer]:
    """Decode examples without affecting the training: the random state is restored."""
    device = parts.model.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return _decode(parts, decoding, examples)


def decode_validation(parts: RunParts) -> dict[str, float]:
    """Decode the validation examples of an evaluation as the test splits are decoded, and return their metrics.

    These are accuracy and MAE, of texts BLEU, ROUGE-1 and exact match, and ``trainer.best``; an undefined one is left
    out. Every rank must call this; the training is not affected.
    """
    config, dataset = parts.config, parts.dataset
    rows, examples = parts.rows("validation"), parts.encoded("validation").first(config.trainer.eval_rows)
    mine = [examples[index] for index in my_share(len(examples))]
    answers, found = from_all(decode_in_training(parts, config.decoding, mine)), [{}]
    if answers is not None:
        known = [rows[index] for index in range(len(examples))]
        texts, correct = [answer.text for answer in answers], [row["answer"] for row in known]
        if dataset.metrics == "number":
            scores = number_metrics(texts, correct, groups=[dataset.group(row["id"]) for row in known])
        else:
            scores = text_metrics(texts, correct)
        named = {*VALIDATED, config.trainer.best} & scores.keys()
        found = [{name: scores[name] for name in sorted(named) if math.isfinite(scores[name])}]
    if rank_and_size()[1] > 1:
        distributed.broadcast_object_list(found)
    return found[0]


def predictions_name(decoding: DecodingConfig, *more: str) -> str:
    """The predictions file of an additional decoding."""
    return f"{'-'.join(['predictions', decoding.name, str(decoding.num_beams), *more])}.jsonl"


def decode_additional(parts: RunParts, decodings: Mapping[str, DecodingConfig], folder: Path) -> dict[str, float]:
    """Decode in each of these ways, too: returns "<split>/<metric>@<name>" for each of ``ADDITIONAL_METRICS``."""
    found = {}
    for name, decoding in decodings.items():
        parts.say(f"decoding by {name}:")
        path = folder / predictions_name(decoding)
        splits = splits_of(parts, decoding)
        scores = decode_splits(parts, splits, path, decoding)
        metrics = scores.metrics if scores else {}
        for split in splits:
            known = [metric for metric in ADDITIONAL_METRICS if f"{split}/{metric}" in metrics]
            found.update({f"{split}/{metric}@{name}": metrics[f"{split}/{metric}"] for metric in known})
    return found


def decode_splits(parts: RunParts, splits: Sequence[str], path: Path, decoding: DecodingConfig | None = None) -> Any:
    """Decode all examples of the splits, write the predictions file, and score it from the file.

    ``decoding`` is by default the run's own. Of several processes, each decodes a share; the first one writes and
    scores, and the others return None.
    """
    config = decoding or parts.config.decoding
    _report_own_settings(parts, config)
    rows: list[dict[str, Any]] = []
    count_malformed: Any = getattr(parts.tokenizer, "count_malformed", None)
    calibration = calibrate(parts, config, config.interval_rows) if config.interval_rows else None
    for split in splits:
        texts, examples = parts.rows(split), parts.encoded(split)
        parts.warn_of_lost_text(split)
        predictions = decode_share(parts, config, examples, split)
        if predictions is None:
            continue
        parts.say(f"decoded {split}: {len(texts):,} examples")
        if isinstance(examples, Packed):
            rows += _documents(split, texts, predictions)
            continue
        for index, (row, prediction) in enumerate(zip(texts, predictions, strict=True)):
            line = _line(parts.dataset, split, row, prediction)
            if parts.dataset.metrics == "text":
                matches = token_matches(prediction.token_ids, examples[index]["answer_ids"].tolist())._asdict()
                line |= {f"tokens_{name}": count for name, count in matches.items()}
            if count_malformed is not None:
                line["malformed"] = count_malformed(prediction.token_ids)
            rows.append(line)
    if rank_and_size()[0] != 0:
        return None
    if parts.ridge:
        asked = {row["id"]: row["question"] for split in splits for row in parts.rows(split)}
        answers = parts.ridge.answers([asked[line["id"]] for line in rows])
        rows = [{**line, RIDGE: answer} for line, answer in zip(rows, answers, strict=True)]
    header = header_of(parts, config)
    if parts.dataset.metrics == "number":
        header["baselines"] = constant_baselines(parts.prepared.train_targets())
    if parts.dataset.metrics == "likelihood":
        sizes = {split: sum(len(row["answer"].encode()) for row in parts.rows(split)) for split in splits}
        header |= {"bytes": sizes, "digits": parts.config.tokenizer.digits_only}
    if calibration:
        header["calibration"] = calibration.header
    write_predictions(path, header, rows)
    scores = score_predictions(path)
    for split in splits:
        if (covered := scores.metrics.get(f"{split}/covered", 1.0)) < COVERED:
            parts.say(
                f"{split}: the numbers that decoding={config.name} has found hold {covered:.3f} of the probability, so "
                "its answers are those of a part of it; raise decoding.num_beams, or take decoding=greedy."
            )
    return scores


def decode_share(parts: RunParts, config: DecodingConfig, examples: Any, label: str) -> list[Answer] | None:
    """Decode encoded examples, each rank its share: the answers in their order, None on all ranks but the first."""
    share = my_share(len(examples))
    how: dict[str, Any] = {"progress": DecodingLines(parts.say, label, len(share))}
    chosen: list[Any] = [examples[index] for index in share]
    if isinstance(examples, Packed):
        how["collate"] = parts.collator
        chosen = [{**each, "documents": examples.documents(i)} for i, each in zip(share, chosen, strict=True)]
    return from_all(_decode(parts, config, chosen, **how))


def header_of(parts: RunParts, config: DecodingConfig) -> dict[str, Any]:
    """The header of a predictions file, without what depends on its rows."""
    return {
        "schema": 1,
        "dataset": parts.config.dataset.name,
        "metrics": parts.dataset.metrics,
        "decoding": described(parts.model, config),
        "baselines": {},
    }


def described(model: Any, decoding: DecodingConfig) -> dict[str, Any]:
    """The settings of a decoding."""
    return {name: value for name, value in plain(decoding).items() if (name, value) != ("interval_rows", 0)}


def _report_own_settings(parts: RunParts, decoding: DecodingConfig) -> None:
    own = own_settings(parts.model, decoding.num_beams)
    words = ", ".join(f"{name}={value}" for name, value in own.items())
    if words:
        parts.say(f"decoding={decoding.name}: the model's own generation config has {words}, which is not used.")


def _documents(split: str, texts: TextRows, scored: Sequence[Answer]) -> list[dict[str, Any]]:
    """One line per document: the sums of its pieces, which may lie in several examples."""
    sums: dict[int, list[float]] = {}
    for answer in scored:
        for document, *amounts in answer.about[PIECES]:
            known = sums.get(document, [0] * len(amounts))
            sums[document] = [a + b for a, b in zip(known, amounts, strict=True)]
    names = Piece._fields[1:]
    return [
        {"split": split, "id": row["id"], **dict(zip(names, sums[index], strict=True))}
        for index, row in enumerate(texts)
    ]


def _line(dataset: TextDataset, split: str, row: Any, prediction: Answer) -> dict[str, Any]:
    """A line of the predictions file; "crps" is that of a distribution against the raters' or the one answer."""
    question, about = row["question"], {**prediction.about}
    known = {"group": dataset.group(row["id"]), "truth": dataset.truth(question)}
    known |= {"shortcut": dataset.shortcut(question)}
    line = {"split": split, "id": row["id"], "answer": row["answer"], "prediction": prediction.text}
    found: Point | None = about.pop(DISTRIBUTION, None)
    if found is not None:
        labels = json.loads(row["labels"]) if "labels" in row else [float(parse_number(row["answer"]) or 0)]
        if max(map(abs, labels)) <= LARGEST:
            about["crps"] = crps(found.values, found.shares, labels)
    return line | {name: value for name, value in known.items() if value is not None} | about


def restore(
    folder: Path, overrides: Sequence[str] = (), say: Say = print, *, own_data: bool = True
) -> tuple[RunParts, Path]:
    """The parts of a run with its own tokenizer and the weights of its newest whole checkpoint, and that checkpoint.

    If the run is finished and its best checkpoint was scored, that one is taken instead. ``own_data``: the data must be
    that of the run.

    UserError: the folder is not a run, or has no whole checkpoint, or the data is not the one it was trained on.
    """
    config = read_config(folder, overrides)
    if best := best_step(folder):
        checkpoint, damaged = checkpoint_at(folder, best), []
        if not is_whole(checkpoint):
            raise UserError(f"{checkpoint}: this is the checkpoint that the record scores, and it is not complete.")
    else:
        checkpoint, damaged = newest_whole(folder / CHECKPOINTS)
    if checkpoint is None:
        found = f"{len(damaged)} damaged checkpoints" if damaged else "no checkpoint"
        raise UserError(f"{folder}: {found}; train it again: its config is in config.yaml.")
    config.tokenizer.path = str(folder / "tokenizer")
    config.model.path = str(checkpoint)
    config.model.pretrained, config.model.dropout = True, None  # as its config.json has it
    if isinstance(config.model, HFConfig):
        config.model.file = ""
    config.model.lora.rank = 0  # a checkpoint's weights have the adapters merged into them
    parts = RunParts(config, say)
    if own_data:  # otherwise other questions would be decoded under the id of this run
        check_data(checkpoint, parts.fingerprint["files"])
    model: Any = parts.model
    model.to(parts.device)
    return parts, checkpoint


def add_readings(record_path: Path, readings: Mapping[str, DecodingConfig], say: Say = print) -> None:
    """Decode the newest checkpoint of a finished run in these ways, too, and add the scores to its record.

    The caller holds the run's lock, so that no other process changes the record meanwhile. UserError: no whole
    checkpoint is left, or not the one that the record scores.
    """
    folder = record_path.parent
    parts, checkpoint = restore(folder, say=say)
    record = read_record(record_path)
    if step_of(checkpoint) != record.scored_step:
        raise UserError(
            f"{folder}: its record is of step {record.scored_step}, and the newest whole checkpoint is "
            f"{checkpoint.name}; restore the other, or remove the folder and train it again."
        )
    config = {**record.config, "beside": {**record.config.get("beside", {}), **plain(dict(readings))}}
    metrics = {**record.metrics, **decode_additional(parts, readings, folder)}
    write_record(record_path, replace(record, config=config, metrics=metrics), overwrite=True)
