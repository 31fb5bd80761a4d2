"""One run from a config to its record, in the order that lets a mistake show before anything slow begins."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from ntl.config import Config, build, run_id
from ntl.config.identity import plain, recorded
from ntl.data.base import TextDataset
from ntl.evaluation.evaluate import PREDICTIONS
from ntl.models import require, source
from ntl.results import RunRecord, lacking_readings, read_record
from ntl.results.record import write_record
from ntl.system.errors import UserError, one_line_when_full
from ntl.system.files import remove_parts
from ntl.system.machine import git_state
from ntl.system.secrets import redacted
from ntl.training.checkpoints import (
    CHECKPOINTS,
    check_data,
    check_state,
    checkpoint_at,
    digest,
    keep_newest,
    not_kept,
    one_line_when_damaged,
    read_run,
    weights_digest,
)
from ntl.training.folder import only_one, remove_leftovers, say
from ntl.training.resume import base_for, check_made_of, checkpoint_for, describe

if TYPE_CHECKING:
    from ntl.training.parts import RunParts
    from ntl.training.trainer import ObjectiveTrainer

PUBLISHED_AT_TINY = (
    "{name} is a published size: scale=paper is what it is for, and a *_tiny model is what scale=tiny is for."
)


def run(config: Config, overrides: Sequence[str] = ()) -> Path:
    """Prepare, train, decode, score and record; a run whose record exists is not repeated.

    Returns:
        The path of record.json.

    Raises:
        UserError: Something that the config names is missing or does not fit.
        Busy: Another process is at this run.
        Diverged: The loss became NaN or infinite.
        KeyboardInterrupt: After the checkpoint that Ctrl-C asks for.
    """
    folder = Path(config.output_dir) / run_id(config)
    record_path = folder / "record.json"
    if record_path.is_file():
        if not lacking_readings(read_record(record_path).config, plain(config.beside)):
            return _already_finished(record_path, config)
    else:
        if config.model.pretrained or (source(config.model) and not config.tokenizer.path):
            require(source(config.model))
        if (config.model.hub_id or config.model.tokenizer_hub_id) and config.scale.name == "tiny":
            say(PUBLISHED_AT_TINY.format(name=config.model.name))
    with only_one(folder):
        # Asked again: another process may have had the folder until now.
        if record_path.is_file():
            return _already_finished(record_path, config)
        checkpoint = checkpoint_for(config, folder, say)
        base = base_for(config) if config.base and not checkpoint else None
        with one_line_when_full(folder):
            return _train(config, folder, overrides, checkpoint, base)


def _train(config: Config, folder: Path, overrides: Sequence[str], checkpoint: Path | None, base: Path | None) -> Path:
    """From ``checkpoint``, the weights of ``base`` or the start to record.json."""
    # Imported here: a mistake in the config must show before torch is loaded.
    from ntl.training.callbacks import ProgressLines, StopOnSignal, probe
    from ntl.training.decode import check_lengths, decode_additional, decode_splits, forget_answers, splits_of
    from ntl.training.parts import RunParts
    from ntl.training.record import build_record, summary
    from ntl.training.tracking import METRICS, MetricsFile, mirror

    # The source is that of the start: a checkout may move on while a run trains. So may a folder of weights.
    started, git, values = time.monotonic(), git_state(), recorded(config)
    parts, stop = RunParts(config, say), StopOnSignal()
    # Before the trainer, which makes a folder: what fails here leaves nothing behind.
    if checkpoint:
        _check_checkpoint(checkpoint, parts)
    made_of = _made_of(parts, checkpoint, base)
    if checkpoint:
        check_made_of(checkpoint, made_of)
        say(f"Continuing from {checkpoint}.")
    elif base:
        _begin_from(base, parts, made_of)
    check_lengths(parts)
    for decoding in (config.decoding, *config.beside.values()):
        splits_of(parts, decoding)
    description = {**describe(config, folder.name), "made_of": made_of}
    trainer = parts.trainer(folder / CHECKPOINTS, run=description, callbacks=[stop])
    is_first = trainer.is_world_process_zero()
    if is_first:
        _make_folder(folder, parts)
    with closing(mirror(config, folder.name, folder, say)) as tracker:
        trainer.add_callback(MetricsFile(folder / METRICS, tracker.log))
        trainer.add_callback(ProgressLines(say))
        if config.probe_steps:
            trainer.add_callback(probe(parts, config.probe_steps, folder / METRICS))
        with stop:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if stop.requested(trainer.args.device):
            stop.hand_on()
            raise KeyboardInterrupt
        weights = digest(checkpoint_at(folder, trainer.state.global_step))
        validation = _validation(trainer)
        seen = trainer.examples_and_tokens_seen()
        parts.gather_model(trainer)
        splits = splits_of(parts, config.decoding)
        scores = decode_splits(parts, splits, folder / PREDICTIONS, weights=weights)
        beside = decode_additional(parts, config.beside, folder, weights=weights)
        if is_first:
            scores.metrics.update(beside)
            record = build_record(
                parts,
                trainer,
                validation,
                scores,
                folder=folder,
                overrides=overrides,
                values=values,
                made_of=made_of,
                git=git,
                seen=seen,
                seconds=time.monotonic() - started,
            )
            forget_answers(folder)
            write_record(folder / "record.json", record)
            # The newest is what predict.py decodes and what a longer run continues from.
            keep_newest(folder / CHECKPOINTS, config.trainer.keep_checkpoints_after)
            for line in summary(record, splits, "@paper" if config.paper_compat else ""):
                say(line)
            say(f"Record: {folder / 'record.json'}")
            tracker.finish(record.metrics)
    trainer.accelerator.wait_for_everyone()
    return folder / "record.json"


def _validation(trainer: "ObjectiveTrainer") -> Mapping[str, float]:
    # Training may have ended with an evaluation, in this process or before the checkpoint it continued from.
    for entry in reversed(trainer.state.log_history):
        if "eval_loss" in entry and entry["step"] == trainer.state.global_step:
            return entry
    return trainer.evaluate()


def _check_checkpoint(checkpoint: Path, parts: "RunParts") -> None:
    # The files themselves: an edited one may have the size that its manifest says.
    dataset: TextDataset = build(parts.config.dataset)
    check_data(checkpoint, dataset.digests(parts.data_dir) or parts.dataset.digests(parts.data_dir))
    check_state(checkpoint)


def _made_of(parts: "RunParts", checkpoint: Path | None, base: Path | None) -> dict[str, str]:
    """The sha256 of the tokenizer and of the weights that the run begins from, where there are such."""
    from ntl.tokenizers import tokenizer_fingerprint

    tokenizer: Any = parts.tokenizer
    roles = sorted(tokenizer.special_tokens_map.items())
    made_of = {"tokenizer": sha256(f"{tokenizer_fingerprint(tokenizer)} {roles}".encode()).hexdigest()}
    if parts.config.model.pretrained:
        made_of["weights"] = parts.loaded.get("sha256", "")
    if base:
        made_of["base"] = weights_digest(base)
    elif parts.config.base and checkpoint:
        # Of what it did begin from, which need not be there any more.
        made_of["base"] = read_run(checkpoint)["made_of"].get("base") or weights_digest(base_for(parts.config))
    return made_of


def _begin_from(base: Path, parts: "RunParts", made_of: Mapping[str, str]) -> None:
    from ntl.training.weights import load_model

    before = read_run(base)["made_of"].get("tokenizer")
    if before != made_of["tokenizer"]:
        raise UserError(
            f"base={parts.config.base}: trained with another tokenizer, sha256 {before}; name one whose weights fit."
        )
    with one_line_when_damaged(base):
        load_model(parts.model, base)
    say(f"Beginning from the weights of {base}.")


def _make_folder(folder: Path, parts: "RunParts") -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; choose another by output_dir=.") from error
    remove_parts(folder)
    # Its values, not its text, in which YAML folds and quotes them.
    text = OmegaConf.to_yaml(OmegaConf.create(redacted(plain(parts.config))))
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    parts.tokenizer.save_pretrained(folder / "tokenizer")


def _already_finished(record_path: Path, config: Config) -> Path:
    record = read_record(record_path)
    _check_data(record, record_path, config)
    _check_kept(record_path, config)
    remove_leftovers(record_path.parent, config.trainer.keep_checkpoints_after)
    if lacking := lacking_readings(record.config, plain(config.beside)):
        say(f"{record_path}: this run is finished; decoding it by {', '.join(lacking)}, too.")
        # Imported here, as torch comes with it.
        from ntl.training.decode import add_readings

        with one_line_when_full(record_path.parent):
            add_readings(record_path, {name: config.beside[name] for name in lacking}, say)
        return record_path
    say(f"{record_path}: this run is finished already; remove its folder to repeat it.")
    decoded = record.config.get("decoding", {})
    if any(decoded.get(name) != value for name, value in plain(config.decoding).items()):
        say(f"It was decoded with {decoded}; `python scripts/predict.py {record_path.parent}` decodes it otherwise.")
    return record_path


def _check_data(record: RunRecord, record_path: Path, config: Config) -> None:
    """Raise ``UserError`` where the data is known to be other than the record's."""
    dataset: TextDataset = build(config.dataset)
    files = record.data.get("files")
    if isinstance(files, dict) and (changes := dataset.changes_since(files, config.data_dir)):
        raise UserError(
            f"{record_path}: this run is finished, but its data is not what is there now: {changes}; restore the data, "
            "or remove the run's folder to train it on what is there."
        )


def _check_kept(record_path: Path, config: Config) -> None:
    if gone := not_kept(record_path.parent, config.keep_steps):
        raise UserError(
            f"keep_steps={gone}: {record_path.parent} is finished, without a whole checkpoint of that; remove the "
            "folder, and the same command trains it again."
        )
