"""xVal's encoder, compared with torch's own layers, its heads, padding and saved weights."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel

from ntl.config.model import XValConfig
from ntl.models.xval import XValBlock, XValForMaskedNumber, XValModelConfig, build

SHAPE: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 10,
}


def _model(**changes: Any) -> XValForMaskedNumber:
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
    model = _model(num_hidden_layers=0)
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
    assert _difference_of_padding(_model().double().eval(), torch.float64) < 1e-13
    assert _difference_of_padding(_model().eval(), torch.float32) < 1e-6
    paper = _model(paper_compat=True).double().eval()
    assert _difference_of_padding(paper, torch.float64) > 1e-3
    batch = _batch()
    everything = batch | {"attention_mask": torch.ones_like(batch["attention_mask"])}
    torch.testing.assert_close(paper(**batch).numbers, _model().double().eval()(**everything).numbers)


def test_weights_come_back_from_a_folder(tmp_path: Path, tokenizer) -> None:
    model = _model(paper_compat=True)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    assert isinstance(AutoConfig.from_pretrained(tmp_path), XValModelConfig)
    config = XValConfig(name="xval_tiny", pretrained=True, path=str(tmp_path), dropout=0.3, paper_compat=False)
    built: Any = build(config, tokenizer=tokenizer)
    for loaded in (AutoModel.from_pretrained(tmp_path), built):
        assert isinstance(loaded, XValForMaskedNumber)
        assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert (built.config.paper_compat, built.blocks[0].dropout.p, built.config.num_hidden_layers) == (False, 0.3, 2)


def test_the_vocabulary_is_at_least_the_tokenizer_s(tokenizer, tmp_path: Path) -> None:
    shape = {"d_model": 16, "d_ff": 8, "num_layers": 1, "num_heads": 2, "max_positions": 8}
    for configured, rows in ((0, len(tokenizer)), (40, 40)):
        model = build(XValConfig(name="xval_tiny", vocab_size=configured, **shape), tokenizer=tokenizer)
        assert model.token_embedding.weight.shape == (rows, 16)
        assert model.token_head[-1].weight.shape == (rows, 8)
        assert (model.config.pad_token_id, model.config.eos_token_id) == (0, 1)
    _model(vocab_size=4).save_pretrained(tmp_path)
    grown = build(XValConfig(name="xval", pretrained=True, path=str(tmp_path)), tokenizer=tokenizer)
    assert grown.get_input_embeddings().weight.shape[0] == grown.token_head[-1].weight.shape[0] == len(tokenizer)
