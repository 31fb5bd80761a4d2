"""The tokenizer of a run: the model's own files, a folder that was named, or one trained on the prepared text."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ntl.config import Config
from ntl.config.leftovers import sweep
from ntl.models import tokenizer_source
from ntl.tokenizers import load_tokenizer, train_tokenizer
from ntl.tokenizers.kinds import KINDS

# Enough text for a few hundred pieces; more would only cost time.
TRAINING_ROWS = 20_000


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
