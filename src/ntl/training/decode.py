"""From a trained model to predictions.jsonl and its scores, during a run or for a finished one."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from torch import distributed

from ntl.config import DecodingConfig
from ntl.config.composition import read_config
from ntl.config.identity import plain
from ntl.data.dataset import TextDataset
from ntl.decoding.batches import Journal, batches, decode
from ntl.decoding.generation import own_settings
from ntl.evaluation import constant_baselines, score_predictions, token_matches, write_predictions
from ntl.results import read_record, write_record
from ntl.system.errors import UserError
from ntl.training.checkpoints import CHECKPOINTS, check_data, digest, newest_whole
from ntl.training.parts import RunParts, Say

# The original code allows ten tokens beyond the longest label; ours is the longest TRAINING label.
EXTRA_TOKENS = 10
JOURNAL = ".answers"
SECONDS_BETWEEN = 5.0  # lines of progress
# The metrics that a record keeps of additional decodings (``config.beside``).
ADDITIONAL_METRICS = (
    "accuracy",
    "mae",
    "rmse",
    "r2",
    "pearson",
    "mape_clipped",
    "mape_median",
    "within_1_percent",
    "rmse_truth",
    "covered",
)

Item = TypeVar("Item")
_ABSENT = object()


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks; one alone without torch.distributed."""
    return (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)


def my_share(count: int) -> range:
    """Return the indices below ``count`` that this rank decodes.

    They are dealt in turn, so that examples sorted by length are spread evenly over the ranks.
    """
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
    return [item for row in zip_longest(*shares, fillvalue=_ABSENT) for item in row if item is not _ABSENT]


def max_new_tokens(parts: RunParts) -> int:
    """How many tokens an answer may have: as in ``decoding``, else from the longest answer of the training data."""
    return parts.config.decoding.max_new_tokens or parts.encoded("train").about["longest_answer"] + EXTRA_TOKENS


def check_lengths(parts: RunParts) -> None:
    """Raise ``UserError`` unless every example, and every answer that may be generated, has a position in the model.

    An encoder-decoder with relative positions reads any length.
    """
    config: Any = parts.model.config
    positions = None if config.is_encoder_decoder else getattr(config, "max_position_embeddings", None)
    if positions is None:
        return
    dataset, limit = parts.dataset, parts.config.trainer.max_input_length
    generated = dict.fromkeys(dataset.test_splits, max_new_tokens(parts) if parts.model.can_generate() else 0)
    for split in dict.fromkeys(("train", "validation", *dataset.test_splits)):
        about = parts.encoded(split).about
        question = about["longest_question"]
        # The last generated token is not an input.
        needed = max(parts.collator.longest_input(about), question + generated.get(split, 0) - 1)
        if needed > positions:
            raise UserError(
                f"model={parts.config.model.name}: it reads {positions} tokens, and {dataset.name} {split} needs "
                f"{needed}, answers included, of them {question} for its longest question; lower "
                f"trainer.max_input_length, now {limit}, below that, or take another model or tokenizer."
            )


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


def predictions_name(decoding: DecodingConfig, *more: str) -> str:
    """The predictions file of an additional decoding."""
    return f"{'-'.join(['predictions', decoding.name, str(decoding.num_beams), *more])}.jsonl"


def decode_additional(
    parts: RunParts, decodings: Mapping[str, DecodingConfig], folder: Path, *, weights: str
) -> dict[str, float]:
    """Decode in each of these ways, too: returns "<split>/<metric>@<name>" for each of ``ADDITIONAL_METRICS``."""
    found = {}
    for name, decoding in decodings.items():
        parts.say(f"decoding by {name}:")
        path = folder / predictions_name(decoding)
        splits = splits_of(parts, decoding)
        scores = decode_splits(parts, splits, path, weights=weights, decoding=decoding)
        metrics = scores.metrics if scores else {}
        for split in splits:
            known = [metric for metric in ADDITIONAL_METRICS if f"{split}/{metric}" in metrics]
            found.update({f"{split}/{metric}@{name}": metrics[f"{split}/{metric}"] for metric in known})
    return found


def decode_splits(
    parts: RunParts, splits: Sequence[str], path: Path, *, weights: str = "", decoding: DecodingConfig | None = None
) -> Any:
    """Decode all examples of the splits, write the predictions file, and score it from the file.

    ``decoding`` is by default the run's own. Of several processes, each decodes a share; the first one writes and
    scores, and the others return None. ``weights`` is the digest of the model's checkpoint. If it is given, answers are
    stored until `forget_answers`, so that an interrupted decoding continues.
    """
    config = decoding or parts.config.decoding
    _report_own_settings(parts, config)
    rows: list[dict[str, Any]] = []
    count_malformed: Any = getattr(parts.tokenizer, "count_malformed", None)
    for split in splits:
        texts, examples = parts.rows(split), parts.encoded(split)
        if rank_and_size()[0] == 0:
            parts.warn_of_lost_text(split)
        share = my_share(len(texts))
        chosen = [examples[index] for index in share]
        ids = [[texts[share[place]]["id"] for place in batch] for batch in batches(chosen, config.batch_size)]
        journal = _journal(parts, split, path, config, ids, weights) if weights else None
        mine = decode(
            config,
            model=parts.model,
            tokenizer=parts.tokenizer,
            examples=chosen,
            collate=parts.collator.prompts,
            max_new_tokens=max_new_tokens(parts),
            progress=DecodingLines(parts.say, split, len(share), journal.examples if journal else 0),
            journal=journal,
        )
        predictions = from_all(mine)
        if predictions is None:
            continue
        for index, (row, prediction) in enumerate(zip(texts, predictions, strict=True)):
            line: dict[str, Any] = _line(parts.dataset, split, row, prediction.text) | dict(prediction.about)
            if parts.dataset.metrics == "text":
                line |= _token_counts(prediction.token_ids, examples[index]["answer_ids"])
            if count_malformed is not None:
                line["malformed"] = count_malformed(prediction.token_ids)
            rows.append(line)
        parts.say(f"decoded {split}: {len(texts):,} examples")
    if rank_and_size()[0] != 0:
        return None
    baselines = {}
    if parts.dataset.metrics == "number":
        baselines = constant_baselines(parts.prepared.train_targets())
    header = {
        "schema": 1,
        "dataset": parts.config.dataset.name,
        "metrics": parts.dataset.metrics,
        "decoding": described(parts.model, config),
        "baselines": baselines,
    }
    write_predictions(path, header, rows)
    return score_predictions(path)


def described(model: Any, decoding: DecodingConfig) -> dict[str, Any]:
    """The settings of a decoding, with the model's own generation config as "own" if that is used."""
    return plain(decoding) | ({"own": plain(own_settings(model))} if decoding.obeys_model else {})


def _report_own_settings(parts: RunParts, decoding: DecodingConfig) -> None:
    own = own_settings(parts.model, decoding.num_beams)
    words = ", ".join(f"{name}={value}" for name, value in own.items())
    if decoding.obeys_model:
        parts.say(f"decoding={decoding.name}: the model's own generation config says {words or 'nothing: greedy'}.")
    elif words:
        parts.say(
            f"decoding={decoding.name}: the model's own generation config has {words}, which is not used; "
            "decoding=model uses it."
        )


def _journal(
    parts: RunParts, split: str, path: Path, config: DecodingConfig, ids: list[list[str]], weights: str
) -> Journal:
    rank, size = rank_and_size()
    key = {
        "weights": weights,
        "decoding": plain(config),
        "max_new_tokens": max_new_tokens(parts),
        "examples": parts.prepared.content_key(split),
    }
    journal = Journal(path.with_name(f".{path.stem}.{split}.{rank}-of-{size}{JOURNAL}"), key, ids)
    if journal.answers:
        parts.say(f"decoding {split}: {journal.examples:,} were decoded before")
    return journal


def forget_answers(folder: Path, predictions: str = "*") -> None:
    """Delete the stored answers of the predictions file with this stem, or of all, once these are complete."""
    for path in folder.glob(f".{predictions}.*{JOURNAL}"):
        path.unlink(missing_ok=True)


def _token_counts(generated: Sequence[int], label: Any) -> dict[str, int]:
    return {f"tokens_{name}": count for name, count in token_matches(generated, label.tolist())._asdict().items()}


def _line(dataset: TextDataset, split: str, row: Any, prediction: str) -> dict[str, str]:
    question = row["question"]
    known = {
        "group": dataset.group(row["id"]),
        "truth": dataset.truth(question),
        "shortcut": dataset.shortcut(question),
    }
    line = {"split": split, "id": row["id"], "answer": row["answer"], "prediction": prediction}
    return line | {name: value for name, value in known.items() if value is not None}


class DecodingLines:
    """``decoding interpolate 2,048/10,000, 31 s left``; called with the number of examples that are done.

    ``known`` is that number at the start.
    """

    def __init__(self, say: Callable[[str], None], split: str, total: int, known: int = 0) -> None:
        self.say = say
        self.split = split
        self.total = total
        self.known = known
        self.started = self.last_line = time.monotonic()

    def __call__(self, done: int) -> None:
        """Print a line; none for the last example, as the caller prints the total."""
        now = time.monotonic()
        if now - self.last_line < SECONDS_BETWEEN or done >= self.total:
            return
        self.last_line = now
        left = (self.total - done) * (now - self.started) / (done - self.known)
        self.say(f"decoding {self.split} {done:,}/{self.total:,}, {left:.0f} s left")


def restore(folder: Path, overrides: Sequence[str] = (), say: Say = print) -> tuple[RunParts, Path]:
    """The parts of a run with its own tokenizer and the weights of its newest whole checkpoint, and that checkpoint.

    UserError: the folder is not a run, or has no whole checkpoint, or the data is not the one it was trained on.
    """
    config = read_config(folder, overrides)
    checkpoint, damaged = newest_whole(folder / CHECKPOINTS)
    if checkpoint is None:
        found = f"{len(damaged)} damaged checkpoints" if damaged else "no checkpoint"
        raise UserError(f"{folder}: {found}; train it again: its config is in config.yaml.")
    config.tokenizer.path = str(folder / "tokenizer")
    config.model.path = str(checkpoint)
    config.model.pretrained = True
    config.model.lora.rank = 0  # a checkpoint's weights have the adapters merged into them
    parts = RunParts(config, say)
    # Otherwise other questions would be decoded under the id of this run.
    check_data(checkpoint, parts.fingerprint["files"])
    model: Any = parts.model
    model.to(parts.device)
    return parts, checkpoint


def add_readings(record_path: Path, readings: Mapping[str, DecodingConfig], say: Say = print) -> None:
    """Decode the newest checkpoint of a finished run in these ways, too, and add the scores to its record.

    The caller holds the run's lock, so that no other process changes the record meanwhile. UserError: no whole
    checkpoint is left.
    """
    folder = record_path.parent
    parts, checkpoint = restore(folder, say=say)
    record = read_record(record_path)
    config = {**record.config, "beside": {**record.config.get("beside", {}), **plain(dict(readings))}}
    metrics = {**record.metrics, **decode_additional(parts, readings, folder, weights=digest(checkpoint))}
    forget_answers(folder)
    write_record(record_path, replace(record, config=config, metrics=metrics), overwrite=True)
