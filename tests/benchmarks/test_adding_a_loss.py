"""A loss that is a function and a YAML, those of docs/extending.md, is reached by its name everywhere."""

import csv
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ntl import NumberTokenLoss, losses
from ntl.benchmarks.losses import Setting, benchmark, token_losses
from ntl.config import compose, folders
from ntl.losses import ce_ntl, registry
from ntl.numbers import NumberVocabulary
from ntl.objectives.next_token import loss_of

ROOT = Path(__file__).resolve().parents[2]
CURVES = runpy.run_path(str(ROOT / "scripts" / "loss_curves.py"))
DIGITS = NumberVocabulary.from_values([float("nan"), *range(10)])


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``relative.py`` and ``ntl_relative.yaml`` of the recipe, added to the tree."""
    registry.kinds()  # registers all existing losses first
    recipes = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", recipes, re.M | re.S))
    shutil.copytree(folders.CONFIG_DIR, tmp_path / "config")
    (tmp_path / "relative.py").write_text(found["src/ntl/losses/relative.py"])
    (tmp_path / "config" / "loss" / "ntl_relative.yaml").write_text(found["config/loss/ntl_relative.yaml"])
    monkeypatch.setattr(folders, "CONFIG_DIR", tmp_path / "config")
    monkeypatch.setattr(losses, "__path__", [*losses.__path__, str(tmp_path)])
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    yield
    sys.modules.pop("ntl.losses.relative", None)
    if hasattr(losses, "relative"):
        del losses.relative


def by_hand(logits: torch.Tensor, label: int) -> float:
    q = logits[1:].softmax(-1).tolist()
    return sum(mass * abs(value - label) / (label + 1) for value, mass in enumerate(q))


@pytest.mark.usefixtures("added")
def test_a_function_and_a_yaml_are_enough(tmp_path: Path) -> None:
    logits = torch.linspace(-1, 1, 11, dtype=torch.float64).sin()
    expected = by_hand(logits, 6)
    labels = torch.tensor(7)

    joint = ce_ntl(logits, labels, DIGITS, kind="relative")
    assert float(joint.number.sum) == pytest.approx(expected)
    module = NumberTokenLoss(DIGITS, shift=False, kind="gce+relative", sigma=1.5)
    assert float(module.parts(logits, labels).number.sum) == pytest.approx(expected)
    terms = loss_of(compose(["loss=relative"]).loss, DIGITS, {}).terms
    assert float(terms.number(logits, labels, DIGITS)) == pytest.approx(expected)
    assert terms.weight == 0.3

    assert "ntl_relative" in token_losses()
    rows = list(benchmark(Setting(batch=1, length=4, vocab=20), ["ntl_relative"], ["reference"], 2))
    assert {row["loss"] for row in rows} == {"ce", "ntl_relative"}
    CURVES["main"](["--losses", "ce", "ntl_relative", "--out", str(tmp_path)])
    with open(tmp_path / "losses_by_digit.csv", encoding="utf-8") as stream:
        curve = [float(row["ntl_relative"]) for row in csv.DictReader(stream)]
    drawn = torch.full((11,), 0.01, dtype=torch.float64)
    drawn[1 + 9] = 5.0
    assert curve[9] == pytest.approx(by_hand(drawn, CURVES["LABEL"]), rel=1e-5)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="kind 'was' is ntl_was already"):
        registry.register("was", losses.ntl_mse)
