"""The real command on a small table, killed with all its workers at five random moments."""

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import commands
import pytest

SMALL = [
    *("model=gpt2_tiny", "tokenizer=digit", "dataset.train_rows=400", "dataset.validation_rows=50"),
    *("dataset.test_rows=50", "trainer.batch_size=16", "trainer.max_steps=120", "trainer.save_steps=20"),
    "trainer.logging_steps=5",
]
# What the command adds to the runs is in their ids, and so in what is continued.
ADDED = "trainer.weight_decay=0.02"
GOOD, BROKEN, LINES_A_RUN = 4, 2, 24
# What may differ between two runs that compute the same.
MEASURED = ("wall_time_s", "peak_memory_bytes")
KILLS = 5


def start(folder: Path) -> "subprocess.Popen[str]":
    table = folder.parent / "small.yaml"
    # Four runs that end well, and in their middle two that cannot.
    table.write_text(commands.table_text([1, 2], SMALL, broken=True))
    return commands.start(folder, "scripts/reproduce.py", f"table={table}", "workers=2", ADDED)


def lines_logged(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("outputs/*/metrics.jsonl"))


def records(folder: Path) -> dict[str, Any]:
    found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("outputs/*/record.json")}
    return {name: {key: record[key] for key in record.keys() - set(MEASURED)} for name, record in found.items()}


@pytest.mark.soak
@pytest.mark.timeout(1800)  # six starts of two workers, each with its imports
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the workers under /proc")
def test_a_table_killed_five_times_ends_as_one_that_was_not(tmp_path: Path) -> None:
    straight = start(tmp_path / "straight")
    said, _ = straight.communicate(timeout=600)
    assert straight.returncode == 1, said
    assert len(records(tmp_path / "straight")) == GOOD
    # Both broken runs are told at the end, each with its log, and the others were made.
    assert f"{GOOD} runs trained in " in said
    ends = said.splitlines()[-2 * BROKEN :]
    assert [line.split(" failed: ")[0] for line in ends[::2]] == [f"noisy_numbers ce_digits seed {s}" for s in (1, 2)]
    assert all("device=cuda: torch sees no CUDA device here" in line for line in ends[::2])
    assert all(Path(tmp_path / "straight", line.removeprefix("  log: ")).is_file() for line in ends[1::2])

    broken, draw = tmp_path / "broken", random.Random(0)
    moments = sorted(draw.sample(range(GOOD * LINES_A_RUN), KILLS))
    written: dict[Path, int] = {}
    for moment in moments:
        process = start(broken)
        while lines_logged(broken) < moment and process.poll() is None:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        assert process.poll() is None, process.communicate()
        commands.kill(process)
        written.update({path: path.stat().st_mtime_ns for path in broken.glob("outputs/*/record.json")})

    process = start(broken)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    assert records(broken) == records(tmp_path / "straight")
    ours, theirs = (next(tmp_path.glob(f"{name}/outputs/small_tiny_with_*.md")) for name in ("broken", "straight"))
    assert (ours.name, ours.read_bytes()) == (theirs.name, theirs.read_bytes())
    assert "| CE<br>n = 2 |" in ours.read_text()
    assert ADDED in ours.read_text()
    assert all(ADDED in record["overrides"] for record in records(broken).values())
    # Nothing is run twice: what had a record kept it, and the last command made only the others.
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in written.items())
    assert f"{GOOD - len(written)} run" in said
    logs = [path.read_text() for path in broken.glob("outputs/*/run.log")]
    assert any("Continuing from " in log for log in logs)
