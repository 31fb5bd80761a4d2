"""The parts of a run, each built from its config: data set, tokenizer, model, objective and trainer."""

import ctypes
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from datasets import disable_progress_bars
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging as transformers_logging

from ntl.config import Config, build
from ntl.config.loss import ExpectedErrorConfig, RegressionConfig
from ntl.config.model import gguf_file, source, tokenizer_source
from ntl.config.targets import locate
from ntl.config.validation import unfit_for_chat
from ntl.data.chat import Chat, chat_for
from ntl.data.collate import training_collator
from ntl.data.dataset import TextDataset
from ntl.data.encode import EncodedDataset, encode_dataset
from ntl.data.prepared import Prepared
from ntl.data.sets.file import File
from ntl.data.sets.official import Packaged
from ntl.decoding.expected_error import expected_error, number_masses
from ntl.decoding.tree import NumberTokens
from ntl.evaluation.ridge import Ridge
from ntl.models.interface import end_ids
from ntl.models.lora import add_lora
from ntl.models.mtp import carry_heads
from ntl.models.pretrained import embedding_rows
from ntl.numbers import NumberVocabulary
from ntl.objectives.masking import Masking, maskable
from ntl.objectives.next_token import loss_of
from ntl.objectives.number_heads import scale_targets
from ntl.system.errors import MissingPackage, UserError
from ntl.system.files import make_once
from ntl.system.hub import digest, origin, snapshot, weight_files, weights_digest
from ntl.system.machine import pick_device
from ntl.tokenizers import load_tokenizer, train_tokenizer
from ntl.tokenizers.load import add_mask_token

Say = Callable[[str], None]
TextRows = Sequence[Mapping[str, str]]
# Rows that a tokenizer is trained on: enough for a few hundred pieces; more would only cost time.
TRAINING_ROWS = 20_000
# Rows that are searched for a token that may be masked.
ROWS_LOOKED_AT = 64


class RunParts:
    """The parts of a run, each built from its config on first use. They do not depend on the run's folder."""

    def __init__(self, config: Config, say: Say = print, prepared: Prepared | None = None) -> None:
        self.config = config
        self.say = say
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
        prepared.prepare(self.say)
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
            self.say(f"The answers are compared with no ridge regression: {error}")
            return None

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer that the config asks for."""
        config, model = self.config.tokenizer, self.config.model
        named = config.path or tokenizer_source(model)
        source, file = named or self._trained_tokenizer(), "" if config.path else gguf_file(model)
        tokenizer = load_tokenizer(source, config.kind, gguf_file=file, paper_compat=config.paper_compat)
        if model.pretrained and getattr(tokenizer, "digits_were_split", False):
            self.say(
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
        return make_once(folder, lambda: folder if made.is_file() else None, write, self.say, "write a tokenizer to")

    @cached_property
    def chat(self) -> Chat | None:
        """The chat template that questions and answers go through, if any."""
        config = self.config
        return chat_for(config.dataset.format, self.tokenizer, unfit_for_chat(config), config.model.name, self.say)

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
                log=self.say,
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
            model = locate(adds)(model, self.config.objective, loaded_from, self.say)
            # The base model has no weights of its own for what is added, so these are trained in full.
            added = [name.rpartition(".")[0] for name, _ in model.named_parameters() if name not in before]
            lora = replace(lora, full=[*lora.full, *(f"{module}." for module in dict.fromkeys(added))])
        elif self.config.model.pretrained and model.can_generate():
            carry_heads(model, source(self.config.model), self.say)
        return add_lora(model, lora) if lora.rank else model

    @cached_property
    def loaded(self) -> dict[str, str]:
        """The identity of the pretrained weights (``identity``); {} for a model trained from scratch."""
        _ = self.model  # the commit of weights from a hub is known once they are loaded
        config = self.config.model
        return identity(source(config), gguf_file(config)) if config.pretrained else {}

    # ---- training

    def objective(self) -> torch.nn.Module:
        """Build the objective, a module around the model: ``objective(config, model=, loss=, implementation=)``.

        One of a number head has ``weight=`` in place of a loss. Its ``forward(**batch)`` returns a `JointLoss`: scalars
        in training and one value per example (B,) in evaluation. In training, ``counts`` (2,) passes the denominators
        of the whole step, sums over its batches of ``count(labels)``: how many labels the base term and the number term
        count. Where examples have weights, both also get ``loss_weights``. An objective that predicts tokens may keep
        ``diagnosed``, as `NextToken` does; it is then logged.
        """
        vocab, model, loss = self.number_vocab(), cast(Any, self.model), self.config.loss
        if self.config.trainer.gradient_checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        more: dict[str, Any] = {"weight": loss.weight}
        if vocab:
            known = {"point_id": self.tokenizer.get_vocab().get("."), "embedding": model.get_output_embeddings().weight}
            more = {"loss": loss_of(loss, vocab, known), "implementation": loss.implementation}
        if loss.has_number and loss.squash is None and vocab and vocab.is_wide:
            self.say(
                f"loss={loss.name} tokenizer={self.config.tokenizer.name}: the largest number token is "
                f"{vocab.token_values.max():,.0f}, and so large can the number loss be beside the cross entropy; "
                "tokenizer=digit splits numbers into digits, loss=ntl_was_squashed bounds the distances."
            )
        # Weights that are scored as they are keep the unit that they were trained in.
        as_it_is = not self.config.trainer.max_steps and hasattr(model.config, "target_mean")
        if isinstance(self.config.objective, RegressionConfig) and not as_it_is:
            targets = self.encoded("train").last_values()
            scale_targets(model.config, self.config.objective, targets, self.say)
        if isinstance(settings := self.config.objective, ExpectedErrorConfig):
            tokens = NumberTokens.from_tokenizer(self.tokenizer, end_ids(model, self.tokenizer), self.device)
            limits = {"num_beams": settings.num_beams, "max_new_tokens": self.encoded("train").about["longest_answer"]}
            how = {"kind": settings.kind, "outside": settings.outside, "grid": settings.grid or None}
            error = partial(expected_error, **how)
            more |= {"tokens": tokens, "masses": partial(number_masses, tokens=tokens, **limits), "error": error}
        return build(self.config.objective, model=model, **more)

    def masking(self) -> Masking | None:
        """Build what masks input tokens in training; None if nothing does."""
        mask, train = self.config.objective.mask, self.encoded("train")
        if not mask.fraction:
            return None
        if mask.copy != "none" and (longest := train.about["longest_answer"] - 1) <= mask.min_answer:
            raise UserError(
                f"objective.mask.min_answer={mask.min_answer}: the longest training answer has {longest} tokens, so "
                "nothing would be masked; lower it, or leave objective.mask.copy out."
            )
        vocab, random = cast(NumberVocabulary, self.number_vocab()), mask.variant == "random"
        allowed = maskable(mask, self.tokenizer, vocab, is_computed=self.config.dataset.is_computed)
        parts = ("answer_ids",) if mask.copy != "none" else ("question_ids", "answer_ids")
        first = range(min(len(train), ROWS_LOOKED_AT))
        if not any(bool(allowed[np.asarray(train[row][part], np.int64)].any()) for row in first for part in parts):
            raise UserError(
                f"objective.mask.numbers={mask.numbers} dataset={self.config.dataset.name}: no token of the first "
                f"{len(first)} training examples may be masked; choose another objective.mask.numbers."
            )
        token: Any = None if random else self.tokenizer.mask_token_id
        length = self.longest_input("train")
        return Masking(mask, seed=self.config.seed, length=length, maskable=allowed, mask_token_id=token)

    def number_vocab(self) -> NumberVocabulary | None:
        """Find the number tokens; None for a model with a number head."""
        # A number head predicts values; its tokenizer does not need number tokens.
        if self.config.model.head != "lm":
            return None
        config = self.config.tokenizer
        try:
            rows = embedding_rows(self.model)
            return NumberVocabulary.from_tokenizer(self.tokenizer, digits_only=config.digits_only, vocab_size=rows)
        except ValueError as error:
            raise UserError(f"tokenizer={config.name}: {error}") from None

    def warn_of_lost_text(self, split: str) -> None:
        """Say how many examples of a split the tokenizer or ``trainer.max_input_length`` has taken text from."""
        about, total = self.encoded(split).about, self.fingerprint["rows"][split]
        named = "training" if split == "train" else split
        for lost, what, remedy in (
            ("truncated", "are truncated", "raise trainer.max_input_length to keep their text"),
            ("unknown", "have unknown tokens", "choose another tokenizer to represent them"),
        ):
            if about[lost]:
                self.say(f"{about[lost]:,} of {total:,} {named} examples {what}; {remedy}.")
        if "excluded" in about and (split == "train" or about["excluded"] in (0, about["numbers"])):
            self.say(
                f"dataset.exclude_numbers={self.config.dataset.exclude_numbers}: it leaves {about['excluded']:,} of "
                f"{about['numbers']:,} number tokens of the {named} answers out of the number loss."
            )


def identity(name: str, file: str = "") -> dict[str, str]:
    """Return the ``sha256`` of the weights in a folder, with its ``origin`` if it says one, or of a cached hub id.

    For a hub id there is the ``commit``. ``file`` is a GGUF file in the folder.
    """
    if Path(name).is_dir():
        return {"sha256": weights_digest(Path(name), file)} | ({"origin": said} if (said := origin(name)) else {})
    if (folder := snapshot(name)) is None:
        return {}
    found = {"commit": folder.name}
    with suppress(UserError):  # transformers also loads weights that the hub converted, which are on a separate branch
        found["sha256"] = digest(weight_files(folder))
    return found


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for reuse from here on; with another C library this does nothing.

    Otherwise every step maps memory for its large tensors anew, which on a CPU can take as long as the arithmetic.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(-4, 0)  # M_MMAP_MAX: no allocation uses mmap
        mallopt(-1, -1)  # M_TRIM_THRESHOLD: no memory is returned to the system
