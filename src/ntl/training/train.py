"""One run, from its config to its record. Checks come first, so that a mistake is reported before slow work."""

import gc
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from ntl.config import Config, run_id
from ntl.config.decoding import TreeConfig
from ntl.config.folders import literal
from ntl.config.identity import identity_fields, plain, recorded
from ntl.config.model import check_type, gguf_file, other_shape, source
from ntl.config.trainer import DERIVED, in_steps
from ntl.config.validation import PLAIN, check_keep_steps
from ntl.data.prepared import Prepared
from ntl.results import missing_decodings, read_record
from ntl.results.match import as_decoded
from ntl.results.readings import compare_readings, regression_heads
from ntl.results.record import RECORD, RunRecord, run_record, write_record
from ntl.runs.folder import (
    CHECKPOINTS,
    MANIFEST,
    RUN,
    WEIGHTS,
    check_data,
    checkpoint_at,
    is_first,
    latest_complete,
    not_kept,
    only_one,
    processes,
    prune,
    read_json,
    remove_parts,
    step_of,
)
from ntl.system.errors import UserError, one_line_errors, one_line_when_edited, one_line_when_full, redacted
from ntl.system.hub import origin, require
from ntl.system.machine import set_tf32, uses_bf16
from ntl.system.messages import logger
from ntl.training import resume

if TYPE_CHECKING:
    from ntl.runs.parts import RunParts
    from ntl.training.trainer import ObjectiveTrainer


def train(config: Config, overrides: Sequence[str] = ()) -> Path:
    """Prepare, train, decode, score and record a run. A run that has a record is not repeated.

    An unfinished run resumes from its newest complete checkpoint. A finished run is decoded again only by the extra
    decodings that its record lacks. ``overrides`` are the command line's, for the record, whose path is returned.

    UserError: something that the config names is missing or does not fit. Busy: another process is working on this run.
    Diverged: the loss became NaN or infinite. KeyboardInterrupt: a signal stopped the run, after a checkpoint.
    """
    is_first()  # UserError where a launcher's settings are left over
    settings = identity_fields(config)
    folder = Path(config.output_dir) / run_id(config, settings)
    record_path = folder / RECORD
    if not record_path.is_file():
        _check_model(config)
    elif not missing_decodings(read_record(record_path).config, plain(config.extra_decodings)):
        return _already_finished(record_path, config)
    with only_one(folder), one_line_when_full(folder):
        # Checked again: another process may have finished the run before this one got the lock.
        if record_path.is_file():
            return _already_finished(record_path, config)
        config, prepared = _with_steps(config)
        warmup, steps = config.trainer.warmup_steps, config.trainer.max_steps
        if 0 < steps < warmup:
            logger.warning(
                f"trainer.warmup_steps={warmup} trainer.max_steps={steps}: the learning rate rises to the last step, "
                f"and is never more than {steps / warmup:.0%} of trainer.lr; set trainer.warmup_steps lower."
            )
        is_meant = config.trainer.max_steps and config.scale.name != "finetune"
        if not (config.model.pretrained or config.base or is_meant):
            what = "scale=finetune" if config.trainer.max_steps else "trainer.max_steps=0"
            name = config.model.name
            logger.warning(
                f"{what} model={name}: these are random weights; model.path=FOLDER or base= gives it others."
            )
        path = _train(config, prepared, folder, resume.describe(folder.name, settings), overrides)
        gc.collect()  # the Trainer, whose parts refer to each other, holds the optimizer's state
        return path


def _check_model(config: Config) -> None:
    model, scale = config.model, config.scale.name
    if model.pretrained or (source(model) and not config.tokenizer.path):
        require(source(model), gguf_file(model), config.data_dir)
        check_type(model)
    if model.pretrained and (said := origin(source(model))):
        logger.info(f"model={model.name}: {said}; {source(model)}.")
    if model.pretrained and scale in ("tiny", "small", "hour"):
        logger.warning(
            f"scale={scale} model={model.name}: learned weights are trained at trainer.lr={config.trainer.lr:g}, which "
            "is meant for random ones; scale=finetune is meant for these."
        )


def _with_steps(config: Config) -> tuple[Config, Prepared | None]:
    """Return the config with the steps that follow from epochs, and the data, prepared, if they do."""
    if not any(getattr(config.trainer, name) for name in DERIVED):
        return config, None
    prepared = Prepared(config.dataset, config.data_dir)
    prepared.prepare()
    rows = prepared.fingerprint()["rows"]["train"]
    if config.dataset.answers == PLAIN:  # its examples are blocks of tokens
        from ntl.runs.parts import RunParts

        rows = len(RunParts(config, prepared).encoded("train"))
    config = replace(config, trainer=in_steps(config.trainer, rows, processes()))
    if config.trainer.epochs:
        logger.info(f"{config.trainer.epochs:g} epochs of {rows:,} examples are {config.trainer.max_steps:,} steps.")
    check_keep_steps(config)
    return config, prepared


def _train(
    config: Config, prepared: Prepared | None, folder: Path, run: dict[str, Any], overrides: Sequence[str]
) -> Path:
    """Train, starting from a checkpoint, from the weights of a base or from scratch, up to record.json."""
    checkpoint = resume.checkpoint_for(config.resume, folder, run, config.trainer)
    base = resume.base_for(config.base, folder.parent, run["config"]) if config.base and not checkpoint else None
    # Imported here, so that a mistake in the config is reported before torch is loaded.
    from ntl.decoding.extra import score_run
    from ntl.models.lora import parameters
    from ntl.runs.parts import RunParts
    from ntl.training.callbacks import STOP, Probe, StopOnSignal
    from ntl.training.record import (
        METRICS,
        MetricsFile,
        Mirror,
        ProgressLines,
        banner,
        build_record,
        reset_peak_memory,
        summary,
    )
    from ntl.training.trainer import ObjectiveTrainer
    from ntl.training.weights import load_model

    # Read at the start: the checkout, or a folder of weights, may change while the run trains.
    started, git, values = time.monotonic(), git_state(), recorded(config)
    parts, stop, tracker = RunParts(config, prepared), StopOnSignal(), Mirror(config.tracking)
    # These checks come before the trainer, which creates a folder: a run that fails them leaves nothing behind.
    if checkpoint:
        # The digests of the files themselves: an edited file may still have the size in the manifest of the data.
        prepared = prepared or Prepared(config.dataset, parts.data_dir)
        check_data(checkpoint, prepared.digests() or parts.prepared.digests())
    made_of, bf16 = _fingerprints(parts, checkpoint, base), uses_bf16(config.trainer.bf16, parts.device)
    reset_peak_memory(parts.device)
    if checkpoint:
        resume.check_start(checkpoint, made_of, bf16)
        logger.info(f"Continuing from {checkpoint}.")
    elif base:
        with one_line_when_edited(base, RUN):
            before = read_json(base / RUN)["made_of"].get("tokenizer")
        if before != made_of["tokenizer"]:
            raise UserError(
                f"base={config.base}: trained with another tokenizer, sha256 {before}; name a run whose weights fit."
            )
        load_model(parts.model, base)
        logger.info(f"Beginning from the weights of {base}.")
    _check_parts(parts)
    set_tf32(config.trainer.tf32, parts.device)
    trainer = ObjectiveTrainer(
        parts,
        folder / CHECKPOINTS,
        run={**run, "made_of": made_of, "bf16": bf16},
        callbacks=[stop],
        started=started,
    )
    if is_first():
        _make_folder(folder, parts)
        if not config.trainer.max_steps:  # otherwise MetricsFile rewrites it when the training begins
            (folder / METRICS).unlink(missing_ok=True)
    for line in (*banner(parts, trainer, folder, step_of(checkpoint) if checkpoint else 0), other_shape(config.model)):
        if line:
            logger.info(line)
    names = [part.name for part in (config.dataset, config.model, config.loss, config.scale)]
    tracker.start(folder, names, {**plain(config), "parameters": parameters(parts.model)})
    trainer.add_callback(MetricsFile(folder / METRICS, tracker.log))
    trainer.add_callback(ProgressLines())
    if config.probe_steps:
        trainer.add_callback(Probe(parts, config.probe_steps, folder / METRICS))
    if config.trainer.max_steps:
        with stop:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    elif checkpoint:
        load_model(parts.model, checkpoint)
    else:
        trainer.save_as_it_is()
    step = trainer.state.global_step
    if stop.requested(trainer.args.device) == STOP:
        if checkpoint_at(folder, step).is_dir():
            logger.info(
                f"saved step {step:,}; the same command{', without resume=,' * (config.resume != 'auto')} continues"
            )
        stop.call_previous_handler()
        raise KeyboardInterrupt
    scored = _scored_step(trainer)
    # The step may have been evaluated already, in this process or before the checkpoint it resumed from.
    evaluated = [entry for entry in trainer.state.log_history if "eval_loss" in entry and entry["step"] == scored]
    validation = evaluated[-1] if evaluated else trainer.evaluate()
    seen = trainer.examples_and_tokens_seen()
    trainer.gather_model()
    if scored != step:
        load_model(parts.model, checkpoint_at(folder, scored))
    if scores := score_run(parts, folder):
        start = {"overrides": overrides, "values": values, "git": git}
        record = build_record(parts, trainer, validation, scores, folder=folder, seen=seen, **start)
        # predict.py decodes the newest checkpoint, and a longer run resumes from it.
        best = scored if trainer.saves.metric else None
        if newest := latest_complete(folder / CHECKPOINTS)[0]:
            prune(newest, config.trainer.keep_checkpoints_after, best)
        write_record(folder / RECORD, record)
        for line in (
            *summary(record, "@paper" if config.paper_compat else ""),
            *_compared(config, record, folder),
        ):
            logger.info(line)
        logger.info(f"Record: {folder / RECORD}")
        tracker.finish(record.metrics)
    trainer.accelerator.wait_for_everyone()
    return folder / RECORD


def _compared(config: Config, record: RunRecord, folder: Path) -> list[str]:
    """What a run with several decodings says, compared with regression heads on the same data."""
    heads = regression_heads([record], folder.parent) if config.extra_decodings else []
    names = [f"loss={config.loss.name}", *["regression head"] * len(heads)]
    return compare_readings(names, [record, *heads]) if config.extra_decodings else []


def _check_parts(parts: "RunParts") -> None:
    from ntl.decoding.checks import check_decodings, check_lengths, splits_of
    from ntl.decoding.predictions import decode_in_training

    config = parts.config
    check_lengths(parts)
    decodings = {
        "decoding": config.decoding,
        **{f"extra_decodings.{name}": decoding for name, decoding in config.extra_decodings.items()},
    }
    check_decodings(parts, decodings)
    if config.trainer.best and config.trainer.max_steps and "validation" in parts.dataset.test_splits:
        logger.warning(
            f"trainer.best={config.trainer.best} dataset={config.dataset.name}: its validation split is also the one "
            "that is scored, so the checkpoint is chosen on the examples that its scores are of."
        )
    for decoding in decodings.values():
        # Built already now, so that it is told what the model, its tokenizer or its chat template does not allow. Not
        # every model has the cache that a search by number needs, which only trying tells.
        split = splits_of(parts, decoding)[0]
        decode_in_training(parts, decoding, parts.encoded(split).first(1) if isinstance(decoding, TreeConfig) else [])


def _fingerprints(parts: "RunParts", checkpoint: Path | None, base: Path | None) -> dict[str, str]:
    """Return the sha256 of the tokenizer and of the weights that the run starts from, if any."""
    from ntl.tokenizers import tokenizer_fingerprint

    tokenizer: Any = parts.tokenizer
    roles = sorted(tokenizer.special_tokens_map.items())
    made_of = {"tokenizer": sha256(f"{tokenizer_fingerprint(tokenizer)} {roles}".encode()).hexdigest()}
    if parts.config.model.pretrained:
        made_of["weights"] = parts.loaded.get("sha256", "")
    if base:
        with one_line_when_edited(base, MANIFEST):
            made_of["base"] = read_json(base / MANIFEST)[WEIGHTS]
    elif parts.config.base and checkpoint:  # the base that the run did start from may have been deleted since
        with one_line_when_edited(checkpoint, RUN):
            made_of["base"] = read_json(checkpoint / RUN)["made_of"]["base"]
    return made_of


def _scored_step(trainer: "ObjectiveTrainer") -> int:
    """Return the step whose weights are decoded: the best one, if ``trainer.best`` says what that is, or the last."""
    metric, best, last = trainer.saves.metric, trainer.saves.best, trainer.state.global_step
    if not metric:
        return last
    if trainer.saves.is_over and last < trainer.args.max_steps:
        logger.info(f"Stopped at step {last:,}: no better {metric} in {best.since} evaluations.")
    if best.step is None:
        logger.warning(f"trainer.best={metric}: undefined in every evaluation; the last step is scored.")
        return last
    logger.info(f"Best validation {metric}: {best.value:.4g}, at step {best.step:,}, which is scored.")
    return best.step


def _make_folder(folder: Path, parts: "RunParts") -> None:
    with one_line_errors("write", folder):
        folder.mkdir(exist_ok=True)
    remove_parts(folder)
    # Redact the values before they are written: YAML folds and quotes text, which would hide a secret from a search.
    text = OmegaConf.to_yaml(OmegaConf.create(literal(redacted(plain(parts.config)))))
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    parts.tokenizer.save_pretrained(folder / "tokenizer")


def _already_finished(record_path: Path, config: Config) -> Path:
    record, folder = run_record(record_path.parent), record_path.parent
    # The data may also be prepared nowhere; then nothing is known of it.
    files = record.data.get("files")
    if isinstance(files, dict) and (changes := Prepared(config.dataset, config.data_dir).changes_since(files)):
        raise UserError(
            f"{record_path}: this run is finished, but the data has changed: {changes}; restore the data, or "
            "remove the run's folder to train it on the changed data."
        )
    if gone := not_kept(folder, config.keep_steps):
        raise UserError(
            f"keep_steps={gone}: {folder} is finished, but has no complete checkpoint at that step; remove "
            "the folder, and the same command trains it again."
        )
    if missing := missing_decodings(record.config, plain(config.extra_decodings)):
        logger.info(f"{record_path}: this run is finished; decoding it also by {', '.join(missing)}.")
        if is_first():
            from ntl.decoding.predictor import add_extra_decodings  # here, because it imports torch

            add_extra_decodings(record_path, {name: config.extra_decodings[name] for name in missing})
            for line in _compared(config, read_record(record_path), folder):
                logger.info(line)
    else:
        logger.info(f"{record_path}: this run is finished already; remove its folder to repeat it.")
    asked, chose = plain(config.decoding), config.decoding.name == "auto" and "readings" in record.model
    decoded = as_decoded(record.config.get("decoding", {}), asked)
    others = {key: value for key, value in decoded.items() if value != asked.get(key) and key != "_target_"}
    if others and not chose:
        was = ", ".join(f"decoding.{key}={value}" for key, value in others.items())
        logger.warning(f"It was decoded with {was}; `python scripts/predict.py {folder}` decodes it again.")
    return record_path


def git_state() -> dict[str, str | bool | None]:
    """Return the commit of the source tree and whether its files differ from it; None outside a checkout.

    Changes in ``results`` are ignored, as its files are written by runs and do not influence any, and new files but
    those of ``src`` and ``config``.
    """
    command = ["git", "-C", str(Path(__file__).resolve().parent)]

    def git(*arguments: str) -> str | None:
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=10, check=True)
            return done.stdout.strip()
        return None

    changes = git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", ":(top,exclude)results")
    changes = changes or git("status", "--porcelain", "--untracked-files=normal", "--", ":(top)src", ":(top)config")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}
