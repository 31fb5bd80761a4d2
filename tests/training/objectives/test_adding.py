"""An objective that is a module and a YAML, those of docs/extending.md, trains."""

import sys
from collections.abc import Callable, Iterator

import pytest

from ntl.config import run_id
from ntl.config.composition import read_config
from ntl.results import read_record
from ntl.training import objectives
from ntl.training.train import train


@pytest.fixture
def added(add_recipe: Callable[..., None]) -> Iterator[None]:
    """``numbers_only.py`` and ``numbers_only.yaml`` of the recipe, added to the tree."""
    add_recipe(objectives, "src/ntl/training/objectives/numbers_only.py", "config/objective/numbers_only.yaml")
    yield
    sys.modules.pop("ntl.training.objectives.numbers_only", None)


@pytest.mark.usefixtures("added")
def test_a_module_and_a_yaml_are_enough(small) -> None:
    config = small("objective=numbers_only", "trainer.max_steps=2", "trainer.logging_steps=1")
    record = train(config)
    assert len(read_record(record).curves["loss"]) == 2
    restored = read_config(record.parent)
    assert restored.objective == config.objective
    assert run_id(restored) == run_id(config) == record.parent.name
