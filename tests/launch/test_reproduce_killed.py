"""The real command on a small table, killed with all its workers at five random moments."""

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, SMALL, kill, start, table_text

# What the command adds to the runs is in their ids, and so in what is continued.
ADDED = "trainer.weight_decay=0.02"
GOOD, LINES_A_RUN, KILLS = 4, 24, 5
# What may differ between two runs that compute the same.
MEASURED = ("wall_time_s", "peak_memory_bytes")


def reproduce(folder: Path) -> "subprocess.Popen[str]":
    table = folder.parent / "small.yaml"
    # Four runs that end well, and in their middle two that cannot.
    table.write_text(table_text([1, 2], [*SMALL, "trainer.max_steps=120"], broken=True))
    return start(folder, str(ROOT / "scripts" / "reproduce.py"), f"table={table}", "workers=2", ADDED)


def lines_logged(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("outputs/*/metrics.jsonl"))


def records(folder: Path) -> dict[str, Any]:
    found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("outputs/*/record.json")}
    return {name: {key: record[key] for key in record.keys() - set(MEASURED)} for name, record in found.items()}


@pytest.mark.soak
@pytest.mark.timeout(1800)  # six starts of two workers, each with its imports
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the workers under /proc")
def test_a_table_killed_five_times_ends_as_one_that_was_not(tmp_path: Path) -> None:
    straight, broken, draw = tmp_path / "straight", tmp_path / "broken", random.Random(0)
    process = reproduce(straight)
    said, _ = process.communicate(timeout=600)
    assert (process.returncode, len(records(straight))) == (1, GOOD), said
    ends = said.splitlines()[-4::2]  # each followed by its log
    assert all("-ce_digits-" in line and "device=cuda: torch sees no CUDA device here" in line for line in ends)

    written: dict[Path, int] = {}
    for moment in sorted(draw.sample(range(GOOD * LINES_A_RUN), KILLS)):
        process = reproduce(broken)
        while lines_logged(broken) < moment and process.poll() is None:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        assert process.poll() is None, process.communicate()
        kill(process)
        written.update({path: path.stat().st_mtime_ns for path in broken.glob("outputs/*/record.json")})
    process = reproduce(broken)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    assert records(broken) == records(straight)
    ours, theirs = (next(folder.glob("outputs/small_tiny_with_*.md")) for folder in (broken, straight))
    assert (ours.name, ours.read_bytes()) == (theirs.name, theirs.read_bytes())
    # Nothing is run twice: what had a record kept it, and the last command made only the others.
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in written.items())
    assert f"{GOOD - len(written)} run" in said
    assert any("Continuing from " in path.read_text() for path in broken.glob("outputs/*/run.log"))
