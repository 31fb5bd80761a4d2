"""The parts of one run, put together: data, tokenizer, model, objective, trainer, decoding, record."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging as transformers_logging

from ntl.config import Config, UserError, build
from ntl.data.collate import collator_for
from ntl.data.encode import EncodedDataset, encode_dataset
from ntl.models import embedding_rows
from ntl.numbers import NumberVocabulary
from ntl.results import write_record
from ntl.training.arguments import training_arguments
from ntl.training.checkpoints import newest_whole
from ntl.training.interrupt import StopOnSignal
from ntl.training.objectives.terms import LossTerms
from ntl.training.prediction import decode_splits
from ntl.training.progress import ProgressLines
from ntl.training.recording import build_record
from ntl.training.sources import tokenizer_for
from ntl.training.tracking import METRICS, MetricsFile, mirror
from ntl.training.trainer import ObjectiveTrainer

# What the last lines of a run tell; the record has everything.
SUMMARY = ("accuracy", "mae", "rmse", "mape_clipped", "bleu", "rouge1", "unparsable")
Say = Callable[[str], None]
Rows = Sequence[Mapping[str, str]]


class Session:
    """One run in its folder. ``run`` does it all; the parts are there for ``scripts/predict.py`` and for tests."""

    def __init__(self, config: Config, folder: Path, overrides: Sequence[str] = (), say: Say = print) -> None:
        self.config = config
        self.folder = folder
        self.overrides = list(overrides)
        self.say = say
        self.data_dir = Path(config.data_dir)
        self.dataset = build(config.dataset)
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()

    # ---- data

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Files' sha256 and rows per split; preparing the data first where that is needed."""
        self.dataset.prepare(self.data_dir, self.say)
        return self.dataset.fingerprint(self.data_dir)

    def rows(self, split: str) -> Rows:
        """The text of a split."""
        return self.dataset.rows(split, self.data_dir)

    def _key(self, split: str) -> str:
        assert self.fingerprint, "prepares the data"
        return self.dataset.content_key(split, self.data_dir)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The run's tokenizer; one saved in the run folder wins, so that a checkpoint is always read with its own."""
        key = self._key("train")
        return tokenizer_for(self.config, lambda: self.rows("train"), key, self.data_dir / ".tokenizers")

    def encoded(self, split: str) -> EncodedDataset:
        """The token ids of a split."""
        return encode_dataset(
            lambda: self.rows(split),
            self.tokenizer,
            cache_dir=self.data_dir / ".encoded",
            key=self._key(split),
            decoder_only=not self.model.config.is_encoder_decoder,
            max_length=self.config.trainer.max_input_length,
            log=self.say,
        )

    # ---- model

    @cached_property
    def model(self) -> PreTrainedModel:
        """The model as the config makes it, from the run's seed."""
        set_seed(self.config.seed)
        return build(self.config.model, tokenizer=self.tokenizer)

    def objective(self) -> torch.nn.Module:
        """The module that computes the loss inside its forward."""
        vocab = NumberVocabulary.from_tokenizer(
            self.tokenizer,
            digits_only=self.config.tokenizer.digits_only,
            vocab_size=embedding_rows(self.model),
        )
        terms = LossTerms.from_config(self.config.loss, vocab)
        return build(self.config.objective, model=self.model, terms=terms, number_vocab=vocab)

    def trainer(self, callbacks: Sequence[Any] = ()) -> ObjectiveTrainer:
        """The trainer, ready for ``train``."""
        train = self.encoded("train")
        self._warn_of_losses(train)
        return ObjectiveTrainer(
            model=self.objective(),
            args=training_arguments(self.config, self.checkpoints),
            train_dataset=train,
            eval_dataset=self.encoded("validation").first(self.config.trainer.eval_rows),
            data_collator=collator_for(self.model.config),
            processing_class=self.tokenizer,
            callbacks=list(callbacks),
            normalization=self.config.trainer.normalization,
            keep_checkpoints=self.config.trainer.keep_checkpoints,
            length_bucketing=self.config.trainer.length_bucketing,
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

    def _resume_from(self) -> Path | None:
        if self.config.resume == "never":
            return None
        if self.config.resume != "auto":
            return Path(self.config.resume)
        checkpoint, damaged = newest_whole(self.checkpoints)
        for folder in damaged:
            self.say(f"{folder}: damaged or unfinished, left aside.")
        if checkpoint:
            self.say(f"Continuing from {checkpoint}.")
        return checkpoint

    def run(self) -> Path:
        """Train, decode, score, record. Returns the path of record.json."""
        started = time.monotonic()
        fingerprint = self.fingerprint
        stop = StopOnSignal()
        # Built before the folder: what fails here leaves nothing behind.
        trainer = self.trainer([stop])
        self._make_folder()
        tracker = mirror(self.config, self.folder.name, self.folder, self.say)
        trainer.add_callback(MetricsFile(self.folder / METRICS, tracker.log))
        trainer.add_callback(ProgressLines(self.say))
        checkpoint = self._resume_from()
        with stop:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if stop.received is not None:
            raise KeyboardInterrupt
        validation = trainer.evaluate()
        scores = decode_splits(self, self.dataset.test_splits, self.folder / "predictions.jsonl")
        record = build_record(self, trainer, validation, scores, fingerprint, time.monotonic() - started)
        path = self.folder / "record.json"
        if trainer.is_world_process_zero():
            write_record(path, record)
            self._summarize(record.metrics)
        tracker.finish(record.metrics)
        return path

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.folder}: {error.strerror}; choose another by output_dir=.") from error
        OmegaConf.save(OmegaConf.structured(self.config), self.folder / "config.yaml")
        self.tokenizer.save_pretrained(self.folder / "tokenizer")

    def _summarize(self, metrics: Mapping[str, float | None]) -> None:
        rule = "@paper" if self.config.paper_compat else ""
        for split in self.dataset.test_splits:
            named = {name: metrics.get(f"{split}/{name}{rule}") for name in SUMMARY}
            shown = [f"{name} {_text(value)}" for name, value in named.items() if f"{split}/{name}{rule}" in metrics]
            self.say(f"{split}: {', '.join(shown)}")
        self.say(f"Record: {self.folder / 'record.json'}")


def _text(value: float | None) -> str:
    return "undefined" if value is None or math.isnan(value) else f"{value:.4g}"
