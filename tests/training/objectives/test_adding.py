"""An objective that is a module and a YAML, those of docs/extending.md, trains."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ntl.config import composition, run_id
from ntl.config.stored import read_config
from ntl.results import read_record
from ntl.training import objectives, run

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``numbers_only.py`` and ``numbers_only.yaml`` of the recipe, added to the tree."""
    recipe = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^`([\w./]+/numbers_only\.\w+)`:\n\n```\w+\n(.*?)^```$", recipe, re.M | re.S))
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "numbers_only.py").write_text(found["src/ntl/training/objectives/numbers_only.py"])
    (tmp_path / "config/objective/numbers_only.yaml").write_text(found["config/objective/numbers_only.yaml"])
    monkeypatch.setattr(composition, "CONFIG_DIR", tmp_path / "config")
    monkeypatch.setattr(objectives, "__path__", [*objectives.__path__, str(tmp_path)])
    yield
    sys.modules.pop("ntl.training.objectives.numbers_only", None)


@pytest.mark.usefixtures("added")
def test_a_module_and_a_yaml_are_enough(small) -> None:
    config = small("objective=numbers_only", "trainer.max_steps=2", "trainer.logging_steps=1")
    record = run(config)
    assert len(read_record(record).curves["loss"]) == 2
    restored = read_config(record.parent)
    assert restored.objective == config.objective
    assert run_id(restored) == run_id(config) == record.parent.name
