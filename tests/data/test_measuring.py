import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ntl.config import UserError
from ntl.data import measuring
from ntl.data.measuring import MIB, Peak, anonymous_bytes, machine, measured, timed, write_table

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell RssAnon")


def taking(mib: int) -> dict:
    """Takes and gives back so much memory; its pages are touched."""
    held = np.ones(mib * MIB, dtype=np.uint8)
    time.sleep(0.2)
    return {"sum": int(held.sum()), "pid": os.getpid()}


def failing() -> dict:
    raise ValueError("no")


@linux
def test_memory_is_that_of_another_process_at_its_peak() -> None:
    small, large = measured(taking, 1), measured(taking, 101)
    assert large["sum"] == 101 * MIB
    assert small["pid"] != large["pid"] != os.getpid()
    assert 90 < large["peak_anon_mib"] - small["peak_anon_mib"] < 120


@linux
def test_mapped_files_do_not_count(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(50 * MIB, dtype=np.uint8))
    before = anonymous_bytes()
    assert int(np.load(tmp_path / "a.npy", mmap_mode="r").sum()) == 50 * MIB
    assert anonymous_bytes() - before < 10 * MIB


def test_a_process_that_is_gone() -> None:
    assert anonymous_bytes("none") == 0
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        peak = Peak(process.pid)
        peak.start()
        process.wait()
        assert peak.stop() >= 0


def test_a_stage_that_fails_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="the stage failing failed"):
        measured(failing)
    assert "ValueError: no" in capfd.readouterr().err


def test_seconds() -> None:
    row: dict = {}
    with timed(row):
        time.sleep(0.05)
    assert 0.05 <= row["seconds"] < 5


def test_a_table_tells_its_machine_and_not_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "machine", lambda: "a CPU, 2 cores")
    write_table(tmp_path / "deep" / "a.csv", [{"pairs": 10, "stage": "x, y", "seconds": 1.5, "bytes": 3}])
    assert (tmp_path / "deep" / "a.csv").read_text().splitlines() == [
        "# a CPU, 2 cores",
        "pairs,stage,seconds,pairs_per_s,mb_per_s,peak_anon_mib,padding",
        '10,"x, y",1.5,,,,',
    ]
    monkeypatch.undo()
    assert os.uname().nodename not in machine().split(", ")
    assert f"{len(os.sched_getaffinity(0))} cores" in machine()
