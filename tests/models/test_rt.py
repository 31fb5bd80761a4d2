"""The Regression Transformer: its encodings by hand, its trained and frozen parts, its checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import AddedToken
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from ntl.config.model import RTConfig
from ntl.models.rt import RTForConditionalGeneration, build, encode_numbers
from ntl.numbers.text import place_tokens

TINY = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 1, "num_heads": 2}
IDS = torch.tensor([[3, 4, 1]])


def _tiny(**changes: Any) -> RTConfig:
    return RTConfig(name="rt_tiny", **{"pretrained": False, "dropout": 0.0, **TINY, **changes})


def _with_places(tokenizer: PreTrainedTokenizerFast, *tokens: str) -> PreTrainedTokenizerFast:
    vocab = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    vocab.add_tokens([AddedToken(token, normalized=False) for token in tokens])
    return vocab


@pytest.fixture(scope="module")
def rt(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """A tokenizer with 16 text tokens, followed by the 320 number tokens."""
    return _with_places(tokenizer, *place_tokens())


@pytest.fixture
def model(rt: PreTrainedTokenizerFast) -> Any:
    torch.manual_seed(0)
    return build(_tiny(), tokenizer=rt).eval()


def _logits(model: Any, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids, decoder_input_ids=ids).logits


def _encoding(model: Any, token_id: int) -> torch.Tensor:
    embedding = model.get_input_embeddings()
    with torch.no_grad():
        return embedding(torch.tensor(token_id)) - embedding.weight[token_id]


def test_encodings_by_hand() -> None:
    linear = {"log_scale": False, "max_value": 1.0}
    for place, width, settings, expected in (
        ((8, -1), 6, linear, [8, -8, 2.6667, -2.6667, 1.6, -1.6]),
        ((5, 2), 6, {}, [2.848795, -2.848795, 2.347176, -2.347176, 2.114905, -2.114905]),
        ((9, 19), 4, {}, [21.0552, -21.0552, 20.5517, -20.5517]),
        # For small x, log10(1 + x) is x / ln 10.
        ((3, -12), 2, {}, [3e-12 * 10 / 21.82187, -3e-12 * 10 / 21.82187]),
        ((0, 7), 3, {}, [0, 0, 0]),
    ):
        found = encode_numbers([place], width, **settings)[0]
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), rtol=2e-5, atol=0)


def test_an_embedding_is_learned_part_plus_encoding(model: Any, rt: PreTrainedTokenizerFast) -> None:
    for token, expected in (("_5_2_", encode_numbers([(5, 2)], 16)[0]), ("_0_5_", torch.zeros(16))):
        torch.testing.assert_close(_encoding(model, rt.get_vocab()[token]), expected, rtol=0, atol=1e-6)
    assert all(not _encoding(model, token_id).any() for token_id in range(16))
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert model.encoder.embed_tokens is model.decoder.embed_tokens is model.get_input_embeddings()


def test_a_t5_with_the_sums_as_its_rows_and_the_learned_part_as_its_head_is_the_same(model: Any) -> None:
    shape = {name: getattr(model.config, name) for name in ("vocab_size", *TINY)}
    reference = transformers.T5ForConditionalGeneration(transformers.T5Config(**shape, dropout_rate=0.0)).eval()
    state = model.state_dict()
    embedding = model.get_input_embeddings()
    with torch.no_grad():
        rows = embedding(torch.arange(embedding.num_embeddings))
    reference.lm_head.weight = torch.nn.Parameter(state["lm_head.weight"].clone())
    for stack in (reference.encoder, reference.decoder):
        stack.embed_tokens = torch.nn.Embedding.from_pretrained(rows)
    own = {name: tensor for name, tensor in state.items() if "embed_tokens" not in name and "shared" not in name}
    assert reference.load_state_dict(own, strict=False).unexpected_keys == []
    ids = torch.tensor([[250, 30, 5, 1], [16, 335, 7, 1]])
    torch.testing.assert_close(_logits(model, ids), _logits(reference, ids), rtol=0, atol=0)


def test_saved_and_loaded_by_every_way(model: Any, rt: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == model.num_parameters()
    names = [*stored, *(name for name, _ in model.named_parameters())]
    assert not any("encodings" in name or "index" in name for name in names)
    ids = torch.tensor([[250, 30, 5, 1]])
    for again in (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path),
        build(_tiny(pretrained=True, path=str(tmp_path)), tokenizer=rt),
    ):
        assert type(again) is RTForConditionalGeneration
        torch.testing.assert_close(_logits(again.eval(), ids), _logits(model, ids), rtol=0, atol=0)
        assert again.lm_head.weight is again.get_input_embeddings().weight
        assert again.config.decoder_start_token_id == rt.pad_token_id
    half: Any = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    embedding = half.get_input_embeddings()
    assert embedding(IDS).dtype == embedding.encodings.dtype == torch.bfloat16
    torch.testing.assert_close(_logits(half.eval(), ids).float(), _logits(model, ids), rtol=0.1, atol=0.3)
    half.to("meta")
    assert embedding.encodings.device.type == embedding.index.device.type == "meta"


def test_every_row_of_a_t5_stays(rt: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """T5 has more rows than its tokenizer has tokens: 32,128 for 32,100."""
    torch.manual_seed(1)
    t5: Any = transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=20, dropout_rate=0.1, decoder_start_token_id=0, **TINY)
    )
    t5.lm_head.weight = torch.nn.Parameter(torch.randn(20, 16))  # that of version 1.1 is not tied
    t5.save_pretrained(tmp_path / "t5")
    model: Any = build(_tiny(pretrained=True, path=str(tmp_path / "t5"), log_scale=False), tokenizer=rt)
    embedding = model.get_input_embeddings()
    assert embedding.weight.shape == (336, 16)
    assert embedding.weight[:20].equal(t5.shared.weight)
    assert model.lm_head.weight[:20].equal(t5.lm_head.weight)
    assert 0.8 < embedding.weight[20:].std() < 1.2  # as T5 makes rows
    state = model.state_dict()
    assert all(state[name].equal(tensor) for name, tensor in t5.state_dict().items() if "block" in name)
    expected = encode_numbers([(9, 19)], 16, log_scale=False)[0]
    torch.testing.assert_close(_encoding(model, 335), expected, rtol=1e-6, atol=0)
    model.save_pretrained(tmp_path / "rt")
    again: Any = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "rt")
    assert (type(again), again.config.model_type) == (RTForConditionalGeneration, "ntl_rt")
    torch.testing.assert_close(_logits(again.eval()), _logits(model.eval()), rtol=0, atol=0)
