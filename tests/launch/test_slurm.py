"""Sweeps on a real Slurm of one node, without accounting; what needs none is in test_slurm_watch.py."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import commands
import pytest
from commands import table_text, until
from slurm_cluster import CPUS, call

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SMALL = [
    *("model.n_embd=16", "model.n_layer=1", "trainer.batch_size=16", "trainer.logging_steps=5"),
    *("dataset.train_rows=400", "dataset.validation_rows=50", "dataset.test_rows=50", "trainer.save_steps=20"),
]
# In the environment of every job here, and in none of the files.
SECRET = "planted5ec4e7planted5ec4e7"
JOBS = ["hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1", "hydra.launcher.timeout_min=30"]


def start(folder: Path, script: str, *words: str) -> "subprocess.Popen[str]":
    return commands.start(folder, script, *words, HF_TOKEN=SECRET)


def read_until(process: "subprocess.Popen[str]", start: str) -> str:
    """What a launcher says, up to the first line that starts so."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith(start):
            return said
    raise AssertionError(f"no line {start!r} in {said}")


@pytest.mark.usefixtures("slurm")
def test_two_sweeps_at_once_a_job_that_raises_and_a_launcher_that_is_stopped(tmp_path: Path) -> None:
    table = tmp_path / "small.yaml"
    # Two rows of two seeds that end well, and two runs that cannot.
    table.write_text(table_text([1, 2], [*SMALL, "trainer.max_steps=40"], broken=True))
    words = [f"table={table}", "launcher=slurm", *JOBS]
    first, second = (start(tmp_path, "scripts/reproduce.py", *words) for _ in range(2))
    said = read_until(first, "Follow: squeue --me")
    jobs = re.search(r"Cancel: scancel ([\d ]+)", said)
    first.send_signal(signal.SIGINT)
    rest, _ = first.communicate(timeout=60)
    assert first.returncode == 130
    assert jobs
    assert f"The jobs go on; the same command follows them again. Cancel: scancel {jobs.group(1)}" in rest
    assert "Traceback" not in rest

    said, _ = second.communicate(timeout=900)
    assert second.returncode == 1, said
    folders = list(tmp_path.glob("outputs/noisy_numbers-*"))
    assert len(folders) == 6
    records = [folder for folder in folders if (folder / "record.json").is_file()]
    assert len(records) == 4
    # Trained once, whichever sweep submitted them.
    assert [(folder / "run.log").read_text().count("decoded test") for folder in records] == [1] * 4
    ends = said.splitlines()[-4:]
    assert [line.split(" failed: ")[0] for line in ends[::2]] == [f"noisy_numbers ce_digits seed {s}" for s in (1, 2)]
    assert all("device=cuda: torch sees no CUDA device here" in line for line in ends[::2])
    assert "| CE | 2 |" in (tmp_path / "outputs" / "small_tiny.md").read_text()

    # Its scripts, pickles and logs are the user's alone, and hold no secret.
    private = tmp_path / "outputs" / ".sweep" / ".submitit"
    assert private.stat().st_mode & 0o777 == 0o700
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {".sh", ".pkl", ".err", ".log"} <= {path.suffix for path in written}
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []

    # Jobs that both sweeps submitted end after the run's first.
    until(lambda: not call("squeue", "--me", "--noheader"), 600)
    status = start(tmp_path, "scripts/reproduce.py", f"table={table}", "--status")
    said, _ = status.communicate(timeout=120)
    assert "4 done, 0 running, 0 queued, 2 failed, 0 missing of 6 runs" in said
    assert "failed  noisy_numbers ce_digits seed 1: ntl.system.errors.UserError: device=cuda: torch sees no" in said


def folder_of(folder: Path, seed: int) -> Path:
    (found,) = folder.glob(f"outputs/noisy_numbers-gpt2_tiny-ce-s{seed}-*")
    return found


def job_of(folder: Path, seed: int) -> str:
    return (folder_of(folder, seed) / "slurm.job").read_text().split()[0]


def log_of(folder: Path, seed: int) -> str:
    path = Path((folder_of(folder, seed) / "slurm.job").read_text().split()[1])
    return "\n".join(each.read_text(errors="replace") for each in path.parent.glob("*_log.*"))


def steps_logged(folder: Path, seed: int) -> list[int]:
    lines = (folder_of(folder, seed) / "metrics.jsonl").read_text().splitlines()
    return [line["step"] for line in map(json.loads, lines) if "loss" in line]


def processes_of(job: str) -> list[int]:
    """Those of a job's run: its Python, not the shell and srun around it."""
    raw = re.search(r"JobId=(\d+)", call("scontrol", "show", "job", job))
    assert raw
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            of_job = f"SLURM_JOB_ID={raw.group(1)}".encode() in (path / "environ").read_bytes().split(b"\0")
            if of_job and (path / "cmdline").read_bytes().startswith(sys.executable.encode()):
                found.append(int(path.name))
    return found


def start_again(folder: Path, seed: int) -> bool:
    """Spare a requeued job its two minutes of waiting; True when its run has been continued."""
    job = job_of(folder, seed)
    if call("squeue", "--noheader", "--format=%T", f"--jobs={job}", check=False) == "PENDING":
        call("scontrol", "update", f"JobId={job}", "StartTime=now", "TimeLimit=30", check=False)
    return "Continuing from" in log_of(folder, seed)


@pytest.mark.usefixtures("slurm")
def test_a_preemption_a_requeue_a_time_limit_and_a_kill(tmp_path: Path) -> None:
    steps = 6000
    requeued, limited, killed, left_alone = seeds = (1, 2, 3, 4)
    words = ["dataset=noisy_numbers", "loss=ce", *SMALL, f"trainer.max_steps={steps}", "seed=1,2,3,4"]
    settings = [*JOBS, "hydra.launcher.max_num_timeout=3", "hydra.launcher.partition=debug"]
    sweep = start(tmp_path, "train.py", "-m", "hydra/launcher=slurm", *settings, *words)
    said = read_until(sweep, "Follow: squeue --me")
    assert "4 jobs submitted, 0 in the queue already, 0 runs have a record." in said

    def saved(seed: int) -> bool:
        return any(folder_of(tmp_path, seed).glob("checkpoints/checkpoint-*/manifest.json"))

    until(lambda: all(map(saved, seeds)), 600)
    call("sbatch", "--partition=urgent", f"--cpus-per-task={CPUS}", "--output=/dev/null", "--wrap=true")
    # Every run goes on after the preemption. Not all(): every job has to be looked at.
    until(lambda: sum(start_again(tmp_path, seed) for seed in seeds) == 4, 600)

    call("scontrol", "requeue", job_of(tmp_path, requeued))
    # So near that Slurm announces it at once: submitit asks for a signal 120 s before.
    call("scontrol", "update", f"JobId={job_of(tmp_path, limited)}", "TimeLimit=2")
    for process in processes_of(job_of(tmp_path, killed)):
        os.kill(process, signal.SIGKILL)

    def continued(seed: int) -> bool:
        start_again(tmp_path, seed)
        return log_of(tmp_path, seed).count("Continuing from") >= 2

    until(lambda: continued(requeued) + continued(limited) == 2, 600)
    said, _ = sweep.communicate(timeout=900)
    assert sweep.returncode == 1, said
    for seed in (requeued, limited, left_alone):
        record = json.loads((folder_of(tmp_path, seed) / "record.json").read_text())
        assert record["steps"] == steps
        assert steps_logged(tmp_path, seed) == list(range(5, steps + 1, 5))
    # submitit's word, after the checkpoint of the step under way, which need not be a multiple of save_steps.
    assert "Requeued job" in log_of(tmp_path, limited)
    assert not (folder_of(tmp_path, killed) / "record.json").exists()
    assert re.search(rf"seed {killed}, job \S+: FAILED: JobLost: job \S+ ended as FAILED; last line: .*Killed", said)
