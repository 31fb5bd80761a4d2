"""What missing runs take: core-hours that records have measured, and the disk space of their checkpoints."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ntl.launch.plan import Run
from ntl.launch.table import core_seconds, disk_needed, hours_left
from ntl.results import RunRecord

MakeRecord = Callable[..., RunRecord]
TINY = ["dataset=arithmetic", "model=gpt2_tiny", "scale=tiny"]
SMALL = ["dataset=arithmetic", "model=t5_small", "scale=small", "model.pretrained=false"]
T5_SMALL = 60_506_624  # parameters of the published checkpoint, with tied embeddings counted once


def runs_of(folder: Path, *runs: list[str]) -> list[Run]:
    return [Run.of([*words, f"output_dir={folder}"]) for words in runs]


def test_the_median_of_the_records_of_a_kind_for_the_steps_left(timed_record: MakeRecord, tmp_path: Path) -> None:
    records = [timed_record(seconds) for seconds in (360.0, 9000.0, 720.0)] + [timed_record(1.0, dataset="rjokes")]
    records += [timed_record(9.0, device="NVIDIA H200"), timed_record(0.0), replace(timed_record(9.0), config={})]
    runs = runs_of(tmp_path, [*TINY, "seed=1"], [*TINY, "seed=2"])
    assert hours_left(runs, core_seconds(records)) == "0.40"
    runs[0].folder.mkdir()
    (runs[0].folder / "metrics.jsonl").write_text(f'{{"step": {runs[0].steps // 4}}}\n')
    assert hours_left(runs, core_seconds(records)) == "0.35"
    threads = [timed_record(10.0, device="cpu x86_64, 4 of 8 threads", num_devices=2)]
    assert list(core_seconds(threads).values()) == [80.0]


def test_nothing_is_guessed_for_a_run_of_another_kind(timed_record: MakeRecord, tmp_path: Path) -> None:
    others = [
        ["dataset=rjokes", *TINY[1:]],
        [*TINY, "trainer.max_steps=7"],
        [*TINY, "objective=mtp", "objective.heads=2"],
    ]
    found = hours_left(runs_of(tmp_path, *others, TINY), core_seconds([timed_record(3600.0)]))
    assert found == f"1.0 + runs not measured: {len(others)}"


def test_the_checkpoints_that_runs_keep(tmp_path: Path) -> None:
    for more, count in (
        ([], 1),
        (["trainer.keep_checkpoints_after=2"], 2),
        (["trainer.best=accuracy", "trainer.eval_steps=50"], 2),
        (["keep_steps=[50,100]"], 3),
    ):
        assert disk_needed(runs_of(tmp_path, [*SMALL, *more])) == count * T5_SMALL * 12
    (adapters,) = runs_of(tmp_path, [*SMALL[:3], "model.lora.rank=8"])  # they alone have moments
    assert disk_needed([adapters]) == T5_SMALL * 4
    runs = runs_of(tmp_path, *([*SMALL, f"seed={seed}"] for seed in (1, 2)))
    (runs[0].folder / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    (runs[0].folder / "checkpoints" / "checkpoint-5" / "weights").write_bytes(b"x" * 1000)
    assert disk_needed(runs) == 2 * T5_SMALL * 12 - 1000
