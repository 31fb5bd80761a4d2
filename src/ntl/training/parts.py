"""What a run is made of, each part built from its config: data set, tokenizer, model, objective, trainer."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging as transformers_logging

from ntl.config import Config, build
from ntl.config.targets import locate
from ntl.data.dataset import TextDataset
from ntl.data.encode import EncodedDataset, encode_dataset
from ntl.data.prepared import Prepared
from ntl.models import checkpoint_activations, embedding_rows, identity, source, tokenizer_source
from ntl.models.lora import add_lora
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError
from ntl.system.files import sweep
from ntl.system.machine import keep_freed_memory, pick_device
from ntl.tokenizers import load_tokenizer, number_vocabulary, train_tokenizer
from ntl.tokenizers.kinds import KINDS
from ntl.training.arguments import training_arguments
from ntl.training.objectives.terms import terms_of
from ntl.training.protocols import Collator, Objective
from ntl.training.ranks import whole_state
from ntl.training.trainer import ObjectiveTrainer

Say = Callable[[str], None]
Rows = Sequence[Mapping[str, str]]
# Of the text that a tokenizer is trained on: enough for a few hundred pieces; more would only cost time.
TRAINING_ROWS = 20_000


class RunParts:
    """The parts of a run by its config, each built when it is first asked for. Nothing here knows the run's folder."""

    def __init__(self, config: Config, say: Say = print) -> None:
        self.config = config
        self.say = say
        self.data_dir = Path(config.data_dir)
        self.device = pick_device(config.device)
        self._encoded: dict[str, EncodedDataset] = {}
        keep_freed_memory()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()

    # ---- data

    @cached_property
    def prepared(self) -> Prepared:
        """The data set in its folder, prepared on first use."""
        prepared = Prepared(build(self.config.dataset), self.data_dir)
        prepared.prepare(self.say)
        return prepared

    @property
    def dataset(self) -> TextDataset:
        """The data set, prepared."""
        return self.prepared.dataset

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Files' sha256 and rows per split."""
        return self.prepared.fingerprint()

    def rows(self, split: str) -> Rows:
        """The text of a split."""
        # A TypedDict of strings, which the checker does not take for a Mapping to strings.
        return cast(Rows, self.prepared.rows(split))

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer that the config asks for."""
        key = self.prepared.content_key("train")
        return tokenizer_for(self.config, lambda: self.rows("train"), key, self.data_dir / ".tokenizers")

    def encoded(self, split: str) -> EncodedDataset:
        """The token ids of a split; its text is read only where no earlier run encoded it."""
        if split not in self._encoded:
            self._encoded[split] = encode_dataset(
                lambda: self.rows(split),
                self.tokenizer,
                cache_dir=self.data_dir / ".encoded",
                key=self.prepared.content_key(split),
                decoder_only=not self.model.config.is_encoder_decoder,
                max_length=self.config.trainer.max_input_length,
                keep_target=self.config.objective.keep_target,
                log=self.say,
            )
        return self._encoded[split]

    @cached_property
    def collator(self) -> Collator:
        """Examples to batches."""
        return locate(self.config.objective.collator)(self.model.config, self.tokenizer)

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

    def gather_model(self, trainer: ObjectiveTrainer) -> None:
        """Hold the weights whole that FSDP has sharded: generation asks a model for them at every token."""
        if trainer.is_fsdp_enabled:
            state = whole_state(self.model)
            del self.model
            model: Any = self.model
            model.load_state_dict(state)
            model.to(trainer.args.device)

    # ---- training

    def objective(self) -> torch.nn.Module:
        """The module that computes the loss inside its forward, an ``Objective``."""
        vocab = self._number_vocab()
        if self.config.trainer.gradient_checkpointing:
            checkpoint_activations(self.model)
        terms = terms_of(self.config.loss, vocab)
        objective: Objective = build(self.config.objective, model=self.model, terms=terms, number_vocab=vocab)
        return cast(torch.nn.Module, objective)

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

    def trainer(
        self, checkpoints: Path, *, run: Mapping[str, Any] | None = None, callbacks: Sequence[Any] = ()
    ) -> ObjectiveTrainer:
        """The trainer, ready for ``train``. ``run`` is what each checkpoint says of the run that it is of."""
        train = self.encoded("train")
        self._warn_of_losses(train)
        return ObjectiveTrainer(
            model=self.objective(),
            args=training_arguments(self.config, checkpoints, sorted(self.model._no_split_modules or ())),
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
            run=run or {},
            example_id=lambda place: self.rows("train")[place]["id"],
        )

    def _warn_of_losses(self, train: EncodedDataset) -> None:
        for about, remedy in (("truncated", "raise trainer.max_input_length"), ("unknown", "choose another tokenizer")):
            if train.about[about]:
                self.say(
                    f"{train.about[about]:,} of {len(train):,} training examples are {about}; {remedy} to mend it."
                )


def _texts(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for row in islice(rows, TRAINING_ROWS):
        yield row["question"]
        yield row["answer"]


def tokenizer_for(
    config: Config, rows: Callable[[], Sequence[Mapping[str, str]]], data_key: str, cache_dir: Path
) -> PreTrainedTokenizerBase:
    """The tokenizer that the config asks for.

    Args:
        rows: Makes the training rows; called only when a tokenizer has to be trained.
        data_key: The content of those rows.
        cache_dir: Where trained tokenizers are kept.
    """
    kind = config.tokenizer.kind
    options = {name: getattr(config.tokenizer, name) for name in KINDS[kind].options}
    name = config.tokenizer.path or tokenizer_source(config.model)
    if name:
        return load_tokenizer(name, kind=kind, **options)
    key = hashlib.sha256(json.dumps([data_key, kind, config.tokenizer.vocab_size]).encode()).hexdigest()[:16]
    folder = cache_dir / f"{config.dataset.name}-{kind}-{key}"
    if not (folder / "tokenizer.json").is_file():
        sweep(cache_dir, ".*.part-*")
        train_tokenizer(_texts(rows()), folder, kind=kind, vocab_size=config.tokenizer.vocab_size)
    return load_tokenizer(str(folder), kind=kind, **options)
