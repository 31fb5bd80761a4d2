"""The data set, the tokenizer and the model of a run, each built from its config on first use."""

import hashlib
import json
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

from datasets import disable_progress_bars
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging as transformers_logging

from ntl.config import Config, build
from ntl.config.model import gguf_file, source, tokenizer_source
from ntl.config.targets import locate
from ntl.config.validation import unfit_for_chat
from ntl.data.chat import Chat, chat_for
from ntl.data.collate import training_collator
from ntl.data.dataset import TextDataset
from ntl.data.encode import EncodedDataset, encode_dataset, lost_text
from ntl.data.prepared import Prepared
from ntl.data.sets.file import File
from ntl.data.sets.official import Packaged
from ntl.evaluation.ridge import Ridge, TextRows
from ntl.models.lora import add_lora
from ntl.models.mtp import carry_heads
from ntl.models.pretrained import embedding_rows
from ntl.numbers import NumberVocabulary
from ntl.system.errors import MissingPackage, UserError
from ntl.system.files import make_once
from ntl.system.hub import identity
from ntl.system.machine import keep_freed_memory, pick_device
from ntl.system.messages import logger
from ntl.tokenizers import load_tokenizer, train_tokenizer
from ntl.tokenizers.load import add_mask_token, has_single_digits

# Rows that a tokenizer is trained on: enough for a few hundred pieces; more would only cost time.
TRAINING_ROWS = 20_000


class RunParts:
    """The parts of a run, each built from its config on first use. They do not depend on the run's folder."""

    def __init__(self, config: Config, prepared: Prepared | None = None) -> None:
        self.config = config
        if prepared:
            self.prepared = prepared
        self.data_dir = Path(config.data_dir)
        self.device = pick_device(config.device)
        self._encoded: dict[str, EncodedDataset] = {}
        self.validation_errors: dict[str, float] = {}  # of decoding=auto, by decoding
        keep_freed_memory()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        disable_progress_bars()

    # ---- data

    @cached_property
    def prepared(self) -> Prepared:
        """The data set in its folder, prepared on first use."""
        prepared = Prepared(self.config.dataset, self.data_dir)
        prepared.prepare()
        return prepared

    @property
    def dataset(self) -> TextDataset:
        """The data set, prepared."""
        return self.prepared.dataset

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """The sha256 of each data file, and the number of rows of each split."""
        return self.prepared.fingerprint()

    def rows(self, split: str) -> TextRows:
        """Return the text of a split."""
        # A row is a TypedDict of strings, which pyright does not accept as a Mapping to strings.
        return cast(TextRows, self.prepared.rows(split))

    @cached_property
    def ridge(self) -> Ridge | None:
        """The linear model of characters that measured numbers are compared with; None, after a line, if it fails."""
        data = self.config.dataset
        if not isinstance(data, File | Packaged) or data.answers not in ("number", "sentence"):
            return None
        try:
            return Ridge(self.rows("train"), self.rows("validation"))
        except (MissingPackage, ValueError) as error:
            logger.warning(f"The answers are compared with no ridge regression: {error}")
            return None

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer that the config asks for."""
        config, model = self.config.tokenizer, self.config.model
        named = config.path or tokenizer_source(model)
        source, file = named or self._trained_tokenizer(), "" if config.path else gguf_file(model)
        tokenizer = load_tokenizer(source, config.kind, gguf_file=file, paper_compat=config.paper_compat)
        if model.pretrained and getattr(tokenizer, "digits_were_split", False):
            logger.warning(
                f"tokenizer=digit: {named} writes several digits as one token; here each is one of its own, which its "
                "weights have not seen. tokenizer=default leaves it as it is."
            )
        mask = self.config.objective.mask
        return add_mask_token(tokenizer) if mask.fraction and mask.variant != "random" else tokenizer

    def _trained_tokenizer(self) -> Path:
        """Return the folder of a tokenizer that is trained on the training text, at the first use of this text."""
        kind, size, cache = self.config.tokenizer.kind, self.config.tokenizer.vocab_size, self.data_dir / ".tokenizers"
        key = hashlib.sha256(json.dumps([self.prepared.content_key("train"), kind, size]).encode()).hexdigest()[:16]
        folder = cache / f"{self.config.dataset.name}-{kind}-{key}"

        def write(new: Path) -> None:
            rows = islice(self.rows("train"), TRAINING_ROWS)
            texts = (row[name] for row in rows for name in ("question", "answer"))
            train_tokenizer(texts, new, kind=kind, vocab_size=size)

        made = folder / "tokenizer.json"
        return make_once(folder, lambda: folder if made.is_file() else None, write, "write a tokenizer to")

    @cached_property
    def chat(self) -> Chat | None:
        """The chat template that questions and answers go through, if any."""
        config = self.config
        return chat_for(config.dataset.format, self.tokenizer, unfit_for_chat(config), config.model.name)

    def encoded(self, split: str) -> EncodedDataset:
        """Return the token ids of a split; its text is read only if no earlier run has encoded it.

        Those of plain text are packed: their examples are not the rows of the split.
        """
        if split not in self._encoded:
            config = self.config
            self._encoded[split] = encode_dataset(
                partial(self.rows, split),
                self.tokenizer,
                cache_dir=self.data_dir / ".encoded",
                key=self.prepared.content_key(split),
                decoder_only=not self.model.config.is_encoder_decoder,
                max_length=config.trainer.max_input_length,
                keep_target=config.objective.keep_target,
                chat=self.chat,
                weighted=bool(getattr(config.dataset, "weight", "")),
                exclude=config.dataset.exclude_numbers,
                packed=self.dataset.metrics == "likelihood",
            )
        return self._encoded[split]

    @cached_property
    def collator(self) -> Any:
        """Collates encoded examples into a padded batch.

        Its ``prompts`` collates the questions alone, for generation; ``longest_input`` is the number of positions of a
        split's longest example, from ``EncodedDataset.about``.
        """
        return locate(self.config.objective.collator)(self.model.config, self.tokenizer)

    @cached_property
    def collate_training(self) -> Any:
        """The collator of training examples, which may add copies of them."""
        return training_collator(self.collator, self.config.objective.mask)

    def longest_input(self, split: str) -> int:
        """Return the number of positions of a split's longest example."""
        collator = self.collate_training if split == "train" else self.collator
        return collator.longest_input(self.encoded(split).about)

    # ---- model

    @cached_property
    def model(self) -> PreTrainedModel:
        """The model that the config describes, initialized with the run's seed, with what the objective adds, and with
        LoRA adapters if asked for."""
        set_seed(self.config.seed)
        model: PreTrainedModel = build(self.config.model, tokenizer=self.tokenizer)
        lora, adds = self.config.model.lora, self.config.objective.adds
        if adds:
            before = {name for name, _ in model.named_parameters()}
            loaded_from = source(self.config.model) if self.config.model.pretrained else ""
            if file := gguf_file(self.config.model):
                loaded_from = str(Path(loaded_from) / file)
            model = locate(adds)(model, self.config.objective, loaded_from)
            # The base model has no weights of its own for what is added, so these are trained in full.
            added = [name.rpartition(".")[0] for name, _ in model.named_parameters() if name not in before]
            lora = replace(lora, full=[*lora.full, *(f"{module}." for module in dict.fromkeys(added))])
        elif self.config.model.pretrained and model.can_generate():
            carry_heads(model, source(self.config.model))
        return add_lora(model, lora) if lora.rank else model

    @cached_property
    def loaded(self) -> dict[str, str]:
        """The identity of the pretrained weights (``identity``); {} for a model trained from scratch."""
        _ = self.model  # the commit of weights from a hub is known once they are loaded
        config = self.config.model
        return identity(source(config), gguf_file(config)) if config.pretrained else {}

    def number_vocab(self) -> NumberVocabulary | None:
        """Find the number tokens; None for a model with a number head."""
        # A number head predicts values; its tokenizer does not need number tokens.
        if self.config.model.head != "lm":
            return None
        config = self.config.tokenizer
        # Other number tokens may be in the vocabulary of a tokenizer that splits digits, which never writes them.
        digits_only = config.digits_only or (config.kind == "default" and has_single_digits(cast(Any, self.tokenizer)))
        try:
            rows = embedding_rows(self.model)
            return NumberVocabulary.from_tokenizer(self.tokenizer, digits_only=digits_only, vocab_size=rows)
        except ValueError as error:
            raise UserError(f"tokenizer={config.name}: {error}") from None

    def warn_of_lost_text(self, split: str) -> None:
        """Say how many examples of a split the tokenizer or ``trainer.max_input_length`` has taken text from."""
        about, total = self.encoded(split).about, self.fingerprint["rows"][split]
        named = "training" if split == "train" else split
        for line in lost_text(about, total, f"{named} examples"):
            logger.warning(line)
        if "excluded" in about and (split == "train" or about["excluded"] in (0, about["numbers"])):
            logger.warning(
                f"dataset.exclude_numbers={self.config.dataset.exclude_numbers}: it leaves {about['excluded']:,} of "
                f"{about['numbers']:,} number tokens of the {named} answers out of the number loss."
            )
