"""Worker processes of these tests find ``fake_runs`` beside this file."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import fake_runs
import pytest
from commands import table_text
from slurm_cluster import cluster, missing_programs

from ntl.launch.plan import Run

HERE = str(Path(__file__).parent)
TARGET = "fake_runs.run"


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", HERE)
    return TARGET


@pytest.fixture
def fake_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launcher of Hydra runs in this process is a fake, too."""
    monkeypatch.setattr("ntl.training.run", fake_runs.run, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """A planned run that was never composed."""

    def make(name: str = "a", max_steps: int = 100, kind: str = "k") -> Run:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Run(name, f"label {name}", ("seed=1",), folder, (kind,), max_steps)

    return make


@pytest.fixture
def make_table(tmp_path: Path) -> Callable[..., Path]:
    """The file of a table of two rows, CE and NTL-WAS on noisy_numbers."""

    def make(name: str, *seeds: int, overrides: Sequence[str] = ("model=gpt2_tiny", "tokenizer=digit")) -> Path:
        path = tmp_path / "tables" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(table_text(seeds, overrides))
        return path

    return make


@pytest.fixture
def small_table(make_table: Callable[..., Path]) -> Path:
    return make_table("small", 1, 2)


@pytest.fixture(scope="session")
def slurm() -> Iterator[Path]:
    """A Slurm of one node, started for these tests; with NTL_REQUIRE_SLURM=1 they fail where they cannot have it."""

    def without(reason: str) -> None:
        if os.environ.get("NTL_REQUIRE_SLURM") == "1":
            pytest.fail(f"NTL_REQUIRE_SLURM=1, but {reason}")
        pytest.skip(reason)

    if lost := missing_programs():
        without(f"{', '.join(lost)} not found: apt install slurm-wlm munge")
    # A short path: that of a socket has at most 107 characters.
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ntl-slurm-"))
        try:
            config = stack.enter_context(cluster(Path(folder)))
        except RuntimeError as error:
            without(str(error))
        yield config
