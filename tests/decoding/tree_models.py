"""Tiny random models over twelve tokens, of which "12", "▁1" and "▁12" let one number have several spellings."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    FalconConfig,
    FalconForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from ntl.config import DecodingConfig
from ntl.decoding import decode
from ntl.decoding.batches import Answer

NAMES = ["<pad>", "</s>", "x", "▁x", "▁", "-", ".", "1", "2", "12", "▁1", "▁12"]
PAD, END, V = 0, 1, len(NAMES)


class TreeTokenizer:
    """As a sentencepiece tokenizer decodes: the first word-start mark is no space."""

    pad_token_id, eos_token_id = PAD, END

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self.names = names
        self.all_special_ids = [PAD, END]

    def get_vocab(self) -> dict[str, int]:
        return {name: token_id for token_id, name in enumerate(self.names)}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, **_: bool) -> str:
        shown = [self.names[token_id] for token_id in ids if not skip_special_tokens or token_id > END]
        text = "".join(shown).replace("▁", " ")
        return text.removeprefix(" ")

    def batch_decode(self, rows: Sequence[Sequence[int]], **_: bool) -> list[str]:
        return [self.decode(row) for row in rows]


def decoder(seed: int = 1, rows: int = V, spread: float = 0.4) -> Any:
    torch.manual_seed(seed)
    shape = {"vocab_size": rows, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    shape |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(**shape, initializer_range=spread, pad_token_id=PAD, eos_token_id=END, bos_token_id=END)
    return GPT2LMHeadModel(config).double().eval()


def encoder_decoder(seed: int = 2, rows: int = V, layers: int = 2, spread: float = 1.0) -> Any:
    torch.manual_seed(seed)
    shape = {"vocab_size": rows, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": layers, "num_heads": 2}
    tokens = {"decoder_start_token_id": PAD, "pad_token_id": PAD, "eos_token_id": END, "dropout_rate": 0.0}
    return T5ForConditionalGeneration(T5Config(**shape, **tokens, initializer_factor=spread)).double().eval()


def grouped_heads(seed: int = 3) -> Any:
    """A decoder of rotary positions, with two heads of queries to one of keys."""
    torch.manual_seed(seed)
    shape = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    tokens = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": END}
    return LlamaForCausalLM(LlamaConfig(**shape, **heads, **tokens, initializer_range=0.4)).double().eval()


def alibi(seed: int = 4) -> Any:
    """A decoder that takes positions, and computes its own from a mask of two dimensions."""
    torch.manual_seed(seed)
    shape = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "alibi": True}
    tokens = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": END}
    return FalconForCausalLM(FalconConfig(**shape, **tokens, initializer_range=0.4)).double().eval()


def fixed_mask(seed: int = 5) -> Any:
    """A decoder whose own mask has 32 positions, and windows of three in its second layer."""
    torch.manual_seed(seed)
    shape = {
        "vocab_size": V,
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "attention_types": [[["global", "local"], 1]],
    }
    tokens = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": END}
    config = GPTNeoConfig(**shape, **tokens, window_size=3, max_position_embeddings=32, initializer_range=0.4)
    return GPTNeoForCausalLM(config).double().eval()


MODELS = {
    **{"decoder": decoder, "grouped_heads": grouped_heads, "alibi": alibi, "fixed_mask": fixed_mask},
    "encoder_decoder": encoder_decoder,
}


def prompts(model: Any, questions: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """Padded on the left for a decoder, on the right for an encoder."""
    width = max(map(len, questions))
    rows = []
    for question in questions:
        shown, padding = [(token, 1) for token in question], [(PAD, 0)] * (width - len(question))
        rows.append([*shown, *padding] if model.config.is_encoder_decoder else [*padding, *shown])
    ids, mask = torch.tensor(rows).unbind(-1)
    return {"input_ids": ids, "attention_mask": mask}


def answers(model: Any, config: DecodingConfig, questions: Sequence[Sequence[int]], **settings: Any) -> list[Answer]:
    """What ``decode`` returns for these questions."""
    return decode(
        config,
        model=model,
        examples=[{"question_ids": question} for question in questions],
        collate=lambda batch: prompts(model, [example["question_ids"] for example in batch]),
        **{"tokenizer": TreeTokenizer(), "max_new_tokens": 4, **settings},
    )


def answer_logits(model: Any, question: Sequence[int], answers: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits (N, T + 1, V) before and behind each of the T tokens of N answers, by teacher forcing, without a cache."""
    questions, tokens = torch.tensor([question] * len(answers)), torch.tensor(answers, dtype=torch.int64)
    if model.config.is_encoder_decoder:
        starts = torch.nn.functional.pad(tokens, (1, 0), value=PAD)
        return model(input_ids=questions, decoder_input_ids=starts, use_cache=False).logits
    return model(torch.cat([questions, tokens], 1), use_cache=False).logits[:, len(question) - 1 :]


def most_likely(logits: torch.Tensor) -> int:
    return int(logits.argmax())


@torch.no_grad()
def step_by_step(model: Any, question: list[int], length: int, choose: Any = most_likely) -> list[int]:
    """The answer, each token ``choose(logits)`` of a pass over all tokens before it, without a cache."""
    new: list[int] = []
    while len(new) < length and END not in new:
        new.append(choose(answer_logits(model, question, [new])[0, -1]))
    return new
