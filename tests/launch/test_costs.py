"""What missing runs take: core-hours that records have measured, and the disk space of their checkpoints."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ntl.launch.plan import plan_runs
from ntl.launch.table import checkpoint_bytes, core_seconds, disk_needed, hours_left
from ntl.results import RunRecord

MakeRecord = Callable[..., RunRecord]
TINY = ["dataset=arithmetic", "model=gpt2_tiny", "scale=tiny"]
SMALL = ["dataset=arithmetic", "model=t5_small", "scale=small", "model.pretrained=false"]
T5_SMALL = 60_506_624  # parameters of the published checkpoint, with tied embeddings counted once


def test_the_median_of_the_records_of_a_kind_for_the_steps_left(timed_record: MakeRecord, tmp_path: Path) -> None:
    records = [timed_record(seconds) for seconds in (360.0, 9000.0, 720.0)] + [timed_record(1.0, dataset="rjokes")]
    records += [timed_record(9.0, device="NVIDIA H200"), timed_record(0.0), replace(timed_record(9.0), config={})]
    runs = plan_runs([[*TINY, "seed=1"], [*TINY, "seed=2"]], tmp_path)
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
    found = hours_left(plan_runs([*others, TINY], tmp_path), core_seconds([timed_record(3600.0)]))
    assert found == f"1.0 + runs not measured: {len(others)}"


def test_the_checkpoints_that_runs_keep(tmp_path: Path) -> None:
    for more, count in (
        ([], 1),
        (["trainer.keep_checkpoints_after=2"], 2),
        (["trainer.best=accuracy", "trainer.eval_steps=50"], 2),
        (["keep_steps=[50,100]"], 3),
    ):
        assert disk_needed(plan_runs([[*SMALL, *more]], tmp_path)) == count * T5_SMALL * 12
    runs = plan_runs([[*SMALL, f"seed={seed}"] for seed in (1, 2)], tmp_path)
    (runs[0].folder / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    (runs[0].folder / "checkpoints" / "checkpoint-5" / "weights").write_bytes(b"x" * 1000)
    assert disk_needed(runs) == 2 * T5_SMALL * 12 - 1000


@pytest.mark.slow
def test_what_a_checkpoint_holds(tmp_path: Path) -> None:
    def size(*words: str) -> int:
        return checkpoint_bytes(plan_runs([words], tmp_path)[0].config)

    # Adapters of 18 attentions of four layers, and of 12 feed-forward blocks of two, have the moments.
    adapters = 8 * (18 * 4 * (512 + 512) + 12 * 2 * (512 + 2048))
    assert size(*SMALL[:3], "model.lora.rank=8") == 4 * (T5_SMALL + adapters) + 8 * adapters
    llama = ("dataset=polynomial", "model=llama_tiny", "scale=tiny")
    heads = ("objective=mtp", "objective.heads=3", "objective.variant=linear")
    assert size(*llama, *heads) - size(*llama) == 2 * 64 * 64 * 12
