"""Tiny random models over twelve tokens, of which "12", "▁1" and "▁12" let one number have several spellings."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

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

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        shown = [self.names[token_id] for token_id in ids if not skip_special_tokens or token_id > END]
        text = "".join(shown).replace("▁", " ")
        return text.removeprefix(" ")

    def batch_decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [self.decode(row) for row in rows]


def decoder(seed: int = 1) -> Any:
    torch.manual_seed(seed)
    shape = {"vocab_size": V, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    config = GPT2Config(**shape, initializer_range=0.4, pad_token_id=PAD, eos_token_id=END, bos_token_id=END)
    return GPT2LMHeadModel(config).double().eval()


def encoder_decoder(seed: int = 2) -> Any:
    torch.manual_seed(seed)
    shape = {"vocab_size": V, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    tokens = {"decoder_start_token_id": PAD, "pad_token_id": PAD, "eos_token_id": END}
    return T5ForConditionalGeneration(T5Config(**shape, **tokens, initializer_factor=1.0)).double().eval()


MODELS = {"decoder": decoder, "encoder_decoder": encoder_decoder}


def prompts(model: Any, questions: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """Padded on the left for a decoder, on the right for an encoder."""
    width = max(map(len, questions))
    ids, mask = [], []
    for question in questions:
        padding = [PAD] * (width - len(question))
        on, off = [1] * len(question), [0] * len(padding)
        right = model.config.is_encoder_decoder
        ids.append([*question, *padding] if right else [*padding, *question])
        mask.append([*on, *off] if right else [*off, *on])
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def answer_logits(model: Any, question: Sequence[int], answers: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits (N, T + 1, V) before and behind each of the T tokens of N answers, by teacher forcing, without a cache."""
    questions, tokens = torch.tensor([question] * len(answers)), torch.tensor(answers, dtype=torch.int64)
    if model.config.is_encoder_decoder:
        starts = torch.nn.functional.pad(tokens, (1, 0), value=PAD)
        return model(input_ids=questions, decoder_input_ids=starts, use_cache=False).logits
    return model(torch.cat([questions, tokens], 1), use_cache=False).logits[:, len(question) - 1 :]


@torch.no_grad()
def teacher_forced(model: Any, question: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
    """Log probabilities (T + 1, V) of one answer."""
    return answer_logits(model, question, [answer])[0].log_softmax(-1)
