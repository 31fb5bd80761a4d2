"""A sweep as Slurm jobs: one array of what is to be made, watched until it ends, by hydra-submitit-launcher.

Its launcher would wait for ever for a job that was killed where Slurm keeps no accounts, and submits a run again that
is in the queue already; it still makes the jobs and runs them.
"""

import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from ntl.launch.plan import Run, plan_runs
from ntl.launch.queue import ACTIVE, Job, job_states, last_line, mark, marked
from ntl.launch.worker import error_line
from ntl.system.errors import Busy, UserError, needs
from ntl.training.folder import is_taken

POLL_SECONDS = 2.0
# A job that Slurm no longer knows: so many looks in a row, as a controller that restarts forgets for a moment.
LOOKS = 3
# Settings of hydra-submitit-launcher that submitit has for every kind of cluster; the others are Slurm's own.
SHARED = {
    "timeout_min",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "name",
    "stderr_to_stdout",
}


class JobLost(Exception):
    """A job ended without a word of its own: killed, out of memory, cancelled, its node gone."""


def launch(
    params: dict[str, Any], context: dict[str, Any], job_overrides: Sequence[Sequence[str]], first: int
) -> list[JobReturn]:
    """Make every run that has no record, in jobs of its own or in the one that is in the queue for it already.

    Args:
        params: the settings of ``config/hydra/launcher/slurm.yaml``.
        context: what Hydra gives a launcher's ``setup``.
        first: the number of the sweep's first job.

    Raises:
        UserError: submitit is not installed, or Slurm is not here or refuses the jobs.
        KeyboardInterrupt: the jobs go on; how to follow or cancel them is told first.
    """
    planned = [plan_runs([overrides]) for overrides in job_overrides]
    todo = {index: runs[0] for index, (runs, _) in enumerate(planned) if runs}
    states = job_states() or {}
    jobs = {index: job for index, run in todo.items() if (job := marked(run.folder)) and states.get(job.id) in ACTIVE}
    followed = len(jobs)
    new = [index for index in todo if index not in jobs]
    if new:
        submitted = _submit(params, context, [job_overrides[index] for index in new], first)
        for index, job in zip(new, submitted, strict=True):
            mark(todo[index].folder, job)
            jobs[index] = job
    _say(f"{len(new)} jobs submitted, {followed} in the queue already, {len(planned) - len(todo)} runs have a record.")
    private = _private_part(params.get("submitit_folder", ""))
    results = _Watch(todo, jobs, private).wait() if jobs else {}
    return [results.get(index) or _result(overrides, None) for index, overrides in enumerate(job_overrides)]


def _submit(
    params: dict[str, Any], context: dict[str, Any], job_overrides: Sequence[Sequence[str]], first: int
) -> list[Job]:
    with needs("slurm"):
        import submitit
        from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
        from submitit.core.utils import FailedJobError
    plain: Any = OmegaConf.to_container(OmegaConf.create(params), resolve=True)
    inner = SlurmLauncher(**plain)
    inner.setup(**context)
    folder, timeouts = plain.pop("submitit_folder"), plain.pop("max_num_timeout")
    Path(context["config"].hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
    _make_private(_private_part(folder))
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=timeouts)
        executor.update_parameters(**{key if key in SHARED else f"slurm_{key}": plain[key] for key in plain})
        numbers = range(first, first + len(job_overrides))
        state = Singleton.get_state()
        pairs = zip(numbers, job_overrides, strict=True)
        rows = [(list(overrides), "hydra.sweep.dir", n, f"job_id_for_{n}", state) for n, overrides in pairs]
        jobs = executor.map_array(inner, *zip(*rows, strict=True))
    except (FailedJobError, RuntimeError) as error:
        raise UserError(f"Slurm takes no job: {' '.join(str(error).split())[:300]}") from error
    return [Job(job.job_id, Path(job.paths.stderr)) for job in jobs]


def _private_part(folder: str) -> Path:
    """The part of ``submitit_folder`` that all jobs share: what stands before the first ``%``, as in ``.../%j``."""
    before, percent, _ = folder.partition("%")
    return Path(before if not percent or before.endswith("/") else before.rpartition("/")[0])


def _make_private(folder: Path) -> None:
    # Jobs are pickles, and so are their results: whoever could write here could run code as the user.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise UserError(f"submitit_folder {folder}: {error.strerror}; it must be a folder of yours alone.") from error


class _Watch:
    """Waits for jobs, tells each that ends, and what became of its run.

    ``private`` is the folder whose pickles may be read: where the jobs of this command are.
    """

    def __init__(self, runs: dict[int, Run], jobs: dict[int, Job], private: Path) -> None:
        self._runs, self._jobs, self._private = runs, jobs, private
        self._results: dict[int, JobReturn] = {}
        self._gone = dict.fromkeys(jobs, 0)

    def wait(self) -> dict[int, JobReturn]:
        ids = sorted({job.id.split("_")[0] for job in self._jobs.values()})
        try:
            _say(f"Follow: squeue --me, or scripts/reproduce.py --status. Cancel: scancel {' '.join(ids)}")
            while waiting := [index for index in self._jobs if index not in self._results]:
                time.sleep(POLL_SECONDS)
                states = job_states()
                for index in waiting if states is not None else ():
                    self._look(index, (states or {}).get(self._jobs[index].id, ""))
        except KeyboardInterrupt:
            _say(f"The jobs go on; the same command follows them again. Cancel: scancel {' '.join(ids)}")
            raise
        return self._results

    def _look(self, index: int, state: str) -> None:
        run, job = self._runs[index], self._jobs[index]
        self._gone[index] = 0 if state in ACTIVE else self._gone[index] + 1
        # The state changes before the files of another machine are seen, and a job that is unknown may come back.
        if run.is_done and state not in ACTIVE:
            error = None
        elif self._gone[index] < LOOKS:
            return
        else:
            error = _why(run, job, state, self._private)
            # The job of another sweep makes the run; its record, or the end of that job, ends the wait.
            if isinstance(error, Busy):
                if is_taken(run.folder):
                    return
                error = JobLost(f"another job was at it and left no record; last line: {last_line(run.log)}")
        self._results[index] = _result(run.overrides, error)
        number = f"[{len(self._results)}/{len(self._jobs)}]"
        _say(f"{number} {run.label}, job {job.id}: {f'FAILED: {error_line(error)}' if error else 'done'}")


def _why(run: Run, job: Job, state: str, private: Path) -> Exception:
    outcome = _outcome(job, private)
    if isinstance(outcome, Exception):
        return outcome
    # Its process ended without a result: what it said last is all there is.
    said = last_line(job.log) or last_line(run.log)
    return JobLost(f"job {job.id} ended {f'as {state}' if state else 'and Slurm forgot it'}; last line: {said}")


def _outcome(job: Job, private: Path) -> Any:
    # What the job itself pickled: Hydra's JobReturn, whose value is what was raised. The mark in a run's folder names
    # the place, and that folder may come from elsewhere.
    if not job.log.resolve().is_relative_to(private.resolve()):
        return None
    try:
        with job.log.with_name(f"{job.id}_0_result.pkl").open("rb") as file:
            how, result = pickle.load(file)
    except Exception:  # no such file, or a pickle of what cannot be loaded here
        return None
    return getattr(result, "_return_value", None) if how == "success" else JobLost(str(result).strip().splitlines()[-1])


def _result(overrides: Sequence[str], error: Exception | None) -> JobReturn:
    result = JobReturn(overrides=list(overrides), status=JobStatus.FAILED if error else JobStatus.COMPLETED)
    result.return_value = error
    return result


def _say(line: str) -> None:
    print(line, flush=True)
