"""The launchers of config/hydra/launcher, and the tasks of a job as ranks of a run, without a Slurm."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from commands import ROOT, environment
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import RunMode

from ntl.config.composition import register
from ntl.config.folders import CONFIG_DIR
from ntl.launch import workers
from ntl.system.errors import Busy

pytest.importorskip("submitit")


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONFIG_DIR / "hydra" / "launcher").glob("*.yaml")))
def test_every_launcher_is_that_of_hydra_submitit_launcher(name: str) -> None:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        config = hydra.compose_config("train", [f"hydra/launcher={name}"], RunMode.MULTIRUN)
    launcher: Any = Plugins.instance().instantiate_launcher(None, None, config)  # pyright: ignore[reportArgumentType]
    assert type(launcher).__name__ == "SlurmLauncher"
    assert "export SLURM_KILL_BAD_EXIT=1" in launcher.params["setup"]
    assert launcher.params["max_num_timeout"] > 0


@pytest.mark.slow
def test_a_machine_without_slurm_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "train.py"), "-m", "hydra/launcher=slurm", "dataset=noisy_numbers", "seed=1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(PATH=""), capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "are you indeed on a slurm cluster?" in done.stderr


@pytest.fixture
def task() -> Iterator[None]:
    """This process is the second task of the second of two nodes with four devices each."""
    given = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "gpu[07-08]"}
    given |= {"SLURM_NTASKS": "8", "SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_PROCID": "5"}
    given |= {"SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "RANK": "9"}
    with patch.dict(os.environ, given):  # also takes back what is set meanwhile
        for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            os.environ.pop(name, None)
        yield


@pytest.mark.usefixtures("task")
@pytest.mark.parametrize(
    ("error", "rank", "code"),
    [(KeyboardInterrupt(), 0, 1), (KeyboardInterrupt(), 5, 0), (ValueError("x"), 5, 1), (Busy("x"), 0, 1)],
)
def test_a_task_is_a_rank_and_its_error_ends_all_but_an_interrupt_does_not(
    error: BaseException,
    rank: int,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def train(config: Any, overrides: Any) -> None:
        raise error

    monkeypatch.setenv("SLURM_PROCID", str(rank))
    monkeypatch.setattr("ntl.training.train.train", train)
    monkeypatch.setattr(workers, "run_id", lambda config: "id")
    with pytest.raises(SystemExit) as caught:
        workers.train_job(SimpleNamespace(output_dir=str(tmp_path)), [])  # pyright: ignore[reportArgumentType]
    assert caught.value.code == code
    said = "" if isinstance(error, KeyboardInterrupt) else ": x"
    assert (tmp_path / "id" / "run.log").read_text().strip().endswith(said)
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    assert [os.environ[name] for name in names] == [str(rank), "1", "8", "4", "gpu07"]
    # accelerate takes the device of the local rank, which is none of one.
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
