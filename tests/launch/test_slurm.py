"""The launchers of config/hydra/launcher, and the tasks of a job as ranks of a run, without a Slurm."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import safetensors.torch
import torch
from commands import ROOT, SMALL, environment, start, table_text, until
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import RunMode
from slurm_cluster import CPUS, call

from ntl.config.composition import register
from ntl.config.folders import CONFIG_DIR
from ntl.launch import workers
from ntl.launch.plan import Run
from ntl.system.errors import Busy, UserError
from ntl.training.record import read_metrics

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
    hours = (launcher.params["max_num_timeout"] + 1) * launcher.params["timeout_min"] / 60
    assert hours > {"slurm": 212, "gpu_cluster": 3123}[name]  # estimates for T5-3B at scale=paper: bf16, float32


SCRIPT = """#!/bin/bash

# Parameters
#SBATCH --account=my_project
#SBATCH --array=0-1%2
#SBATCH --comment=ntl
#SBATCH --constraint=h100
#SBATCH --cpus-per-task=8
#SBATCH --error=FOLDER/%A_%a/%A_%a_0_log.err
#SBATCH --gpus-per-node=1
#SBATCH --job-name=ntl
#SBATCH --mail-type=FAIL
#SBATCH --mem=64GB
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=FOLDER/%A_%a/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --requeue
#SBATCH --signal=USR2@300
#SBATCH --time=1380
#SBATCH --wckey=''

# setup
export SLURM_KILL_BAD_EXIT=1
[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
module load cuda
export HF_HUB_OFFLINE=1
export NCCL_DEBUG=WARN

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output FOLDER/%A_%a/%A_%a_%t_log.out --error FOLDER/%A_%a/%A_%a_%t_log.err \
apptainer exec --nv ntl.sif PYTHON -u -m submitit.core._submit FOLDER/%j
"""


def test_the_script_that_is_submitted(planned: Callable[..., list[Run]], tmp_path: Path) -> None:
    srun = "hydra.launcher.srun_args=[apptainer,exec,--nv,ntl.sif]"
    expected = SCRIPT.replace("FOLDER", f"{tmp_path}/outputs/.sweep/.submitit").replace("PYTHON", sys.executable)
    assert workers.job_scripts(planned(1, 2), "gpu_cluster", [srun]) == expected
    assert not (tmp_path / "outputs").exists()
    assert "--array" not in workers.job_scripts(planned(1), "slurm")
    with pytest.raises(UserError, match="launcher=basic: it has no sbatch script"):
        workers.job_scripts(planned(1), "basic")


def test_a_mistake_in_a_launcher_is_one_line_before_anything_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    parts = runpy.run_path(str(ROOT / "scripts" / "reproduce.py"))
    for word in ("hydra.launcher.partiton=gpu", "launcher=slrm"):
        words = ["table=2", "--dry-run", word, *["launcher=slurm"] * ("hydra" in word)]
        with patch.object(sys, "argv", ["reproduce.py", *words]):
            assert parts["report"](parts["main"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search("Did you mean '(partition|slurm)'[?]$", line)
    with pytest.raises(UserError, match="add launcher=slurm"):
        parts["main"](["table=2", "--print-script"])


# What stands for Slurm: both jobs of an array begin at once, in the environment that Slurm would give them. As Slurm
# does, it runs a copy of the script: submitit moves the script away as soon as sbatch has ended.
SBATCH = """#!/bin/sh
cp "$1" "$FAKE/script"
export SLURM_CPUS_PER_TASK=4 SLURM_JOB_NODELIST=here SLURM_ARRAY_JOB_ID=7
for task in 0 1; do
    SLURM_ARRAY_TASK_ID=$task SLURM_JOB_ID=7$task sh "$FAKE/script" >"$FAKE/said$task" 2>&1 &
done
echo Submitted batch job 7
"""
SRUN = """#!/bin/sh
echo "cores: $SRUN_CPUS_PER_TASK"
shift 5
exec "$@"
"""


@pytest.mark.soak  # jobs are watched by their files alone, as nothing stands for squeue and sacct
def test_the_printed_script_is_the_one_that_is_submitted_and_it_trains(tmp_path: Path) -> None:
    for name, text in {"sbatch": SBATCH, "srun": SRUN}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    table = tmp_path / "small.yaml"
    table.write_text(table_text([1], [*SMALL, "trainer.max_steps=20"]))
    given = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "FAKE": str(tmp_path)}
    words = [str(ROOT / "scripts" / "reproduce.py"), f"table={table}", "launcher=slurm"]
    printed, _ = start(tmp_path, *words, "--print-script", **given).communicate(timeout=120)
    process = start(tmp_path, *words, **given)
    said, _ = process.communicate(timeout=250)
    assert process.returncode == 0, said
    assert "2 runs trained" in said
    assert (tmp_path / "script").read_text().strip() == printed.strip()
    assert [(tmp_path / f"said{task}").read_text().splitlines()[0] for task in (0, 1)] == ["cores: 4"] * 2


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
    error: BaseException, rank: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


# ---- sweeps on a real Slurm of one node, without accounting

# In the environment of every job here, and in none of the files.
SECRET = "planted5ec4e7planted5ec4e7"
JOBS = ["hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1", "hydra.launcher.timeout_min=30"]
TRAIN, REPRODUCE = str(ROOT / "train.py"), str(ROOT / "scripts" / "reproduce.py")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("slurm")
def test_a_table_whose_jobs_go_on_past_one_that_raises(tmp_path: Path) -> None:
    table = tmp_path / "small.yaml"
    # Two rows of two seeds that end well, and two runs that cannot.
    table.write_text(table_text([1, 2], [*SMALL, "trainer.max_steps=40"], broken=True))
    words = [REPRODUCE, f"table={table}", "launcher=slurm", *JOBS]
    process = start(tmp_path, *words, HF_TOKEN=SECRET)
    said, _ = process.communicate(timeout=900)
    assert process.returncode == 1, said
    assert "6 runs by launcher=slurm; how far they are: add --dry-run to this command." in said
    folders = list(tmp_path.glob("outputs/noisy_numbers-*"))
    assert (len(folders), len([folder for folder in folders if (folder / "record.json").is_file()])) == (6, 4)
    ends = said.splitlines()[-4::2]
    assert all("-ce_digits-" in line and "device=cuda: torch sees no CUDA device here" in line for line in ends)
    assert (tmp_path / "outputs" / "small_tiny.md").is_file()

    # The jobs' scripts, pickles and logs hold no secret.
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {".sh", ".pkl", ".err", ".out"} <= {path.suffix for path in written}
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    said, _ = start(tmp_path, REPRODUCE, f"table={table}", "--dry-run").communicate(timeout=120)
    assert said.splitlines()[1].split()[2:7] == ["6", "4", "0", "2", "0"]


def folder_of(folder: Path, seed: int) -> Path:
    (found,) = folder.glob(f"outputs/noisy_numbers-gpt2_tiny-ce-s{seed}-*")
    return found


def job_of(folder: Path, seed: int) -> str:
    """The newest job of a run, by the folder of submitit's that names it."""
    logs = [path for path in folder.glob("outputs/.sweep/.submitit/*/*.pkl") if path.name.endswith("_submitted.pkl")]
    # The whole sweep's seed=1,2,3 is there, too.
    (found,) = [path for path in logs if re.search(rb"seed=%d(?![\d,])" % seed, path.read_bytes())]
    return found.parent.name


def log_of(folder: Path, seed: int) -> str:
    """What a run has said, and submitit and srun around it."""
    around = (folder / "outputs" / ".sweep" / ".submitit" / job_of(folder, seed)).glob("*_log.*")
    return "\n".join(
        each.read_text(errors="replace") for each in [folder_of(folder, seed) / "run.log", *around] if each.is_file()
    )


def steps_logged(folder: Path) -> list[int]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [line["step"] for line in map(json.loads, lines) if "loss" in line]


def is_saved(folder: Path, seed: int) -> bool:
    return any(folder.glob(f"outputs/noisy_numbers-*-s{seed}-*/checkpoints/checkpoint-*/manifest.json"))


def continued(folder: Path, seed: int, times: int = 1) -> bool:
    """Whether a run has been continued so often. A requeued job is spared its two minutes of waiting."""
    job = job_of(folder, seed)
    if call("squeue", "--noheader", "--format=%T", f"--jobs={job}", check=False) == "PENDING":
        call("scontrol", "update", f"JobId={job}", "StartTime=now", "TimeLimit=30", check=False)
    return log_of(folder, seed).count("Continuing from") >= times


def limit_time(folder: Path, seed: int) -> None:
    """So near that Slurm announces the end at once: submitit asks for a signal 120 s before."""
    call("scontrol", "update", f"JobId={job_of(folder, seed)}", "TimeLimit=2")


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("slurm")
def test_a_preemption_a_requeue_and_a_time_limit(tmp_path: Path) -> None:
    steps = 6000
    requeued, limited, left_alone = seeds = (1, 2, 3)
    words = ["dataset=noisy_numbers", "loss=ce", *SMALL, f"trainer.max_steps={steps}", "seed=1,2,3"]
    sweep = start(tmp_path, TRAIN, "-m", "hydra/launcher=slurm", *JOBS, "hydra.launcher.partition=debug", *words)
    until(lambda: sum(is_saved(tmp_path, seed) for seed in seeds) == 3, 600)
    call("sbatch", "--partition=urgent", f"--cpus-per-task={CPUS}", "--output=/dev/null", "--wrap=true")
    # Every run goes on after the preemption. Not all(): every job has to be looked at.
    until(lambda: sum(continued(tmp_path, seed) for seed in seeds) == 3, 600)

    call("scontrol", "requeue", job_of(tmp_path, requeued))
    limit_time(tmp_path, limited)
    until(lambda: sum(continued(tmp_path, seed, 2) for seed in (requeued, limited)) == 2, 600)
    said, _ = sweep.communicate(timeout=900)
    assert sweep.returncode == 0, said
    for seed in (requeued, limited, left_alone):
        assert json.loads((folder_of(tmp_path, seed) / "record.json").read_text())["steps"] == steps
        assert steps_logged(folder_of(tmp_path, seed)) == list(range(5, steps + 1, 5))
    # submitit's word, after the checkpoint of the step under way, which need not be a multiple of save_steps.
    assert "Requeued job" in log_of(tmp_path, limited)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("slurm")
def test_one_run_of_two_tasks_is_that_of_torchrun_also_after_a_time_limit(tmp_path: Path) -> None:
    words = ["dataset=noisy_numbers", "loss=ce", *SMALL, "trainer=ddp", "seed=1", "trainer.max_steps=1500"]
    words += ["model.dropout=0.1", "trainer.eval_steps=500"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", TRAIN]
    command = [sys.executable, *torchrun, *words]
    (tmp_path / "torchrun").mkdir()
    subprocess.run(command, cwd=tmp_path / "torchrun", env=environment(), check=True, capture_output=True, timeout=600)

    place = tmp_path / "slurm"
    sweep = start(place, TRAIN, "-m", "hydra/launcher=slurm", *JOBS, "hydra.launcher.tasks_per_node=2", *words)
    until(lambda: list(place.glob("outputs/noisy_numbers-*/checkpoints/*/manifest.json")), 600)
    limit_time(place, 1)
    until(lambda: continued(place, 1), 600)
    said, _ = sweep.communicate(timeout=900)
    assert sweep.returncode == 0, said
    # Both ranks saved the step under way, and the first put the job back into the queue.
    assert re.search(r"saved step [\d,]+; the same command continues", log_of(place, 1))
    assert log_of(place, 1).count("Requeued job") == 1

    ours, theirs = (folder_of(each, 1) for each in (place, tmp_path / "torchrun"))
    records = [json.loads((each / "record.json").read_text()) for each in (ours, theirs)]
    assert [record["num_devices"] for record in records] == [2, 2]
    for key in ("metrics", "steps", "examples_seen", "tokens_seen", "predictions_sha256"):
        assert records[0][key] == records[1][key]
    assert read_metrics(ours / "metrics.jsonl") == read_metrics(theirs / "metrics.jsonl")
    weights = [
        safetensors.torch.load_file(each / "checkpoints" / "checkpoint-1500" / "model.safetensors")
        for each in (ours, theirs)
    ]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], rtol=0, atol=0)
