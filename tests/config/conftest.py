"""Composing takes a tenth of a second, and many tests ask for the same config."""

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ntl.config import Config, compose
from ntl.config.composition import known_datasets


@pytest.fixture(scope="session")
def composed() -> Callable[..., Config]:
    """``composed("loss=ce", "seed=2")``: a copy of one's own of that config, composed once a session."""
    once = cache(lambda *overrides: compose(overrides))
    return lambda *overrides: deepcopy(once(*overrides))


# A choice that fits one head or one family only -> a model that has it.
MODELS = {
    ("tokenizer", "rt"): "rt_tiny",
    ("tokenizer", "xval"): "xval_tiny",
    ("loss", "squared_error"): "xval_tiny",
    ("objective", "regression"): "t5_tiny_regression",
    ("objective", "masked_number"): "xval_tiny",
    ("decoding", "regression"): "t5_tiny_regression",
    ("decoding", "masked_number"): "xval_tiny",
}
# Models that are what their weights are.
OF_WEIGHTS = ("hf", "hf_regression", "smollm2_135m_regression")


@pytest.fixture(scope="session")
def no_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a Llama that has no weight."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


@pytest.fixture
def words(no_weights: Path) -> Callable[[str, str], list[str]]:
    """The overrides of a choice of a group, with a model that it fits."""
    return lambda group, name: [
        *([f"model={MODELS[group, name]}"] if (group, name) in MODELS else []),
        f"{group}={name}",
        *([f"model.path={no_weights}"] if group == "model" and name in OF_WEIGHTS else []),
        *(["dataset=text", "dataset.path=owner/name"] if name == "likelihood" else []),
        *(["objective=mtp"] if name == "speculative" else []),
        *(["extra_decodings=all"] if name == "auto" and group == "decoding" else []),
        *(["loss=expected_error"] if (group, name) == ("objective", "expected_error") else []),
        *(["dataset.path=owner/name"] if group == "dataset" and name not in known_datasets() else []),
    ]


@pytest.fixture(scope="session")
def save() -> Callable[..., Path]:
    """``save(folder, shape, **config)``: the files of given weights of which only the config is read."""

    def write(folder: Path, shape: tuple[int, ...] = (300, 50), **config: Any) -> Path:
        folder.mkdir(exist_ok=True)
        header = json.dumps(
            {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}, "__metadata__": {}}
        ).encode()
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.json").write_text("{}")
        return folder

    return write
