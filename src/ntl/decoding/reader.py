"""Numbers from any language model of transformers, in three lines."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from ntl.config.decoding import DecodingConfig, DigitMedianConfig, TreeConfig
from ntl.data.collate import token_collator
from ntl.data.encode import encode_rows
from ntl.decoding.batches import Answer, decode
from ntl.decoding.distribution import NumberDistribution
from ntl.decoding.point import DISTRIBUTION
from ntl.numbers import parse_number

How = Literal["greedy", "digit_median", "median", "mean"]


class NumberReader:
    """Reads numbers off a decoder or encoder-decoder, as ``train.py`` and ``predict.py`` do.

    .. code-block:: python

        reader = NumberReader(model, tokenizer)
        reader.read(["71 m2, harbour"], how="digit_median")  # (n,) float64
        found = reader.distribution(["71 m2, harbour"])[0]
        found.mean, found.median, found.interval(0.9), found.covered

    No reading is best everywhere: let validation rows choose. Greedy answers are the likeliest, best where only the
    exact one counts. The median of the distribution of whole numbers is best under absolute error, its mean, untrimmed,
    under squared error; both search for numbers, which takes longer. The digit median costs no more than greedy answers
    (`DigitMedian`).

    Args:
        model: Of transformers, with a head over tokens, on its device. It is put into evaluation mode while it reads.
        tokenizer: Its tokenizer, one of transformers with a Rust backend.
        max_new_tokens: The most tokens of an answer.
        batch_size: Prompts of one forward pass; a search reads several prefixes of each.
        num_beams: How finely a search reads the tree of numbers (``decoding.num_beams``).
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, max_new_tokens: int = 32, batch_size: int = 16, num_beams: int = 100
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.max_new_tokens, self.batch_size, self.num_beams = max_new_tokens, batch_size, num_beams

    def read(self, prompts: Sequence[str], how: How = "digit_median") -> np.ndarray:
        """Return the number that answers each prompt, (n,) float64: NaN, and a warning with their count, for none.

        ValueError: Another ``how``. Diverged: A logit is NaN or +inf.
        """
        if how not in get_args(How):
            raise ValueError(f"how={how!r}: choose from {', '.join(get_args(How))}")
        if how in ("median", "mean"):
            found = [getattr(each, how) if each.represented else math.nan for each in self.distribution(prompts)]
        else:
            config = DecodingConfig(name=how) if how == "greedy" else DigitMedianConfig(name=how)
            numbers = (parse_number(answer.text) for answer in self._answers(config, prompts))
            found = [math.nan if number is None else float(number) for number in numbers]
        values = np.array(found, dtype=np.float64)
        if missing := int(np.isnan(values).sum()):
            warnings.warn(f"{missing:,} of {len(values):,} answers are not one number: they are NaN", stacklevel=2)
        return values

    def distribution(self, prompts: Sequence[str]) -> list[NumberDistribution]:
        """Return the model's distribution of the number that answers each prompt, in their order."""
        config = TreeConfig(name="median", num_beams=self.num_beams, _target_="ntl.decoding.point.median")
        none = NumberDistribution(np.empty(0), np.empty(0), [], 0.0)
        return [answer.about.get(DISTRIBUTION, none) for answer in self._answers(config, prompts)]

    def _answers(self, config: DecodingConfig, prompts: Sequence[str]) -> list[Answer]:
        if isinstance(prompts, str):
            raise TypeError("prompts is a single str: give a list of prompts")
        config.batch_size, config.max_new_tokens = self.batch_size, self.max_new_tokens
        model, tokenizer = self.model, self.tokenizer
        rows = [{"question": prompt, "answer": "0"} for prompt in prompts]
        of_decoder = not model.config.is_encoder_decoder
        examples = encode_rows(rows, tokenizer, decoder_only=of_decoder, max_length=1 << 30)
        collate: Any = token_collator(model.config, tokenizer).prompts
        return decode(config, model=model, tokenizer=tokenizer, examples=examples, collate=collate, max_new_tokens=0)
