"""Given weights: the name and the family of ``model=hf``, the scale that they bring, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError, compose, run_id
from ntl.config.folders import CONFIG_DIR, choices
from ntl.config.model import other_shape

DATA = "dataset=noisy_numbers"


def save(folder: Path, shape: tuple[int, ...] = (300, 50), **config: Any) -> Path:
    """A folder with the files of a model: a header of one tensor, and a tokenizer that is not read."""
    folder.mkdir(exist_ok=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}, "__metadata__": {}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return save(tmp_path / "llama", model_type="llama", architectures=["LlamaForCausalLM"])


@pytest.fixture
def hf() -> Callable[..., Any]:
    return lambda path, *more: compose([DATA, "model=hf", f"model.path={path}", *more])


def test_a_run_is_called_after_its_weights(hf, llama: Path, tmp_path: Path) -> None:
    config = hf(llama)
    assert config.model.name.startswith("llama_15k_")
    assert len(config.model.name) == len("llama_15k_1a2b3c4d")
    assert config.model.family == "decoder"
    other = save(tmp_path / "b", (135_000_000, 1), model_type="t5", is_encoder_decoder=True)
    assert (hf(other).model.name[:8], hf(other).model.family) == ("t5_135m_", "t5")
    assert hf(save(tmp_path / "c", (7,), model_type="qwen3")).model.name.startswith("qwen3_7_")


def test_own_dropout_unless_another_is_typed(hf, llama: Path) -> None:
    assert hf(llama).model.dropout is None
    # 0.1, the default of random weights, is another run than the weights' own.
    ids = {run_id(hf(llama, *more)) for more in ((), ("model.dropout=0.1",), ("model.dropout=0",))}
    assert len(ids) == 3
    assert compose(["model=t5_base", "scale=paper"]).model.dropout is None
    assert compose(["model=t5_base", "scale=paper", "model.pretrained=false"]).model.dropout == 0.1


OTHERS = ("_tiny", "_mini", "_regression", "xval", "hf")


def test_learned_weights_bring_their_scale_and_it_can_be_typed() -> None:
    for name in choices("model"):
        if not name.endswith(OTHERS):
            assert "override /scale: finetune" in (CONFIG_DIR / "model" / f"{name}.yaml").read_text(), name
    config = compose(["model=qwen3_5_0_8b"])
    assert (config.scale.name, config.trainer.lr) == ("finetune", 1e-4)
    assert compose(["model=qwen3_5_0_8b", "scale=paper"]).scale.name == "paper"
    with pytest.raises(UserError, match=r"model\.pretrained=false: scale=finetune .* scale=tiny.* scale=paper"):
        compose(["model=qwen3_5_0_8b", "model.pretrained=false", "model.dropout=0"])


REFUSED = {
    "model=hf": "model=hf: give the weights by model.path=FOLDER",
    "model=hf model.path={llama} model.pretrained=false": "it has the shapes of the weights in model.path alone",
    "model=gpt2_tiny model.path={llama}": "use model=hf model.path={llama}, which takes these as they are",
    "model=llama_tiny model.hub_id=owner/name": "use model=hf model.path=owner/name",
    "model=gpt2_small model.path={llama}": "these weights are of a llama, and this model is a gpt2; use model=hf",
    "model=hf model.path={bert}": "BertForMaskedLM reads text and writes none; give the weights of a decoder",
    "model=hf model.path={llama} model.file=a.gguf": "no such file in this folder; its GGUF files: none",
    "model=hf model.path=owner/name model.file=a.gguf": "a GGUF file is read from a folder",
    "model=hf model.path={t5} dataset=text dataset.path=a.txt": "plain text is learned from left to right",
    "model=rt_tiny model.path={t5} model.pretrained=true": "scale=tiny is meant for random weights; add scale=finetune",
    "model=hf model.path=owner/name": "model owner/name: not in the local cache, and ",
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_one_line_names_the_right_choice(overrides: str, llama: Path, tmp_path: Path) -> None:
    t5 = save(tmp_path / "t5", model_type="t5", is_encoder_decoder=True)
    bert = save(tmp_path / "bert", model_type="bert", architectures=["BertForMaskedLM"])
    places = {"llama": llama, "t5": t5, "bert": bert}
    with pytest.raises(UserError) as caught:
        compose([DATA, *overrides.format(**places).split()])
    assert REFUSED[overrides].format(**places) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_copy_of_a_published_checkpoint(llama: Path, tmp_path: Path) -> None:
    folder = save(tmp_path / "granite", model_type="granite")
    model = compose([DATA, "model=granite_3_2_2b", f"model.path={folder}"]).model
    assert (model.name, other_shape(model)) == ("granite_3_2_2b", "")
    small = save(tmp_path / "small", model_type="granite", hidden_size=16)
    line = other_shape(compose([DATA, "model=granite_3_2_2b", f"model.path={small}"]).model)
    assert line.endswith("weights of another shape (hidden_size is 16, not 2048); model=hf calls them what they are.")
