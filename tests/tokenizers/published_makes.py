"""Tiny tokenizers of every published make, as the Rust backend builds them, with merges that join digits."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Metaspace, Sequence, Split, WhitespaceSplit

TEXT = "abcdefghijklmnopqrstuvwxyz.,-?*=+"
MERGES = ("h e", "t he", "1 2", "3 4", "12 34", "- 1", "1 5", "p 3", "2 0", "6 7")


class Made(NamedTuple):
    """A backend, its end token, and the ``model_type`` whose own class must not take over on reload."""

    backend: Tokenizer
    end: str
    model_type: str


def _bpe(tokens: list[str], merges: tuple[str, ...], **options: Any) -> models.BPE:
    vocab = {token: i for i, token in enumerate([*tokens, *(merge.replace(" ", "") for merge in merges)])}
    pairs: Any = [tuple(merge.split(" ")) for merge in merges]
    return models.BPE(vocab=vocab, merges=pairs, **options)


def _bytes(model_type: str, pre_tokenizer: Any, **options: Any) -> Made:
    merges = (*MERGES, "Ġ 1", "Ġ1 2", "Ġ the")
    backend = Tokenizer(_bpe(sorted(ByteLevel.alphabet()), merges, **options))
    backend.pre_tokenizer, backend.decoder = pre_tokenizer, decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>"])
    return Made(backend, "<|endoftext|>", model_type)


def _llama3() -> Made:
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    steps = [Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    return _bytes("llama", Sequence(steps), ignore_merges=True)


def _pieces(model_type: str, normalizer: Any, pre_tokenizer: Any, *, strips: bool) -> Made:
    merges = (*MERGES, "▁ 1", "▁1 2", "▁ 2", "▁ the")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *"▁0123456789", *TEXT]
    backend = Tokenizer(_bpe(tokens, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return Made(backend, "</s>", model_type)


def _t5() -> Made:
    numbers = [("▁12", -3.0), ("12", -3.0), ("▁the", -3.0), ("34", -3.0), ("▁1", -2.5), ("-1", -2.5), ("▁2", -2.5)]
    scores = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((c, -5.0) for c in "0123456789" + TEXT)]
    backend = Tokenizer(models.Unigram([*scores, *numbers], unk_id=2))
    backend.pre_tokenizer = Sequence([WhitespaceSplit(), Metaspace("▁", prepend_scheme="always")])
    backend.decoder = decoders.Metaspace("▁", "always")
    backend.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return Made(backend, "</s>", "t5")


def _gemma_normalizer() -> normalizers.Normalizer:
    return normalizers.Replace(" ", "▁")


MAKES: dict[str, Callable[[], Made]] = {
    "gpt2": lambda: _bytes("gpt2", ByteLevel(add_prefix_space=False)),
    "roberta": lambda: _bytes("roberta", ByteLevel(add_prefix_space=True)),
    "llama3": _llama3,
    "granite": lambda: _bytes("granite", Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])),
    "llama2": lambda: _pieces(
        "llama", normalizers.Sequence([normalizers.Prepend("▁"), _gemma_normalizer()]), None, strips=True
    ),
    "mistral": lambda: _pieces("mistral", None, Metaspace("▁", prepend_scheme="first", split=False), strips=True),
    "gemma": lambda: _pieces("gemma", _gemma_normalizer(), Split(" ", "merged_with_previous"), strips=False),
    "t5": _t5,
}


def _word_pieces() -> Made:
    names = ["[UNK]", "[SEP]", "12", "the", *"0123456789", *(f"##{digit}" for digit in range(10))]
    backend = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    backend.add_special_tokens(["[UNK]", "[SEP]"])
    return Made(backend, "[SEP]", "bert")


def _added_number() -> Made:
    made = MAKES["gpt2"]()
    made.backend.add_tokens(["2024"])
    return made


REFUSED: dict[str, Callable[[], Made]] = {"WordPiece": _word_pieces, "an added token": _added_number}
