"""A Slurm of one node for tests: munged, slurmctld and slurmd in a folder and on ports of their own."""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
# More than the machine may have: these jobs mostly import and wait.
CPUS = 4
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
JobRequeue=1
KillWait=3
MinJobAge=600
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=5
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""


def missing_programs() -> list[str]:
    """What of Slurm and munge is not installed here."""
    return [name for name in PROGRAMS if _find(name) is None]


def _find(program: str) -> str | None:
    # Daemons lie where only root's path leads.
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def _daemon(folder: Path, name: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    program = _find(name)
    assert program is not None
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def call(*command: str, check: bool = True) -> str:
    """The output of a command of Slurm."""
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=60).stdout.strip()


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """The path of slurm.conf while the daemons run, and SLURM_CONF set to it. RuntimeError with their logs."""
    # munged refuses a socket in a folder that others may write to.
    folder.chmod(0o755)
    for name in ("spool", "state"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    config = folder / "slurm.conf"
    ports = {"controller_port": _free_port(), "node_port": _free_port()}
    host, user = socket.gethostname().split(".")[0], getpass.getuser()
    config.write_text(CONFIG.format(host=host, user=user, folder=folder, cpus=CPUS, **ports))
    ends = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munge = [f"--{option}={folder}/munge.{end}" for option, end in ends.items()]
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(config)
    try:
        with ExitStack() as stack:
            stack.enter_context(_daemon(folder, "munged", "--foreground", "--force", *munge))
            _wait_for(lambda: (folder / "munge.socket").exists(), folder)
            stack.enter_context(_daemon(folder, "slurmctld", "-D", "-f", str(config)))
            stack.enter_context(_daemon(folder, "slurmd", "-D", "-f", str(config)))
            _wait_for(lambda: "idle" in call("sinfo", "-h", "-p", "debug", "-o", "%T", check=False), folder)
            try:
                yield config
            finally:
                call("scancel", "--me", "--signal=KILL", "--full", check=False)
                call("scancel", "--me", check=False)
                _wait_for(lambda: not call("squeue", "--me", "-h", check=False), folder)
    finally:
        del os.environ["SLURM_CONF"]
        os.environ.update({} if before is None else {"SLURM_CONF": before})


def _wait_for(ready: Callable[[], bool], folder: Path, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            ends = {path.name: path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log")}
            logs = "\n".join(f"{name}: {end}" for name, end in ends.items())
            raise RuntimeError(f"Slurm does not come up, or its jobs do not end:\n{logs}")
        time.sleep(0.1)
