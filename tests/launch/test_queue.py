from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.launch import queue
from ntl.launch.queue import ACTIVE, Job, job_states, last_line, mark, marked

SQUEUE = """#!/bin/sh
echo "$@" > "$(dirname "$0")/asked"
printf '12|COMPLETED\\n13_0|RUNNING\\n 13_1|PENDING\\n'
exit {code}
"""


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that answers with three jobs; the test may write another."""
    program = tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    program.write_text(SQUEUE.format(code=0))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def test_states_of_jobs_and_of_the_members_of_arrays(squeue: Path) -> None:
    assert job_states() == {"12": "COMPLETED", "13_0": "RUNNING", "13_1": "PENDING"}
    asked = (squeue.parent / "asked").read_text()
    assert "--states=all" in asked  # those that ended are known for a while
    assert "--array" in asked


def test_a_controller_that_does_not_answer_is_not_an_empty_queue(squeue: Path) -> None:
    squeue.write_text(SQUEUE.format(code=1))
    assert job_states() is None
    squeue.write_text("#!/bin/sh\nexec sleep 5\n")
    assert _with_timeout(0.1) is None


def _with_timeout(seconds: float) -> dict[str, str] | None:
    with pytest.MonkeyPatch.context() as patch:
        original = queue.subprocess.run
        patch.setattr(queue.subprocess, "run", lambda *args, **rest: original(*args, **{**rest, "timeout": seconds}))
        return job_states()


def test_no_squeue_is_the_users_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no squeue here"):
        job_states()


def test_a_run_remembers_its_job(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert marked(folder) is None
    job = Job("12_3", tmp_path / "logs" / "12_3_0_log.err")
    mark(folder, job)
    assert marked(folder) == job
    (folder / "slurm.job").write_text("12_3")
    assert marked(folder) is None  # cut by a kill


def test_what_counts_as_ended() -> None:
    assert {"PENDING", "RUNNING", "COMPLETING", "REQUEUED", "PREEMPTED"} <= ACTIVE
    assert not {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", ""} & ACTIVE


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("one\ntwo\n\n  \n", "two"),
        ("a\tb  c", "a b c"),
        ("x" * 9000, "x" * 300),
        ("srun: error: task 0: Killed\nsrun: Force Terminated StepId=9.0\n", "srun: error: task 0: Killed"),
    ],
)
def test_last_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    assert last_line(path) == line


def test_last_line_of_no_file(tmp_path: Path) -> None:
    assert last_line(tmp_path / "log") == ""
