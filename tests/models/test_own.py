"""The Regression Transformer: its encodings by hand, its trained and frozen parts, its checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import AddedToken
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from ntl.config.model import RTConfig, XValConfig
from ntl.models.rt import RTForConditionalGeneration, build, encode_numbers
from ntl.models.xval import XValBlock, XValForMaskedNumber, XValModelConfig
from ntl.models.xval import build as build_xval
from ntl.numbers.text import place_tokens

TINY = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 1, "num_heads": 2}
IDS = torch.tensor([[3, 4, 1]])


def _config(**changes: Any) -> RTConfig:
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
    return build(_config(), tokenizer=rt).eval()


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


def test_rt_is_saved_and_loaded_by_every_way(model: Any, rt: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == model.num_parameters()
    names = [*stored, *(name for name, _ in model.named_parameters())]
    assert not any("encodings" in name or "index" in name for name in names)
    ids = torch.tensor([[250, 30, 5, 1]])
    for again in (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path),
        build(_config(pretrained=True, path=str(tmp_path)), tokenizer=rt),
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
    model: Any = build(_config(pretrained=True, path=str(tmp_path / "t5"), log_scale=False), tokenizer=rt)
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


# xVal's encoder, compared with torch's own layers, its heads, padding and saved weights.


SHAPE: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 10,
}


def _xval(**changes: Any) -> XValForMaskedNumber:
    torch.manual_seed(3)
    return XValForMaskedNumber(XValModelConfig(**{**SHAPE, "dropout": 0.0, **changes}))


def _batch(lengths: tuple[int, ...] = (7, 4, 2), dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    size, width = len(lengths), max(lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return {
        "input_ids": torch.randint(20, (size, width)) * mask,
        "attention_mask": mask.long(),
        "number_values": torch.where(mask, torch.randn(size, width, dtype=dtype), 1.0),
        "number_positions": torch.tensor(lengths) - 2,
    }


def test_a_block_is_torch_s_pre_norm_layer() -> None:
    block = XValBlock(XValModelConfig(**SHAPE, dropout=0.0)).double()
    layer = nn.TransformerEncoderLayer(
        16, 4, 24, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    names = {
        "norm1": "attention_norm",
        "self_attn.in_proj_": "attention_in.",
        "self_attn.out_proj": "attention_out",
        "norm2": "feed_norm",
        "linear1": "feed_in",
        "linear2": "feed_out",
    }
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    state = {}
    for name, tensor in layer.state_dict().items():
        theirs, ours = next(pair for pair in names.items() if name.startswith(pair[0]))
        state[name.replace(theirs, ours)] = tensor
    block.load_state_dict(state)
    hidden, mask = torch.randn(3, 7, 16, dtype=torch.float64), _batch()["attention_mask"].bool()
    expected = layer(hidden, src_key_padding_mask=~mask)
    actual = block(hidden, mask[:, None, None, :])
    torch.testing.assert_close(actual[mask], expected[mask], rtol=0, atol=1e-12)


def test_the_input_is_token_times_value_plus_position() -> None:
    model = _xval(num_hidden_layers=0)
    ids, values = torch.tensor([[4, 7, 7]]), torch.tensor([[1.0, -2.5, 0.0]])
    tokens, positions = model.token_embedding.weight, model.position_embedding.weight
    expected = torch.stack([tokens[4] + positions[0], -2.5 * tokens[7] + positions[1], positions[2]])
    torch.testing.assert_close(model.encode(ids, values)[0], expected)


def _difference_of_padding(model: Any, dtype: torch.dtype) -> float:
    batch = _batch(dtype=dtype)
    together, difference = model(**batch), 0.0
    for row, length in enumerate((7, 4, 2)):
        alone = {name: tensor[row : row + 1] for name, tensor in batch.items()}
        alone |= {name: alone[name][:, :length] for name in ("input_ids", "attention_mask", "number_values")}
        output = model(**alone)
        difference = max(difference, float((output.numbers - together.numbers[row]).abs().max()))
        difference = max(difference, float((output.logits - together.logits[row]).abs().max()))
    return difference


@torch.no_grad()
def test_padding_changes_nothing_unless_the_paper_s_fault_is_asked_for() -> None:
    assert _difference_of_padding(_xval().double().eval(), torch.float64) < 1e-13
    assert _difference_of_padding(_xval().eval(), torch.float32) < 1e-6
    paper = _xval(paper_compat=True).double().eval()
    assert _difference_of_padding(paper, torch.float64) > 1e-3
    batch = _batch()
    everything = batch | {"attention_mask": torch.ones_like(batch["attention_mask"])}
    torch.testing.assert_close(paper(**batch).numbers, _xval().double().eval()(**everything).numbers)


def test_weights_come_back_from_a_folder(tmp_path: Path, tokenizer) -> None:
    model = _xval(paper_compat=True)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    assert isinstance(AutoConfig.from_pretrained(tmp_path), XValModelConfig)
    config = XValConfig(name="xval_tiny", pretrained=True, path=str(tmp_path), dropout=0.3, paper_compat=False)
    built: Any = build_xval(config, tokenizer=tokenizer)
    for loaded in (AutoModel.from_pretrained(tmp_path), built):
        assert isinstance(loaded, XValForMaskedNumber)
        assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert (built.config.paper_compat, built.blocks[0].dropout.p, built.config.num_hidden_layers) == (False, 0.3, 2)


def test_the_vocabulary_is_at_least_the_tokenizer_s(tokenizer, tmp_path: Path) -> None:
    shape = {"d_model": 16, "d_ff": 8, "num_layers": 1, "num_heads": 2, "max_positions": 8}
    for configured, rows in ((0, len(tokenizer)), (40, 40)):
        model = build_xval(XValConfig(name="xval_tiny", vocab_size=configured, **shape), tokenizer=tokenizer)
        assert model.token_embedding.weight.shape == (rows, 16)
        assert model.token_head[-1].weight.shape == (rows, 8)
        assert (model.config.pad_token_id, model.config.eos_token_id) == (0, 1)
    _xval(vocab_size=4).save_pretrained(tmp_path)
    grown = build_xval(XValConfig(name="xval", pretrained=True, path=str(tmp_path)), tokenizer=tokenizer)
    assert grown.get_input_embeddings().weight.shape[0] == grown.token_head[-1].weight.shape[0] == len(tokenizer)
