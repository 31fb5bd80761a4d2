"""Answers of a trained model to questions, and the test splits of a run decoded and scored again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ntl.config import build, compose
from ntl.config.composition import read_config
from ntl.config.decoding import DecodingConfig, TreeConfig
from ntl.config.identity import plain
from ntl.config.legality import HUB_ID, PLAIN, unfit_for_chat
from ntl.config.model import ModelConfig
from ntl.config.targets import locate
from ntl.evaluation.evaluate import PREDICTIONS
from ntl.results.load import find_run
from ntl.system.errors import UserError, one_line_when_full
from ntl.system.hub import CONFIG
from ntl.training.checkpoints import step_of
from ntl.training.folder import best_step, only_one

if TYPE_CHECKING:
    from ntl.training.parts import Say

UNLIMITED = 1 << 30
# Most tokens of an answer by its kind, else ``OTHER``, where no training data says how long answers are.
LONGEST, OTHER = {"number": 32, "reasoning": 256}, 64


class Loaded(NamedTuple):
    """A trained model that questions are put to. ``most`` tokens of a question, and ``limit`` of an answer."""

    model: Any
    tokenizer: Any
    collator: Any
    decoding: DecodingConfig
    limit: int
    most: int = UNLIMITED
    chat: Any = None  # the chat template that questions go through


def find(name: str, outputs: Path) -> Path | str:
    """The folder of a run; or, as text, what transformers loads: a folder with config.json, or a hub id."""
    folder = Path(name)
    is_stored = (folder / CONFIG).is_file() and not (folder / "config.yaml").is_file()
    # A path with a mistake in it looks like a hub id.
    is_hub_id = HUB_ID.fullmatch(name) and not folder.parent.is_dir() and folder.parent != outputs
    return name if is_stored or is_hub_id else find_run(name, outputs)


def of_run(folder: Path, overrides: Sequence[str] = (), say: "Say" = print, *, chat: bool = False) -> Loaded:
    """The model of a run. Nothing is written, and its data need not be here. UserError: see ``restore``.

    ``chat``: Questions go through the chat template also where the run's data did not.
    """
    config = read_config(folder, overrides)  # reports mistakes before torch is imported
    if config.dataset.answers == PLAIN:
        raise UserError(f"{folder}: this run learned plain text, without questions; leave the question out.")
    if any(override.startswith("dataset") for override in overrides):
        raise UserError("a question and dataset=: give one of them; a data set has questions of its own.")
    if chat and (why := unfit_for_chat(config)):
        raise UserError(f"--chat: {why}; leave it out.")
    from ntl.data.chat import Chat
    from ntl.data.prepared import Prepared
    from ntl.training.decode import max_new_tokens, restore

    parts, checkpoint = restore(folder, overrides, say, own_data=False)
    _is_last(checkpoint, best_step(folder) or config.trainer.max_steps, say)
    if not parts.model.can_generate():
        limit = 1
    elif config.decoding.max_new_tokens or Prepared(build(config.dataset), parts.data_dir).find():
        limit = max_new_tokens(parts)
    else:
        limit = LONGEST.get(config.dataset.answers, OTHER)
        say(f"An answer has at most {limit} tokens; decoding.max_new_tokens= sets another number.")
    most = config.trainer.max_input_length
    template = parts.chat or (Chat(parts.tokenizer, str(folder)) if chat else None)
    return Loaded(parts.model, parts.tokenizer, parts.collator, config.decoding, limit, most, chat=template)


def stored(name: str, overrides: Sequence[str] = (), say: "Say" = print, *, chat: bool = False) -> Loaded:
    """A language model in a folder or at a hub id, with the tokenizer and the special tokens that are stored with it.

    It is decoded greedily unless ``decoding=`` says otherwise. ``chat``: Questions go through its chat template.
    UserError: it cannot be read, or writes no text.
    """
    if wrong := [word for word in overrides if word.partition("=")[0].split(".")[0] not in ("decoding", "device")]:
        raise UserError(f"{wrong[0]}: only decoding, device may be set for a model without a run.")
    config, weights = compose(["decoding=greedy", *overrides]), ModelConfig(name=name, path=name, family="such")
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
    from transformers.utils import logging

    from ntl.data.chat import Chat
    from ntl.models.pretrained import fit_vocabulary, load_pretrained, pretrained_config
    from ntl.system.machine import pick_device
    from ntl.tokenizers import load_tokenizer

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    described = pretrained_config(weights)
    made_by = (described.architectures or [described.model_type])[0]
    if not made_by.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        raise UserError(f"{name}: {made_by} is no language model; give one, or the folder of the run that trained it.")
    tokenizer: Any = load_tokenizer(name, "default")
    if chat and described.is_encoder_decoder:
        raise UserError(f"--chat: {name} is no decoder-only language model; leave --chat out.")
    if tokenizer.chat_template and not chat and not described.is_encoder_decoder:
        say(f"{name}: its tokenizer has a chat template; --chat asks through it, as models with one are trained.")
    auto_class = AutoModelForSeq2SeqLM if described.is_encoder_decoder else AutoModelForCausalLM
    model: Any = fit_vocabulary(load_pretrained(weights, auto_class, dtype="auto"), tokenizer)
    model.to(pick_device(config.device))
    collator = locate(config.objective.collator)(model.config, tokenizer)
    limit = config.decoding.max_new_tokens or OTHER
    template = Chat(tokenizer, name) if chat else None
    return Loaded(model, tokenizer, collator, config.decoding, limit, chat=template)


def ask(loaded: Loaded, questions: Sequence[str], say: "Say" = print) -> list[dict[str, Any]]:
    """The "question" and "answer" of each, in order, and what the decoding knows of the answer.

    A decoding from the distribution over numbers adds "mean", "interval" (the central 95%), "sd" and "covered", the
    probability of all numbers that it found. UserError, before anything is decoded, for a question that is too long.
    """
    from ntl.data.encode import encode_rows
    from ntl.decoding.batches import DecodingLines, decode
    from ntl.training.decode import positions_of

    decoder_only = not loaded.model.config.is_encoder_decoder
    # A number head predicts what stands in the place of the answer.
    rows = [{"question": text.strip(), "answer": "0"} for text in questions]
    how: dict[str, Any] = {"decoder_only": decoder_only, "max_length": UNLIMITED, "chat": loaded.chat}
    examples: list[Any] = encode_rows(rows, loaded.tokenizer, **how)
    positions = positions_of(loaded.model)
    # The last generated token is not an input; a question to an encoder has positions of its own.
    room = loaded.most if positions is None else positions + 1 - loaded.limit if decoder_only else positions
    most = min(loaded.most, room)
    for number, (text, example) in enumerate(zip(questions, examples, strict=True), 1):
        if not text.strip():
            raise UserError(f"question {number} is empty; ask something.")
        if (length := len(example["question_ids"])) > most:
            raise UserError(
                f"question {number} has {length:,} tokens, and the model reads {max(most, 0):,} beside an answer of "
                f"{loaded.limit:,}; shorten it, or lower decoding.max_new_tokens."
            )
    options: dict[str, Any] = {"interval": 0.95} if isinstance(loaded.decoding, TreeConfig) else {}
    found = decode(
        loaded.decoding,
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        examples=examples,
        collate=loaded.collator.prompts,
        max_new_tokens=loaded.limit,
        progress=DecodingLines(say, "questions", len(questions)),
        chat=loaded.chat,
        **options,
    )
    if doubtful := sum(answer.about.get("covered", 1.0) < 0.5 for answer in found):
        say(f"{doubtful:,} of {len(found):,} answers: less than half of the probability is on numbers that were found.")
    return [{"question": q, "answer": a.text, **a.about} for q, a in zip(questions, found, strict=True)]


def _is_last(checkpoint: Path, last: int, say: "Say") -> bool:
    """Whether the checkpoint is of the last step; if not, a line says so."""
    if step_of(checkpoint) < last:
        say(f"{checkpoint}: not the last of the {last:,} steps.")
        return False
    return True


def predict(folder: Path, overrides: Sequence[str] = (), say: "Say" = print) -> Path:
    """Decode the newest whole checkpoint of a run again, with other ``decoding`` settings, or on another data set.

    Returns:
        The predictions file: ``predictions.jsonl`` if decoding and data are the run's own and training is complete, so
        that the record of a finished run still describes it; else a file of another name in the same folder.

    Raises:
        Busy: Another process is training or decoding this run.
    """
    # Report mistakes before torch is imported.
    config, own = read_config(folder, overrides), read_config(folder)
    elsewhere = plain(config.dataset) != plain(own.dataset)
    with only_one(folder.resolve()), one_line_when_full(folder):
        from ntl.training import decode

        parts, checkpoint = decode.restore(folder, overrides, say, own_data=not elsewhere)
        more = [parts.dataset.folder_name] if elsewhere else []
        if config.dataset.format != own.dataset.format:
            more.append(config.dataset.format)
        if not _is_last(checkpoint, best_step(folder) or config.trainer.max_steps, say):
            more.append(checkpoint.name)
        is_own = not more and plain(config.decoding) == plain(own.decoding)
        path = folder / (PREDICTIONS if is_own else decode.predictions_name(config.decoding, *more))
        if elsewhere and config.dataset.name == own.dataset.name:
            say(f"{config.dataset.name} with other settings: its test questions may be among those of training.")
        splits = decode.splits_of(parts, config.decoding)
        decode.check_lengths(parts, splits if elsewhere else ())
        decode.decode_splits(parts, splits, path)
    say(f"Predictions: {path}")
    return path
