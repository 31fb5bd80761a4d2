"""Tiny random models over twelve tokens, of which "12", "▁1" and "▁12" let one number have several spellings."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

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


# Name -> the seed of its weights, its architecture, and settings beside the vocabulary.
SHAPES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "decoder": (1, "gpt2", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32} | dict.fromkeys(
        ("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)),
    # Rotary positions, and two heads of queries to one of keys.
    "grouped_heads": (3, "llama", {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
                                   "num_attention_heads": 4, "num_key_value_heads": 2}),
    # Takes positions, and computes its own from a mask of two dimensions.
    "alibi": (4, "falcon", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "alibi": True}),
    # Its own mask has 32 positions, and windows of three in its second layer.
    "fixed_mask": (5, "gpt_neo", {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "window_size": 3,
                                  "max_position_embeddings": 32, "attention_types": [[["global", "local"], 1]]}),
    # Its cache forgets what is behind its window.
    "windows": (0, "mistral", {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
                               "num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 6}),
    "encoder_decoder": (2, "t5", {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2,
                                  "decoder_start_token_id": PAD, "dropout_rate": 0.0}),
}  # fmt: skip
MODELS = [name for name in SHAPES if name != "windows"]
# Of every other architecture of transformers.
USUAL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8}
USUAL |= {"num_key_value_heads": 2, "max_position_embeddings": 64, "word_embed_proj_dim": 16, "ffn_dim": 16}


def tiny(name: str, seed: int | None = None, spread: float | None = None, **changes: Any) -> Any:
    """A model in float64, of `SHAPES` or of an architecture; ``spread`` scales weights, ``changes`` change settings."""
    own, architecture, settings = SHAPES.get(name, (3, name, USUAL))
    tokens = {"pad_token_id": PAD, "eos_token_id": END, "vocab_size": V}
    tokens |= {} if name == "encoder_decoder" else {"bos_token_id": END}
    wide = {"initializer_factor": spread or 1.0} if name == "encoder_decoder" else {"initializer_range": spread or 0.4}
    config = AutoConfig.for_model(architecture, **{**tokens, **wide, **settings, **changes})
    torch.manual_seed(own if seed is None else seed)
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    return auto.from_config(config).double().eval()


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
