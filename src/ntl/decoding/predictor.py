"""Finished runs: restored, decoded and scored again, and asked questions, as are models without a run."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ntl.config import Config, compose
from ntl.config.composition import read_config
from ntl.config.decoding import DecodingConfig, TreeConfig
from ntl.config.identity import plain
from ntl.config.model import HFConfig
from ntl.config.validation import NUMERIC, PLAIN, unfit_for_chat
from ntl.data.chat import Chat
from ntl.data.encode import encode_rows
from ntl.data.prepared import Prepared
from ntl.decoding.batches import cut_off, too_long
from ntl.decoding.checks import check_decodings, check_lengths, check_scales, max_new_tokens, splits_of
from ntl.decoding.extra import decode_extra
from ntl.decoding.predictions import calibrate, decode_examples, decode_splits, header_of, predictions_name
from ntl.evaluation import read_predictions, write_predictions
from ntl.evaluation.evaluate import PREDICTIONS
from ntl.evaluation.interval import Calibration
from ntl.evaluation.rules import RULES
from ntl.results import read_record, write_record
from ntl.results.record import RECORD, pack_errors
from ntl.runs.folder import (
    CHECKPOINTS,
    best_step,
    check_data,
    checkpoint_at,
    is_complete,
    latest_complete,
    only_one,
    step_of,
)
from ntl.runs.parts import RunParts
from ntl.system.errors import UserError, one_line_when_full
from ntl.system.messages import logger

UNLIMITED = 1 << 30
CALIBRATED = 1000  # validation answers that intervals are from, where no setting says how many
NO_ANSWER = ("batch_size", "interval_rows")  # settings of a decoding that decide no answer
UNNAMED = ("num_beams", *NO_ANSWER)  # those that are not appended to the name of a file
# Most tokens of an answer by its kind, else ``OTHER``, where no training data says how long answers are.
LONGEST, OTHER = {"number": 32, "reasoning": 256}, 64


# ---- a run, decoded again


def run_config(folder: Path, overrides: Sequence[str] = ()) -> Config:
    """The config of a run with these overrides; of ``decoding=auto``, with the decoding that it chose at its end."""
    named = [word for word in overrides if not word.startswith("decoding.")]
    if (config := read_config(folder, named)).decoding.name != "auto":
        return read_config(folder, overrides) if named != [*overrides] else config
    if not (folder / RECORD).is_file():
        raise UserError(f"{folder}: decoding=auto chooses at the end of a run, which has no {RECORD}; give decoding=.")
    chosen = read_record(folder / RECORD).config["decoding"]
    settings = [f"decoding.{key}={value}" for key, value in chosen.items() if key not in ("_target_", "head", "name")]
    more = [word for word in overrides if word != "decoding=auto"]
    return read_config(folder, [f"decoding={chosen['name']}", *settings, *more])


def restore(folder: Path, overrides: Sequence[str] = (), *, own_data: bool = True) -> tuple[RunParts, Path]:
    """The parts of a run with its own tokenizer and the weights of its newest whole checkpoint, and that checkpoint.

    If the run is finished and its best checkpoint was scored, that one is taken instead. ``own_data``: the run must
    have been trained on this data.

    UserError: the folder is not a run, or has no whole checkpoint, or the data is not the one it was trained on.
    """
    config, best = run_config(folder, overrides), best_step(folder)
    checkpoint, damaged = (checkpoint_at(folder, best), []) if best else latest_complete(folder / CHECKPOINTS)
    if checkpoint is None:
        there = f"{len(damaged)} damaged checkpoints" if damaged else "no checkpoint"
        raise UserError(f"{folder}: {there}; train it again: its config is in config.yaml.")
    if best and not is_complete(checkpoint):
        raise UserError(f"{checkpoint}: this is the checkpoint that the record scores, and it is not complete.")
    config.tokenizer.path, config.model.path = str(folder / "tokenizer"), str(checkpoint)
    config.model.pretrained, config.model.dropout = True, None  # as its config.json has it
    if isinstance(config.model, HFConfig):
        config.model.file = ""
    config.model.lora.rank = 0  # a checkpoint's weights have the adapters merged into them
    parts = RunParts(config)
    if own_data:  # otherwise other questions would be decoded under the id of this run
        check_data(checkpoint, parts.fingerprint["files"])
    model: Any = parts.model
    model.to(parts.device)
    return parts, checkpoint


def add_extra_decodings(record_path: Path, decodings: Mapping[str, DecodingConfig]) -> None:
    """Decode the newest checkpoint of a finished run by these, too, and add the scores to its record.

    The caller holds the run's lock, so that no other process changes the record meanwhile. UserError: no whole
    checkpoint is left, or not the one that the record scores.
    """
    folder = record_path.parent
    parts, checkpoint = restore(folder)
    check_decodings(parts, {f"extra_decodings.{name}": decoding for name, decoding in decodings.items()})
    record = read_record(record_path)
    if step_of(checkpoint) != record.scored_step:
        raise UserError(
            f"{folder}: its record is of step {record.scored_step}, and the newest whole checkpoint is "
            f"{checkpoint.name}; restore the other, or remove the folder and train it again."
        )
    extra = {**record.config.get("extra_decodings", {}), **plain(dict(decodings))}
    metrics, errors = decode_extra(parts, decodings, folder)
    record.config = {**record.config, "extra_decodings": extra}
    record.metrics |= metrics
    record.errors |= {key: pack_errors(of) for key, of in errors.items()}
    write_record(record_path, record, overwrite=True)


def predict(folder: Path, overrides: Sequence[str] = ()) -> Path:
    """Decode the newest whole checkpoint of a run again, with other ``decoding`` settings, or on another data set.

    Returns the predictions file: ``predictions.jsonl`` if decoding and data are the run's own and training is complete,
    so that the record of a finished run still describes it; else a file of another name in the same folder. Busy:
    another process is training or decoding this run.
    """
    config, own = run_config(folder, overrides), run_config(folder)
    elsewhere = plain(config.dataset) != plain(own.dataset)
    with only_one(folder.resolve()), one_line_when_full(folder):
        parts, checkpoint = restore(folder, overrides, own_data=not elsewhere)
        more = [parts.dataset.folder_name] if elsewhere else []
        if config.dataset.format != own.dataset.format:
            more.append(config.dataset.format)
        more += _if_not_last(checkpoint, folder, parts)
        is_own = not more and plain(config.decoding) == plain(own.decoding)
        given = {word.removeprefix("decoding.") for word in overrides if word.startswith("decoding.")}
        named = [re.sub(r"[^\w.,=]", "", word) for word in sorted(given) if word.partition("=")[0] not in UNNAMED]
        path = folder / (PREDICTIONS if is_own else predictions_name(config.decoding, *named, *more))
        if elsewhere and config.dataset.name == own.dataset.name:
            logger.warning(
                f"{config.dataset.name} with other settings: its test questions may be among the training questions."
            )
        splits = splits_of(parts, config.decoding)
        check_lengths(parts, splits if elsewhere else ())
        check_decodings(parts, {"decoding": config.decoding})
        decode_splits(parts, splits, path)
    logger.info(f"Predictions: {path}")
    return path


def _if_not_last(checkpoint: Path, folder: Path, parts: RunParts) -> list[str]:
    """The name of a checkpoint before the last step, of which a line is printed; it is part of names of files."""
    last = best_step(folder) or parts.config.trainer.max_steps
    if step_of(checkpoint) >= last:
        return []
    logger.warning(f"{checkpoint}: not the last of the {last:,} steps.")
    return [checkpoint.name]


# ---- questions


class Loaded(NamedTuple):
    """A trained model that questions are put to. ``most`` tokens of a question, and ``limit`` of an answer."""

    parts: RunParts
    limit: int
    most: int = UNLIMITED
    chat: Chat | None = None  # the chat template that questions go through
    calibration: Any = None  # of intervals, a `Calibration`


def of_run(folder: Path, overrides: Sequence[str] = (), *, chat: bool = False, intervals: bool = False) -> Loaded:
    """The model of a run. Nothing is written, and its data need not be here. UserError: see ``restore``.

    ``chat``: Questions go through the chat template also where the run's data did not. ``intervals``: Answers get
    intervals, from validation answers that are decoded, and kept in the folder, if they are not there.
    """
    config = run_config(folder, overrides)
    if config.dataset.answers == PLAIN:
        raise UserError(f"{folder}: this run learned plain text, without questions; leave the question out.")
    if any(override.startswith("dataset") for override in overrides):
        raise UserError("a question and dataset=: give one of them; a data set has questions of its own.")
    if chat and (why := unfit_for_chat(config)):
        raise UserError(f"--chat: {why}; leave it out.")
    parts, checkpoint = restore(folder, overrides, own_data=False)
    prepared = Prepared(config.dataset, parts.data_dir)
    if is_here := prepared.find():
        parts.prepared = prepared  # as it is: training told what there is to tell of it
    more = _if_not_last(checkpoint, folder, parts)
    if not parts.model.can_generate():
        limit = 1
    elif config.decoding.max_new_tokens or is_here:
        limit = max_new_tokens(parts)
    else:
        limit = LONGEST.get(config.dataset.answers, OTHER)
        logger.info(f"An answer has at most {limit} tokens; decoding.max_new_tokens= sets another number.")
    template = parts.chat or (Chat(parts.tokenizer, str(folder)) if chat else None)
    if intervals and template and not parts.chat:
        raise UserError("--interval --chat: validation answers of this run are without the template; leave out --chat.")
    calibration = _calibration(folder, parts, checkpoint, more) if intervals else None
    return Loaded(parts, limit, config.trainer.max_input_length, template, calibration)


def _calibration(folder: Path, parts: RunParts, checkpoint: Path, more: Sequence[str]) -> Calibration:
    """From the scores of validation answers in the folder, else from answers that are decoded now, and kept.

    ``more`` is appended to the name of their file. UserError: the answers are no numbers, or the data is not here.
    """

    def deciding(settings: Mapping[str, Any]) -> dict[str, Any]:  # those that decide an answer, or its error
        return {"interval_scale": "linear"} | {key: value for key, value in settings.items() if key not in NO_ANSWER}

    decoding = parts.config.decoding
    scale = decoding.interval_scale
    named = [] if scale == "linear" else [f"interval_scale={scale}"]
    if parts.config.dataset.answers not in NUMERIC:
        raise UserError("--interval: answers of this run are not one number each, so have no intervals; leave it out.")
    kept = folder / predictions_name(decoding, *named, "calibration", *more)
    for path in [kept] if more else [folder / PREDICTIONS, folder / predictions_name(decoding, *named), kept]:
        header = read_predictions(path)[0] if path.is_file() else {}
        of_each = header.get("calibration", {}).get("one_of_each")  # older ones are of all rows
        if of_each and deciding(header["decoding"]) == deciding(plain(decoding)):
            return Calibration.from_header(header["calibration"])
    check_data(checkpoint, parts.fingerprint["files"])
    check_scales(parts, {"decoding.interval_scale": scale})
    logger.info(f"Calibrating intervals by validation answers, once: {kept}")
    calibration = calibrate(parts, decoding, decoding.interval_rows or CALIBRATED)
    write_predictions(kept, header_of(parts, decoding) | {"calibration": calibration.header}, [])
    return calibration


def stored(name: str, overrides: Sequence[str] = (), *, chat: bool = False) -> Loaded:
    """A language model in a folder or at a hub id, with the tokenizer and the special tokens that are stored with it.

    It is decoded greedily unless ``decoding=`` says otherwise. ``chat``: Questions go through its chat template.
    UserError: it cannot be read, or writes no text.
    """
    if wrong := [word for word in overrides if word.partition("=")[0].split(".")[0] not in ("decoding", "device")]:
        raise UserError(f"{wrong[0]}: only decoding, device may be set for a model without a run.")
    config = compose(["model=hf", f"model.path={name}", "tokenizer=default", "decoding=greedy", *overrides])
    if chat and (why := unfit_for_chat(config)):
        raise UserError(f"--chat: {why}; leave it out.")
    parts = RunParts(config)
    model: Any = parts.model
    model.to(parts.device)
    return Loaded(parts, config.decoding.max_new_tokens or OTHER, chat=Chat(parts.tokenizer, name) if chat else None)


def ask(loaded: Loaded, questions: Sequence[str], *, interval: float = 0.0) -> list[dict[str, Any]]:
    """The "question" and "answer" of each, in order, and what the decoding knows of the answer.

    A decoding from the distribution over numbers adds "mean", "interval" (the central 95%), "sd", "represented", the
    probability of all numbers that it found, and "covered", the part of it that was read to the end. With ``interval``,
    a level such as 0.9, "interval" holds the true answer with that probability (``ntl.evaluation.interval``), and
    "level" is it; an answer without a number has none, nor has one that is not above 0 on the scale log.
    UserError, before anything is decoded, for a question that is too long, or too few validation answers.
    """
    if interval:
        try:
            radius = loaded.calibration.radius(interval, 0.0)
        except ValueError as error:
            raise UserError(f"--interval {interval}: {error}.") from error
        if math.isinf(radius):
            none = "no number above 0" if loaded.calibration.scale == "log" else "no number"
            many = f"too many validation answers have {none}; train longer, or lower it"
            raise UserError(f"--interval {interval}: {many}.")
    for number, text in enumerate(questions, 1):
        if not text.strip():
            raise UserError(f"question {number} is empty; ask something.")
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            raise UserError(f"question {number} is no UTF-8 text; ask it in UTF-8.")
    parts, decoding = loaded.parts, loaded.parts.config.decoding
    decoder_only = not parts.model.config.is_encoder_decoder
    # A number head predicts what stands in the place of the answer.
    rows = [{"question": text, "answer": "0"} for text in questions]
    settings: Any = {"decoder_only": decoder_only, "max_length": UNLIMITED, "chat": loaded.chat}
    examples, lost = encode_rows(rows, parts.tokenizer, **settings)
    for line in lost:
        logger.warning(line)
    positions = getattr(parts.model.config, "max_position_embeddings", None)
    if positions is not None and not decoder_only and loaded.limit > positions:
        raise UserError(f"decoding.max_new_tokens={loaded.limit}: the model writes at most {positions}; lower it.")
    if lacks_room := too_long(examples, parts.model, loaded.limit, loaded.most):
        raise UserError(f"question {lacks_room}; shorten it, or lower decoding.max_new_tokens.")
    options: dict[str, Any] = {"max_new_tokens": loaded.limit, "chat": loaded.chat}
    options |= {"interval": 0.95} if isinstance(decoding, TreeConfig) else {}
    answers = decode_examples(parts, decoding, examples, "questions", **options)
    if cut := cut_off(answers):
        logger.warning(f"{cut}; raise decoding.max_new_tokens.")
    lines: list[dict[str, Any]] = [
        {"question": question, "answer": answer.text, **answer.about}
        for question, answer in zip(questions, answers, strict=True)
    ]
    for line in lines if interval else ():
        line.pop("interval", None)
        number = RULES["default"].extract(line["answer"])
        if number is not None and (ends := loaded.calibration.interval(interval, float(number), line.get("sd"))):
            line.update(interval=ends, level=interval)
    return lines
