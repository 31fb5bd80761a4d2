"""Small tokenizers of the makes that published models have, each with settings of its own that must stay."""

from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

TEMPLATE = "{% for message in messages %}<|start|>{{ message['content'] }}<|end|>\n{% endfor %}"
SPECIAL = ["<|text|>", "<|start|>", "<|end|>", "<|other|>"]
_TEXT = ["what is 12 times 34? it is 408. the cat and the dog, 1999 or 2014."] * 20
_NUMERALS = [f"{n:0{width}}" for width in (1, 2, 3) for n in range(10**width)] * 5
_GROUPS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"


def _byte_level(step: Any, use_regex: bool = True) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    backend.pre_tokenizer = pre_tokenizers.Sequence([step, as_bytes])
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1800, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([*_TEXT, *_NUMERALS], trainer)
    return backend


def characters() -> PreTrainedTokenizerFast:
    """Each digit, ``+``, ``=`` and the space is a token; all else is unknown."""
    vocab = {token: index for index, token in enumerate(["<pad>", "</s>", "<unk>", *"0123456789+= "])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **roles)


def smollm2() -> PreTrainedTokenizerFast:
    """As SmolLM2: single digits, a chat template, pad = end."""
    backend = _byte_level(pre_tokenizers.Digits(individual_digits=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|start|>",
        eos_token="<|end|>",
        pad_token="<|end|>",
        unk_token="<|text|>",
        chat_template=TEMPLATE,
        model_max_length=2048,
        padding_side="left",
        truncation_side="left",
        clean_up_tokenization_spaces=True,
    )


def llama3() -> PreTrainedTokenizerFast:
    """As Llama 3: up to three digits together, a token before every text, one of two that may end it, no pad."""
    backend = _byte_level(pre_tokenizers.Split(Regex(_GROUPS), "isolated"), use_regex=False)
    begin = processors.TemplateProcessing(
        single="<|text|> $A", pair="<|text|> $A <|text|> $B", special_tokens=[("<|text|>", 0)]
    )
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), begin])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|text|>",
        eos_token="<|end|>",
        chat_template=TEMPLATE,
        model_max_length=4096,
        extra_special_tokens=["<|other|>"],
    )


MAKES = {"smollm2": smollm2, "llama3": llama3}


def save(name: str, folder: Path) -> Path:
    """Save the tokenizer of this name as it would be published."""
    MAKES[name]().save_pretrained(folder)
    return folder
