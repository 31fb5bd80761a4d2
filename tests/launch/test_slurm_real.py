"""Sweeps on a real Slurm of one node, without accounting; what needs none is in test_slurm.py."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from commands import ROOT, SMALL, environment, start, table_text, until
from slurm_cluster import CPUS, call

from ntl.training.record import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("slurm")]
# In the environment of every job here, and in none of the files.
SECRET = "planted5ec4e7planted5ec4e7"
JOBS = ["hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1", "hydra.launcher.timeout_min=30"]
TRAIN, REPRODUCE = str(ROOT / "train.py"), str(ROOT / "scripts" / "reproduce.py")


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


@pytest.mark.soak
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


@pytest.mark.soak
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
