"""What missing runs take: core-hours that records have measured, and the disk space of their checkpoints."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ntl.launch.costs import core_seconds, disk_needed, dry_run, dry_run_text, figure, hours_left, hours_text
from ntl.launch.plan import Run, demands, plan_runs, runs_to_make
from ntl.results import RunRecord

MakeRecord = Callable[..., RunRecord]
TINY = ["dataset=arithmetic", "model=gpt2_tiny", "scale=tiny"]
SMALL = ["dataset=arithmetic", "model=t5_small", "scale=small", "model.pretrained=false"]
T5_SMALL = 60_506_624  # parameters of the published checkpoint, with tied embeddings counted once


def planned(outputs: Path, *runs: Sequence[str]) -> list[Run]:
    return plan_runs(runs, outputs)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.0349, "0.035"), (0.35, "0.35"), (3.04, "3.0"), (9.96, "10.0"), (14.4, "14"), (1443.0, "1,400")],
)
def test_two_digits(value: float, text: str) -> None:
    assert figure(value) == text


# ---- hours


def test_the_median_of_the_records_of_a_kind_for_the_steps_left(timed_record: MakeRecord, tmp_path: Path) -> None:
    records = [timed_record(seconds) for seconds in (10.0, 90.0, 20.0)] + [timed_record(1.0, dataset="rjokes")]
    records += [timed_record(9.0, device="NVIDIA H200"), timed_record(0.0), replace(timed_record(9.0), config={})]
    runs = planned(tmp_path, [*TINY, "seed=1"], [*TINY, "seed=2"])
    assert hours_left(runs, core_seconds(records)) == (40 / 3600, 0)
    runs[0].folder.mkdir()
    (runs[0].folder / "metrics.jsonl").write_text(f'{{"step": {runs[0].steps // 4}}}\n')
    assert hours_left(runs, core_seconds(records)) == pytest.approx((35 / 3600, 0))
    threads = [timed_record(10.0, device="cpu x86_64, 4 of 8 threads", num_devices=2)]
    assert list(core_seconds(threads).values()) == [80.0]


def test_nothing_is_guessed_for_a_run_of_another_kind(timed_record: MakeRecord, tmp_path: Path) -> None:
    others = [
        ["dataset=rjokes", *TINY[1:]],
        [TINY[0], "model=llama_tiny", TINY[2]],
        [*TINY, "trainer.max_steps=7"],
        [*TINY, "objective=mtp", "objective.heads=2"],
        [*TINY[:2], "scale=hour"],
    ]
    found = hours_left(planned(tmp_path, *others, TINY), core_seconds([timed_record(10.0)]))
    assert found == (10 / 3600, len(others))
    assert (hours_text(0.35, 0), hours_text(0.35, 2)) == ("0.35", "0.35 + runs not measured: 2")


# ---- disk


@pytest.mark.parametrize(
    ("more", "ended", "training"),  # checkpoints
    [
        ([], 1, 3),  # of those it has, two are kept, and a third is written before the first is deleted
        (["trainer.keep_checkpoints_after=2"], 2, 3),
        (["trainer.save_steps=0"], 1, 1),
        (["trainer.best=accuracy", "trainer.eval_steps=50"], 2, 4),
        (["keep_steps=[50,100]"], 3, 5),
    ],
)
def test_checkpoints_of_a_run(more: list[str], ended: int, training: int, tmp_path: Path) -> None:
    runs = planned(tmp_path, [*SMALL, *more])
    assert disk_needed(runs, 0) == ended * T5_SMALL * 12
    assert disk_needed(runs, None) == training * T5_SMALL * 12


def test_checkpoints_of_several_runs(tmp_path: Path) -> None:
    runs = planned(tmp_path, *([*SMALL, f"seed={seed}"] for seed in (1, 2, 3)), [*SMALL, "trainer.save_steps=0"])
    checkpoint = T5_SMALL * 12
    assert [disk_needed(runs, n) // checkpoint for n in (1, 2, 3, None)] == [6, 8, 10, 10]
    assert disk_needed([], None) == 0
    (runs[0].folder / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    (runs[0].folder / "checkpoints" / "checkpoint-5" / "weights").write_bytes(b"x" * 1000)
    assert disk_needed(runs, 1) == 6 * checkpoint - 1000


def test_what_a_checkpoint_holds(tmp_path: Path) -> None:
    def size(*words: str) -> int:
        return disk_needed(planned(tmp_path, [*words, "trainer.save_steps=0"]), None)

    # Adapters of 18 attentions of four layers, and of 12 feed-forward blocks of two, have the moments.
    adapters = 8 * (18 * 4 * (512 + 512) + 12 * 2 * (512 + 2048))
    assert size(*SMALL[:3], "model.lora.rank=8") == 4 * (T5_SMALL + adapters) + 8 * adapters
    llama = ("dataset=polynomial", "model=llama_tiny", "scale=tiny")
    heads = ("objective=mtp", "objective.heads=3", "objective.variant=linear")
    assert size(*llama, *heads) - size(*llama) == 2 * 64 * 64 * 12
    assert size(*SMALL, "trainer.max_steps=0") == T5_SMALL * 4  # nothing is trained: the weights alone


# ---- --dry-run


def test_dry_run_counts_a_shared_run_once(
    make_table: Callable[..., str], timed_record: MakeRecord, tmp_path: Path
) -> None:
    demanded = demands([make_table("one", 1, 2), make_table("two", 2, 3)], "tiny", [])
    todo = runs_to_make(demanded, tmp_path)
    rows = dry_run(demanded, todo, core_seconds([timed_record(1800.0, "noisy_numbers")]), 2)
    assert [(row["table"], row["runs"], row["missing"]) for row in rows] == [
        ("one", 4, 4),
        ("two", 4, 4),
        ("all", 6, 6),
    ]
    total = rows[-1]
    assert (total["core_hours"], total["not_measured"], total["steps"]) == (3.0, 0, 6 * 500)
    assert total["disk_bytes"] == disk_needed(todo, 2)
    lines = [line.split() for line in dry_run_text(rows, ["trainer.lr=1e-3", "device=cpu"]).splitlines()]
    assert lines[0] == ["table", "scale", "runs", "missing", "steps", "core-hours", "disk"]
    assert lines[3] == ["all", "tiny", "6", "6", "3,000", "3.0", figure(total["disk_bytes"] / 1e9), "GB"]
    assert " ".join(lines[4]) == "Every run with trainer.lr=1e-3; what is measured was measured without."

    (nothing,) = dry_run(demanded[:1], [], {}, None)
    assert dry_run_text([nothing]).splitlines()[1].split() == ["one", "tiny", "4", "0", "0", "0", "0", "GB"]
    (epochs,) = demands([make_table("one", 1)], "tiny", [], ["trainer.epochs=2", f"data_dir={tmp_path}"])
    (row,) = dry_run([epochs], runs_to_make([epochs], tmp_path), {}, None)
    assert row["steps"] is None
    assert "  unknown  0 + runs not measured: 2  " in dry_run_text([row])
