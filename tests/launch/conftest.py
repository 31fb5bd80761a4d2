"""Worker processes of these tests find ``fake_runs`` beside this file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.launch.plan import Run

HERE = str(Path(__file__).parent)
TARGET = "fake_runs.run"


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", HERE)
    return TARGET


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """A planned run that was never composed."""

    def make(name: str = "a", max_steps: int = 100, kind: str = "k") -> Run:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Run(name, f"label {name}", ("seed=1",), folder, (kind,), max_steps)

    return make
