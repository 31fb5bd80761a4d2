"""The parts of one run, put together: data, tokenizer, model, objective, trainer, decoding, record."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import OmegaConf
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging as transformers_logging

from ntl.config import Config, UserError, build
from ntl.config.identity import plain, recorded
from ntl.config.secrets import redacted
from ntl.config.target import locate
from ntl.data.base import TextDataset
from ntl.data.encode import EncodedDataset, encode_dataset
from ntl.evaluation.command import PREDICTIONS
from ntl.models import checkpoint_activations, embedding_rows, identity, source
from ntl.models.lora import add_lora
from ntl.numbers import NumberVocabulary
from ntl.results import write_record
from ntl.tokenizers import number_vocabulary, tokenizer_fingerprint
from ntl.training.arguments import training_arguments
from ntl.training.checkpoints import check_data, digest, keep_newest, read_run, weights_digest
from ntl.training.damage import check_state, one_line_when_damaged
from ntl.training.environment import git_state, pick_device
from ntl.training.interrupt import StopOnSignal
from ntl.training.objectives.terms import LossTerms
from ntl.training.prediction import check_lengths, decode_beside, decode_splits, forget_answers
from ntl.training.probe import Probe
from ntl.training.progress import ProgressLines
from ntl.training.ranks import whole_state
from ntl.training.recording import build_record
from ntl.training.resume import base_for, check_made_of, describe
from ntl.training.sources import tokenizer_for
from ntl.training.tracking import METRICS, MetricsFile, mirror
from ntl.training.trainer import ObjectiveTrainer
from ntl.training.weights import load_model

# What the last lines of a run tell; the record has everything.
SUMMARY = ("accuracy", "mae", "rmse", "mape_clipped", "bleu", "rouge1", "unparsable")
Say = Callable[[str], None]
Rows = Sequence[Mapping[str, str]]


class Session:
    """One run in its folder. ``run`` does it all; the parts are there for ``scripts/predict.py`` and for tests."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        overrides: Sequence[str] = (),
        say: Say = print,
        checkpoint: Path | None = None,
    ) -> None:
        self.config = config
        self.folder = folder
        self.overrides = list(overrides)
        self.say = say
        # What ``run`` continues from (``ntl.training.resume.checkpoint_for``).
        self.checkpoint = checkpoint
        self.data_dir = Path(config.data_dir)
        self.device = pick_device(config.device)
        # The digest of the checkpoint that the model is, which names its weights; "" where no checkpoint is.
        self.weights = ""
        self._encoded: dict[str, EncodedDataset] = {}
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()

    # ---- data

    @cached_property
    def dataset(self) -> TextDataset:
        """The data set, prepared on first use."""
        dataset: TextDataset = build(self.config.dataset)
        dataset.prepare(self.data_dir, self.say)
        return dataset

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Files' sha256 and rows per split."""
        return self.dataset.fingerprint(self.data_dir)

    def rows(self, split: str) -> Rows:
        """The text of a split."""
        # A TypedDict of strings, which the checker does not take for a Mapping to strings.
        return cast(Rows, self.dataset.rows(split, self.data_dir))

    def _key(self, split: str) -> str:
        return self.dataset.content_key(split, self.data_dir)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer that the config asks for."""
        key = self._key("train")
        return tokenizer_for(self.config, lambda: self.rows("train"), key, self.data_dir / ".tokenizers")

    def encoded(self, split: str) -> EncodedDataset:
        """The token ids of a split; its text is read only where no earlier run encoded it."""
        if split not in self._encoded:
            self._encoded[split] = encode_dataset(
                lambda: self.rows(split),
                self.tokenizer,
                cache_dir=self.data_dir / ".encoded",
                key=self._key(split),
                decoder_only=not self.model.config.is_encoder_decoder,
                max_length=self.config.trainer.max_input_length,
                keep_target=self.config.objective.keep_target,
                log=self.say,
            )
        return self._encoded[split]

    # ---- model

    @cached_property
    def model(self) -> PreTrainedModel:
        """The model as the config makes it, from the run's seed."""
        set_seed(self.config.seed)
        model: PreTrainedModel = build(self.config.model, tokenizer=self.tokenizer)
        return add_lora(model, self.config.model.lora) if self.config.model.lora.rank else model

    @cached_property
    def loaded(self) -> dict[str, str]:
        """What names the weights that the model began from (``ntl.models.identity``); empty for one from scratch."""
        _ = self.model  # a hub's weights are known once they are loaded
        return identity(source(self.config.model)) if self.config.model.pretrained else {}

    @cached_property
    def run_description(self) -> dict[str, Any]:
        """What each checkpoint says of the run; taken at the start, as a folder of weights may change meanwhile."""
        roles = sorted(self.tokenizer.special_tokens_map.items())
        tokenizer: Any = self.tokenizer
        made_of = {"tokenizer": sha256(f"{tokenizer_fingerprint(tokenizer)} {roles}".encode()).hexdigest()}
        if self.config.model.pretrained:
            made_of["weights"] = self.loaded.get("sha256", "")
        if self.config.base:
            # Of what it did begin from, which need not be there any more when it is continued.
            begun = read_run(self.checkpoint)["made_of"] if self.checkpoint else {}
            made_of["base"] = begun.get("base") or weights_digest(base_for(self.config))
        return {**describe(self.config, self.folder.name), "made_of": made_of}

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """The config as the record has it; taken at the start, too."""
        return recorded(self.config)

    @cached_property
    def collator(self) -> Any:
        """Examples to batches; ``prompts`` of it makes those without labels."""
        return locate(self.config.objective.collator)(self.model.config, self.tokenizer)

    def _number_vocab(self) -> NumberVocabulary | None:
        # A number head predicts values: its tokenizer need not have a number token.
        if self.config.model.head != "lm":
            return None
        config = self.config.tokenizer
        try:
            rows = embedding_rows(self.model)
            return number_vocabulary(self.tokenizer, digits_only=config.digits_only, vocab_size=rows)
        except ValueError as error:
            raise UserError(f"tokenizer={config.name}: {error}") from None

    def objective(self) -> torch.nn.Module:
        """The module that computes the loss inside its forward."""
        vocab = self._number_vocab()
        if self.config.trainer.gradient_checkpointing:
            checkpoint_activations(self.model)
        terms = LossTerms.from_config(self.config.loss, vocab)
        return build(self.config.objective, model=self.model, terms=terms, number_vocab=vocab)

    def trainer(self, callbacks: Sequence[Any] = ()) -> ObjectiveTrainer:
        """The trainer, ready for ``train``."""
        train = self.encoded("train")
        self._warn_of_losses(train)
        return ObjectiveTrainer(
            model=self.objective(),
            args=training_arguments(self.config, self.checkpoints, sorted(self.model._no_split_modules or ())),
            train_dataset=train,
            eval_dataset=self.encoded("validation").first(self.config.trainer.eval_rows),
            data_collator=self.collator,
            processing_class=self.tokenizer,
            callbacks=list(callbacks),
            normalization=self.config.trainer.normalization,
            keep_checkpoints=self.config.trainer.keep_checkpoints,
            keep_steps=self.config.keep_steps,
            length_bucketing=self.config.trainer.length_bucketing,
            data_files=self.fingerprint["files"],
            run=self.run_description,
            example_id=lambda place: self.rows("train")[place]["id"],
        )

    def _warn_of_losses(self, train: EncodedDataset) -> None:
        for about, remedy in (("truncated", "raise trainer.max_input_length"), ("unknown", "choose another tokenizer")):
            if train.about[about]:
                self.say(
                    f"{train.about[about]:,} of {len(train):,} training examples are {about}; {remedy} to mend it."
                )

    # ---- the run

    @property
    def checkpoints(self) -> Path:
        """Where the trainer's checkpoints lie."""
        return self.folder / "checkpoints"

    def _check(self, checkpoint: Path) -> None:
        # The files themselves: an edited one may have the size that its manifest says.
        dataset: TextDataset = build(self.config.dataset)
        check_data(checkpoint, dataset.digests(self.data_dir) or self.dataset.digests(self.data_dir))
        check_state(checkpoint)
        check_made_of(checkpoint, self.run_description["made_of"])
        self.say(f"Continuing from {checkpoint}.")

    def _begin_from(self, base: Path) -> None:
        before = read_run(base)["made_of"].get("tokenizer")
        if before != self.run_description["made_of"]["tokenizer"]:
            raise UserError(
                f"base={self.config.base}: trained with another tokenizer, sha256 {before}; name one whose weights fit."
            )
        with one_line_when_damaged(base):
            load_model(self.model, base)
        self.say(f"Beginning from the weights of {base}.")

    def run(self) -> Path:
        """Train, decode, score, record. Returns the path of record.json."""
        # The source is that of the start: a checkout may move on while a run trains.
        started, git = time.monotonic(), git_state()
        stop = StopOnSignal()
        # Before the trainer, which makes a folder: what fails here leaves nothing behind.
        checkpoint = self.checkpoint
        if checkpoint:
            self._check(checkpoint)
        elif self.config.base:
            self._begin_from(base_for(self.config))
        check_lengths(self)
        _ = self.recorded
        trainer = self.trainer([stop])
        if trainer.is_world_process_zero():
            self._make_folder()
        with closing(mirror(self.config, self.folder.name, self.folder, self.say)) as tracker:
            trainer.add_callback(MetricsFile(self.folder / METRICS, tracker.log))
            trainer.add_callback(ProgressLines(self.say))
            if self.config.probe_steps:
                trainer.add_callback(Probe(self, self.config.probe_steps, self.folder / METRICS))
            with stop:
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            if stop.requested(trainer.args.device):
                stop.hand_on()
                raise KeyboardInterrupt
            self.weights = digest(self.checkpoints / f"checkpoint-{trainer.state.global_step}")
            validation = _validate(trainer)
            seen = trainer.examples_and_tokens_seen()
            path = self.folder / "record.json"
            self._gather_model(trainer)
            scores = decode_splits(self, self.dataset.test_splits, self.folder / PREDICTIONS)
            beside = decode_beside(self, list(self.config.beside))
            if trainer.is_world_process_zero():
                scores.metrics.update(beside)
                seconds = time.monotonic() - started
                record = build_record(self, trainer, validation, scores, git=git, seen=seen, seconds=seconds)
                forget_answers(self.folder)
                write_record(path, record)
                # The newest is what predict.py decodes and what a longer run continues from.
                keep_newest(self.checkpoints, self.config.trainer.keep_checkpoints_after)
                self._summarize(record.metrics)
                tracker.finish(record.metrics)
        trainer.accelerator.wait_for_everyone()
        return path

    def _gather_model(self, trainer: ObjectiveTrainer) -> None:
        # Generation asks a model for its weights at every token: it is worth holding them whole.
        if trainer.is_fsdp_enabled:
            state = whole_state(self.model)
            del self.model
            model: Any = self.model
            model.load_state_dict(state)
            model.to(trainer.args.device)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.folder}: {error.strerror}; choose another by output_dir=.") from error
        for part in self.folder.glob(".*.part"):  # of a process that was killed while it wrote
            part.unlink()
        # Its values, not its text, in which YAML folds and quotes them.
        text = OmegaConf.to_yaml(OmegaConf.create(redacted(plain(self.config))))
        (self.folder / "config.yaml").write_text(text, encoding="utf-8")
        self.tokenizer.save_pretrained(self.folder / "tokenizer")

    def _summarize(self, metrics: Mapping[str, float | None]) -> None:
        rule = "@paper" if self.config.paper_compat else ""
        for split in self.dataset.test_splits:
            named = {name: metrics.get(f"{split}/{name}{rule}") for name in SUMMARY}
            shown = [f"{name} {_text(value)}" for name, value in named.items() if f"{split}/{name}{rule}" in metrics]
            self.say(f"{split}: {', '.join(shown)}")
            constants = [
                f"{name} {_text(metrics[key])} ({constant})"
                for name in ("rmse", "mae")
                for constant in ("mean", "median", "mode")
                if (key := f"{split}/{name}:{constant}") in metrics
            ]
            if constants:
                self.say(f"{split}, constant answers: {', '.join(constants)}")
        self.say(f"Record: {self.folder / 'record.json'}")


def _validate(trainer: ObjectiveTrainer) -> Mapping[str, float]:
    # Training may have ended with an evaluation, in this process or before the checkpoint it continued from.
    for entry in reversed(trainer.state.log_history):
        if "eval_loss" in entry and entry["step"] == trainer.state.global_step:
            return entry
    return trainer.evaluate()


def _text(value: float | None) -> str:
    return "undefined" if value is None or math.isnan(value) else f"{value:.4g}"
