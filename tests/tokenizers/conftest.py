"""Tokenizer files: the real ones of T5 and GPT-2, and tiny ones of the same make."""

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from ntl.tokenizers import load_tokenizer


@pytest.fixture(scope="session")
def real(data_root: Path) -> Callable[..., PreTrainedTokenizerFast]:
    """``real("t5", "default")``: the tokenizer of published files, loaded once; by default the digit-level one."""

    @cache
    def load(name: str, kind: str = "digit") -> PreTrainedTokenizerFast:
        return load_tokenizer(data_root / "tokenizers" / name, kind)

    return load


@pytest.fixture(scope="session")
def spiece_bytes() -> bytes:
    """A whole spiece.model with T5's first ids, in which `12` and `▁12` are pieces."""
    model = io.BytesIO()
    SentencePieceTrainer.Train(
        sentence_iterator=iter(["12 cats and 12 dogs, 3412 cats 56 78 90", "a 12 and a 34.12 x12 y12"] * 20),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture
def spiece_folder(tmp_path: Path, spiece_bytes: bytes) -> Path:
    folder = tmp_path / "t5"
    folder.mkdir()
    (folder / "spiece.model").write_bytes(spiece_bytes)
    return folder


@pytest.fixture
def bpe_folder(tmp_path: Path) -> Path:
    """GPT-2's kind of files: 256 bytes, the merges `12`, `Ġ12` and `he`, and the end token; 260 entries."""
    merges = ["1 2", "Ġ 12", "h e"]
    tokens = [*sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in merges), "<|endoftext|>"]
    folder = tmp_path / "gpt2"
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    return folder
