"""What is started, or called, in these tests instead of a training: the seed says what happens."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ntl.config import compose, run_id
from ntl.config.cli import report
from ntl.config.identity import recorded
from ntl.results import RunRecord, write_record
from ntl.runs.folder import checkpoint_at, is_complete, write_manifest
from ntl.system.errors import Busy

FAILS, KILLED, NO_RECORD, LASTS, EXITS, TAKEN = 901, 903, 904, 905, 906, 907


def run(config: Any, overrides: list[str]) -> None:
    folder = Path(config.output_dir) / run_id(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment").write_text(
        f"{os.getpid()} {os.environ['OMP_NUM_THREADS']} {os.environ.get('CUDA_VISIBLE_DEVICES', '-')}"
    )
    (folder / "metrics.jsonl").write_text('{"step": 25, "loss": 1.0}\n')
    print("printed by the run")
    os.write(2, b"written to descriptor 2\n")
    match config.seed:
        case 901:
            raise RuntimeError("no such\n thing")
        case 903:
            os.kill(os.getpid(), signal.SIGKILL)
        case 905:
            last(folder)
        case 906:
            raise SystemExit(3)
        case 907:
            raise Busy("another process is at this run")
    if config.base:
        base, _, step = config.base.rpartition("@")
        assert is_complete(checkpoint_at(folder.with_name(base), int(step)))
    for step in config.keep_steps:
        checkpoint_at(folder, step).mkdir(parents=True)
        (checkpoint_at(folder, step) / "keep").touch()
        write_manifest(checkpoint_at(folder, step))
    if config.seed != NO_RECORD:
        metrics: dict[str, float | None] = {"test/rmse": float(config.seed)}
        record = RunRecord(
            id=folder.name, overrides=overrides, config=recorded(config), seed=config.seed, metrics=metrics
        )
        write_record(folder / "record.json", record)


def last(folder: Path) -> None:
    (folder / "started").touch()
    try:
        time.sleep(300)
    except KeyboardInterrupt:
        (folder / "checkpoint").touch()
        raise


if __name__ == "__main__":
    sys.exit(report(lambda: run(compose(sys.argv[1:]), sys.argv[1:])))
