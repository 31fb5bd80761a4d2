"""A sweep on Slurm whose jobs are killed all the time, against the records of one that was left alone.

    python tests/launch/soak.py --table 2 --every 20 --folder soak
    python tests/launch/soak.py --table 2 --every 20 --folder soak --expected outputs
    python tests/launch/soak.py --table 3 --kills 5 --folder killed

Starts a Slurm of one node (`slurm_cluster`), sweeps a table at scale=tiny, and meanwhile every so many seconds strikes
a random job that runs: one half dies of SIGKILL, its run resumed when the same command is given again; the other half
goes back into the queue. With --kills there is no Slurm: the command itself, with all its workers, is killed as often,
each time after half a minute to two minutes.

Ends with the number of strikes and with the runs whose records differ from the expected ones, if any, in anything but
times, memory, commit and machine. Expected are the published records, which only a processor of the kind they name
gives again to the last digit, or those of run folders.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands import ROOT, kill
from slurm_cluster import call, cluster

from ntl.launch.workers import worker_environment

MAY_DIFFER = ("wall_time_s", "peak_memory_bytes", "git", "device", "overrides", "packages")
JOBS = ["hydra.launcher.cpus_per_task=2", "hydra.launcher.mem_gb=1", "hydra.launcher.array_parallelism=2"]


def strike(chance: random.Random) -> str | None:
    """What was done to one of the jobs that run, None where none does."""
    running = call("squeue", "--me", "-h", "-r", "-t", "R", "-o", "%A", check=False).split()
    if not running:
        return None
    job = chance.choice(running)
    if chance.random() < 0.5:
        call("scancel", "--signal=KILL", "--full", job, check=False)
        return "killed"
    call("scontrol", "requeue", job, check=False)
    return "requeued"


def hurry() -> None:
    """A job that went back into the queue would wait for two minutes."""
    for job in call("squeue", "--me", "-h", "-r", "-t", "PD", "-o", "%A %r", check=False).splitlines():
        number, _, reason = job.partition(" ")
        if reason == "BeginTime":
            call("scontrol", "update", f"JobId={number}", "StartTime=now", check=False)


def differences(expected: Path, found: Path) -> list[str]:
    """The fields of a record that are not as expected. What another table read beside its run's own may be absent."""
    records: list[dict[str, Any]] = [json.loads(path.read_bytes()) for path in (expected, found)]
    first, second = ({key: value for key, value in record.items() if key not in MAY_DIFFER} for record in records)
    for record in (first, second):
        record["config"] = {key: value for key, value in record["config"].items() if key != "beside"}
    first["metrics"] = {
        key: value for key, value in first["metrics"].items() if "@" not in key or key in second["metrics"]
    }
    return [key for key in first.keys() | second.keys() if first.get(key) != second.get(key)]


def again(
    table: str, folder: Path, settings: list[str], meanwhile: Callable[[Any, Counter[str]], None]
) -> Counter[str]:
    """Give the command, whose output goes to a log in the folder, until it ends well; what was done ``meanwhile``."""
    command = [sys.executable, str(ROOT / "scripts" / "reproduce.py"), f"table={table}", "scale=tiny", *settings]
    environment = {**worker_environment(os.environ, threads=1), "WANDB_MODE": "disabled"}
    done: Counter[str] = Counter()
    while True:
        done["commands"] += 1
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
        while process.poll() is None:
            before = done.total()
            meanwhile(process, done)
            if done.total() > before:
                records = len(list(folder.glob("outputs/*/record.json")))
                print(f"{dict(done)}, {records} records", file=sys.stderr, flush=True)
        if process.returncode == 0:
            return done


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--table", default="2")
    parser.add_argument("--every", type=float, default=20, help="seconds between strikes")
    parser.add_argument("--kills", type=int, help="without Slurm: how often the command itself is killed")
    parser.add_argument("--expected", type=Path, default=ROOT / "results" / "runs", help="ID.json or ID/record.json")
    parser.add_argument("--folder", type=Path, required=True, help="where to sweep; runs that are there are not made")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    expected = chosen.expected.resolve()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    chance = random.Random(chosen.seed)

    def kill_command(process: Any, done: Counter[str]) -> None:
        try:
            process.wait(chance.uniform(30, 120) if done["killed"] < chosen.kills else None)
        except subprocess.TimeoutExpired:
            kill(process)
            done["killed"] += 1

    def strike_jobs(process: Any, done: Counter[str]) -> None:
        struck = time.monotonic()
        while process.poll() is None and time.monotonic() - struck < chosen.every:
            time.sleep(1)
            hurry()
        if process.poll() is None and (what := strike(chance)) is not None:
            done[what] += 1

    if chosen.kills is None:
        with tempfile.TemporaryDirectory(prefix="ntl-slurm-") as place, cluster(Path(place)):
            done = again(chosen.table, chosen.folder, ["launcher=slurm", *JOBS], strike_jobs)
    else:
        done = again(chosen.table, chosen.folder, [], kill_command)
    found = sorted(chosen.folder.glob("outputs/*/record.json"))
    wrong = 0
    for path in found:
        run = path.parent.name
        others = [other for other in (expected / f"{run}.json", expected / run / "record.json") if other.is_file()]
        differing = differences(others[0], path) if others else ["not expected"]
        if differing:
            wrong += 1
            print(f"{run}: {', '.join(differing)}")
    minutes = (time.monotonic() - started) / 60
    print(f"{len(found)} records, {wrong} differ; {dict(done)} in {minutes:.0f} min")
    return int(wrong > 0 or not found)


if __name__ == "__main__":
    sys.exit(main())
