"""A loss is put into what the other groups give, and only where neither sets values of the other."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from ntl.config.groups import of_groups

LOSSES = {"ce": {"name": "ce", "weight": 0.0}, "was": {"name": "was", "weight": 0.3}, "wide": {"name": "wide"}}


def compose(words: Sequence[str]) -> DictConfig:
    """As Hydra would: scale=heavy sets the weight of any loss, and loss=wide the rows of the data."""
    chosen = {"loss": "was", "scale": "tiny", **dict(word.split("=") for word in words)}
    composed.append(tuple(words))
    config = {"loss": {**LOSSES[chosen["loss"]]}, "scale": {"name": chosen["scale"]}, "rows": 1}
    if chosen["scale"] == "heavy":
        config["loss"]["weight"] = 5.0
    if chosen["loss"] == "wide":
        config["rows"] = 2
    return OmegaConf.create(config)


composed: list[tuple[str, ...]] = []


@pytest.mark.parametrize("scale", ["tiny", "small", "heavy"])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_what_is_composed(tmp_path: Path, loss: str, scale: str) -> None:
    words = [f"scale={scale}", f"loss={loss}"]
    assert of_groups(compose, words, tmp_path) == compose(words)


def test_each_scale_and_each_loss_is_composed_once(tmp_path: Path) -> None:
    composed.clear()
    for scale in ("tiny", "small"):
        for loss in ("ce", "was"):
            of_groups(compose, [f"scale={scale}", f"loss={loss}"], tmp_path)
    assert sorted(composed) == [("loss=ce",), ("loss=was",), ("scale=small",), ("scale=tiny",)]
