"""Numbers from any language model of transformers, in three lines."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from ntl.config.decoding import DecodingConfig, DigitMedianConfig, TreeConfig
from ntl.data.chat import Chat
from ntl.data.collate import token_collator
from ntl.data.encode import encode_rows
from ntl.decoding.batches import Answer, cut_off, decode, too_long
from ntl.decoding.distribution import NumberDistribution
from ntl.decoding.point import DISTRIBUTION
from ntl.evaluation.metrics import COVERED
from ntl.models.pretrained import embedding_rows
from ntl.numbers import parse_number
from ntl.tokenizers.load import special_ids

How = Literal["greedy", "digit_median", "median", "mean"]


class NumberReader:
    """Reads numbers off a decoder or encoder-decoder, as ``train.py`` and ``predict.py`` do.

    .. code-block:: python

        reader = NumberReader(model, tokenizer)
        reader.read(["71 m2, harbour"], how="digit_median")  # (n,) float64
        rent = reader.distribution(["71 m2, harbour"])[0]
        rent.mean, rent.median, rent.interval(0.9), rent.covered

    No reading is best everywhere: let validation rows choose. Greedy answers are the likeliest, best where only the
    exact one counts. The median of the distribution of whole numbers is best under absolute error, its mean, without
    0.5% of the probability at either end, under squared error; both search for numbers, which takes longer. The digit
    median costs no more than greedy answers (`DigitMedian`).

    Args:
        model: A model of transformers with a head over tokens, on its device; in evaluation mode while it reads.
        tokenizer: The model's tokenizer, one of transformers with a Rust backend.
        max_new_tokens: The most tokens of an answer.
        max_input_length: The most tokens of a prompt; the beginning of a longer one is cut off, with a warning.
        batch_size: Prompts of one forward pass; a search reads several prefixes of each.
        num_beams: How finely a search reads the tree of numbers (``decoding.num_beams``).
        chat: Whether prompts are questions for the tokenizer's chat template (``dataset.format=chat``).

    ValueError: The model has no head over tokens, the tokenizer no end token; an argument is below 1. UserError: There
    is no chat template, or it cannot be used.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_new_tokens: int = 32,
        max_input_length: int = 1 << 30,
        batch_size: int = 16,
        num_beams: int = 100,
        chat: bool = False,
    ) -> None:
        if not model.can_generate():
            raise ValueError(f"{type(model).__name__} has no head over tokens: take AutoModelForCausalLM or Seq2SeqLM")
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer names no end token, and so no answer ends: set tokenizer.eos_token")
        if min(max_new_tokens, max_input_length, batch_size, num_beams) < 1:
            raise ValueError("max_new_tokens, max_input_length, batch_size and num_beams must be at least 1")
        self.model, self.tokenizer, self.chat = model, tokenizer, Chat(tokenizer) if chat else None
        self.max_new_tokens, self.max_input_length = max_new_tokens, max_input_length
        self.batch_size, self.num_beams = batch_size, num_beams
        # What no prompt may have; with a chat template it is text.
        self.special = [] if chat else tokenizer.convert_ids_to_tokens([*special_ids(tokenizer)])

    def read(self, prompts: Sequence[str], how: How = "digit_median") -> np.ndarray:
        """Return the number that answers each prompt, (n,) float64: NaN where there is none, with a warning.

        Other warnings tell of a median or mean of numbers that are together unlikely, of answers that are cut off, and
        of prompts with unknown tokens. ValueError: An unknown ``how``; a prompt that is empty, too long, or has a
        special token. Diverged: A logit is NaN or +inf.
        """
        if how in ("median", "mean"):
            distributions = self.distribution(prompts)
            numbers = [
                (of.median if how == "median" else of.moments(TreeConfig.trim)[0]) if of.represented else math.nan
                for of in distributions
            ]
            warn_of_text(distributions, "where it is small, read greedily", stacklevel=3)
        else:
            parsed = map(parse_number, self.texts(prompts, how))
            numbers = [math.nan if number is None else float(number) for number in parsed]
        values = np.array(numbers, dtype=np.float64)
        if missing := int(np.isnan(values).sum()):
            warnings.warn(f"{missing:,} of {len(values):,} answers are not one number: they are NaN", stacklevel=2)
        return values

    def texts(self, prompts: Sequence[str], how: How = "digit_median") -> list[str]:
        """Return the answers as they are generated, greedily or by digit_median. ValueError: as of `read`."""
        if how not in ("greedy", "digit_median"):
            both = (
                "texts are greedy or digit_median"
                if how in get_args(How)
                else f"choose from {', '.join(get_args(How))}"
            )
            raise ValueError(f"how={how!r}: {both}")
        config = DecodingConfig(name=how) if how == "greedy" else DigitMedianConfig(name=how)
        answers = self._answers(config, prompts)
        if cut := cut_off(answers):
            ends = "or name the token that ends an answer in model.generation_config.eos_token_id"
            warnings.warn(f"{cut}; raise max_new_tokens, train longer, {ends}", stacklevel=3)
        return [answer.text for answer in answers]

    def distribution(self, prompts: Sequence[str]) -> list[NumberDistribution]:
        """Return the model's distribution of the number that answers each prompt, in their order."""
        config = TreeConfig(name="median", num_beams=self.num_beams, _target_="ntl.decoding.point.median")
        none = NumberDistribution(np.empty(0), np.empty(0), [], 0.0)
        return [answer.about.get(DISTRIBUTION, none) for answer in self._answers(config, prompts)]

    def _answers(self, config: DecodingConfig, prompts: Sequence[str]) -> list[Answer]:
        if isinstance(prompts, str | Mapping) or hasattr(prompts, "columns"):
            raise TypeError(f"prompts is a single {type(prompts).__name__}: give a list of prompts")
        config.batch_size, config.max_new_tokens = self.batch_size, self.max_new_tokens
        model, tokenizer = self.model, self.tokenizer
        rows = [{"question": prompt, "answer": "0"} for prompt in prompts]
        if empty := next((n for n, text in enumerate(prompts, 1) if not (isinstance(text, str) and text.strip())), 0):
            raise ValueError(f"prompt {empty} is empty or no str: give the text of a question, also with chat=True")
        of_decoder = not model.config.is_encoder_decoder
        settings: Any = {"decoder_only": of_decoder, "max_length": self.max_input_length, "chat": self.chat}
        examples, lost = encode_rows(rows, tokenizer, **settings)
        for line in lost:
            warnings.warn(line.replace("trainer.", ""), stacklevel=4)
        for number, row in enumerate(rows, 1):
            if token := next((token for token in self.special if token in row["question"]), None):
                remedy = "give the question alone, and chat=True for the chat template"
                raise ValueError(f"prompt {number} has the special token {token}, which is no text: {remedy}")
        highest = max((int(example["question_ids"].max(initial=0)) for example in examples), default=0)
        if highest >= (known := embedding_rows(model)):
            raise ValueError(f"the tokenizer writes token {highest}, and the model has {known}: give its own tokenizer")
        if lacks_room := too_long(examples, model, self.max_new_tokens):
            raise ValueError(f"prompt {lacks_room}: shorten it, or lower max_new_tokens")
        collate: Any = token_collator(model.config, tokenizer).prompts
        given = {"model": model, "tokenizer": tokenizer, "examples": examples, "collate": collate}
        return decode(config, **given, max_new_tokens=0, chat=self.chat)


def warn_of_text(distributions: Sequence[NumberDistribution], remedy: str, *, stacklevel: int) -> None:
    """Warn where numbers have too little of the probability for a median or mean of them."""
    if doubtful := [of.represented for of in distributions if 0 < of.represented < COVERED]:
        part = f"numbers hold {min(doubtful):.2g} to {max(doubtful):.2g} of the probability"
        line = f"{part}, and median and mean are taken over that part; {remedy}"
        warnings.warn(f"{len(doubtful):,} of {len(distributions):,} answers: {line}", stacklevel=stacklevel)
