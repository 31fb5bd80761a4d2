"""``fake_runs.py`` beside this file stands for train.py in these tests."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from commands import table_text
from slurm_cluster import cluster, missing_programs

from ntl.launch.plan import Run, to_make

NOISY = ["dataset=noisy_numbers", "loss=ce"]


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program that is started instead of train.py."""
    program = Path(__file__).with_name("fake_runs.py")
    monkeypatch.setattr("ntl.launch.workers.TRAIN", program)
    return program


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., list[Run]]:
    """Runs of CE on noisy_numbers with these seeds, in a folder of the test."""

    def make(*seeds: int, overrides: Sequence[str] = ()) -> list[Run]:
        places = [*NOISY, *overrides, f"output_dir={tmp_path / 'outputs'}"]
        return to_make(Run.of([*places, f"seed={seed}"]) for seed in seeds)

    return make


@pytest.fixture
def make_table(tmp_path: Path) -> Callable[..., str]:
    """The file of a table of two rows, CE and NTL-WAS on noisy_numbers."""

    def make(name: str, *seeds: int, overrides: Sequence[str] = ("model=gpt2_tiny", "tokenizer=digit")) -> str:
        path = tmp_path / "tables" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(table_text(seeds, overrides))
        return str(path)

    return make


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
