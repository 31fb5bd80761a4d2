"""Folders of tiny models as transformers writes them: one of each architecture, with a tokenizer of single digits."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

LLAMA = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
}
BART = {
    **{f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in {
        "layers": 1, "attention_heads": 2, "ffn_dim": 32,
    }.items()},
    "d_model": 16,
    "max_position_embeddings": 128,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}  # fmt: skip
# model_type -> the settings of its config class.
SHAPES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen2": LLAMA,
    "gpt_neox": {name: size for name, size in LLAMA.items() if name != "num_key_value_heads"},
    "mamba": {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 2},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0},
    "bart": BART,
}
TEXT = ["What is 12 times 345?", "67 + 890 = 957", "Numbers from 0 to 9."]


def save_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Byte-level pieces in which every digit is one token; <pad> 0, <|endoftext|> 1."""
    tokenizer = Tokenizer(models.BPE())
    parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=alphabet, special_tokens=["<pad>", "<|endoftext|>"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<|endoftext|>")
    made.save_pretrained(folder)
    return made


def save_folder(folder: Path, kind: str, **settings: Any) -> Path:
    """A folder with random weights of this ``model_type`` and a tokenizer."""
    tokenizer = save_tokenizer(folder)
    roles = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    config = AutoConfig.for_model(kind, **{"vocab_size": len(tokenizer), **roles, **SHAPES[kind], **settings})
    auto_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    transformers.set_seed(0)
    auto_class.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder
