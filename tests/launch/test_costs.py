"""What missing runs take: core-hours that records have measured, and the disk space of their checkpoints."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ntl.config import compose
from ntl.config.identity import plain
from ntl.config.root import Config
from ntl.launch.costs import core_hours, core_seconds, disk_needed, dry_run, dry_run_text, figure, hours_text
from ntl.launch.plan import Run, demands, kind_of, plan_runs, runs_to_make
from ntl.results import RunRecord

MakeRecord = Callable[..., RunRecord]
TINY = ["dataset=arithmetic", "model=gpt2_tiny", "scale=tiny"]
SMALL = ["dataset=arithmetic", "model=t5_small", "scale=small", "model.pretrained=false"]
T5_SMALL = 60_506_624  # parameters of the published checkpoint, with tied embeddings counted once


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.0349, "0.035"), (0.35, "0.35"), (3.04, "3.0"), (9.96, "10.0"), (14.4, "14"), (1443.0, "1,400")],
)
def test_two_digits(value: float, text: str) -> None:
    assert figure(value) == text


# ---- hours


def test_the_median_of_the_records_of_a_kind(timed_record: MakeRecord) -> None:
    records = [timed_record(seconds) for seconds in (10.0, 90.0, 20.0)] + [timed_record(1.0, dataset="rjokes")]
    config = compose(TINY)
    measured = core_seconds(records)
    assert measured[kind_of(plain(config))] == 20.0
    assert core_hours([(config, 1.0), (config, 0.5)], measured) == (30 / 3600, 0)


def test_seconds_are_those_of_cores(timed_record: MakeRecord) -> None:
    records = [timed_record(10.0, device="cpu x86_64, 4 of 8 threads", num_devices=2), timed_record(0.0)]
    assert list(core_seconds(records).values()) == [80.0]
    assert core_seconds([timed_record(10.0, device="NVIDIA H200")]) == {}


@pytest.mark.parametrize(
    "other",
    [
        ["dataset=rjokes", *TINY[1:]],
        [TINY[0], "model=llama_tiny", TINY[2]],
        [*TINY, "trainer.max_steps=7"],
        [*TINY, "objective=mtp", "objective.heads=2"],
        [*TINY[:2], "scale=hour"],
    ],
)
def test_nothing_is_guessed_for_a_run_of_another_kind(timed_record: MakeRecord, other: list[str]) -> None:
    measured = core_seconds([timed_record(10.0), replace(timed_record(9.0), config={})])
    assert core_hours([(compose(other), 1.0), (compose(TINY), 1.0)], measured) == (10 / 3600, 1)
    assert hours_text(*core_hours([(compose(other), 1.0)], measured)) == "1 run not measured"
    assert hours_text(0.35, 2) == "0.35 + 2 runs not measured"


# ---- disk


def planned(overrides: Sequence[Sequence[str]], outputs: Path) -> tuple[list[Run], dict[str, Config]]:
    todo, _ = plan_runs(overrides, outputs)
    return todo, {run.id: compose(run.overrides) for run in todo}


def needed(overrides: Sequence[Sequence[str]], outputs: Path, at_once: int | None = None) -> int:
    return disk_needed(*planned(overrides, outputs), at_once)


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
    run = [*SMALL, *more]
    assert needed([run], tmp_path, at_once=0) == ended * T5_SMALL * 12
    assert needed([run], tmp_path) == training * T5_SMALL * 12


def test_checkpoints_of_several_runs(tmp_path: Path) -> None:
    runs = [[*SMALL, f"seed={seed}"] for seed in (1, 2, 3)] + [[*SMALL, "trainer.save_steps=0"]]
    checkpoint = T5_SMALL * 12
    assert [needed(runs, tmp_path, n) // checkpoint for n in (1, 2, 3, None)] == [6, 8, 10, 10]
    assert needed([], tmp_path) == 0
    todo, configs = planned(runs, tmp_path)
    (todo[0].folder / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    (todo[0].folder / "checkpoints" / "checkpoint-5" / "weights").write_bytes(b"x" * 1000)
    assert disk_needed(todo, configs, 1) == 6 * checkpoint - 1000


def test_without_training_the_weights_alone(tmp_path: Path) -> None:
    assert needed([[*SMALL, "trainer.max_steps=0"]], tmp_path) == T5_SMALL * 4


def test_adapters_have_the_moments_and_are_stored_beside_the_merged_weights(tmp_path: Path) -> None:
    words = [*SMALL[:3], "model.lora.rank=8", "trainer.save_steps=0"]
    # Adapters of 18 attentions of four layers, and of 12 feed-forward blocks of two.
    adapters = 8 * (18 * 4 * (512 + 512) + 12 * 2 * (512 + 2048))
    assert needed([words], tmp_path) == 4 * (T5_SMALL + adapters) + 8 * adapters


def test_further_heads_count(tmp_path: Path) -> None:
    words = ["dataset=polynomial", "model=llama_tiny", "scale=tiny", "trainer.save_steps=0"]
    linear = [*words, "objective=mtp", "objective.heads=3", "objective.variant=linear"]
    assert needed([linear], tmp_path) - needed([words], tmp_path) == 2 * 64 * 64 * 12


def test_weights_in_a_folder_are_counted_there(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    weights = {"a": torch.zeros(30, 4), "b": torch.zeros(7)}
    save_file(weights, folder / "model-00001.safetensors", metadata={"format": "pt"})
    save_file({"c": torch.zeros(3)}, folder / "model-00002.safetensors")
    places = {"a": "model-00001.safetensors", "b": "model-00001.safetensors", "c": "model-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    words = [*SMALL[:3], f"model.path={folder}", "trainer.save_steps=0"]
    assert needed([words], tmp_path) == (120 + 7 + 3) * 12


# ---- --dry-run


def test_dry_run_counts_a_shared_run_once(
    make_table: Callable[..., Path], timed_record: MakeRecord, tmp_path: Path
) -> None:
    demanded = demands([str(make_table("one", 1, 2)), str(make_table("two", 2, 3))], "tiny", [])
    todo = runs_to_make(demanded, tmp_path)
    measured = core_seconds([timed_record(1800.0, "noisy_numbers")])
    result = dry_run(demanded, todo[1:], measured, 2)
    assert [(row["table"], row["runs"], row["missing"]) for row in [*result["tables"], result["total"]]] in (
        [("one", 4, 3), ("two", 4, 4), ("all", 6, 5)],  # the first is of one table,
        [("one", 4, 4), ("two", 4, 3), ("all", 6, 5)],  # of the other,
        [("one", 4, 3), ("two", 4, 3), ("all", 6, 5)],  # or of both
    )
    total = result["total"]
    assert (total["core_hours"], total["not_measured"], total["steps"], total["done"]) == (2.5, 0, 5 * 500, 1)
    configs = {key: config for demand in demanded for key, config in demand.runs.items()}
    disk = [disk_needed(todo[1:], configs, n) for n in (2, None)]
    assert [total["disk_bytes"], total["slurm_disk_bytes"]] == disk

    lines = [line.split() for line in dry_run_text(result).splitlines()]
    head = ["table", "scale", "runs", "done", "missing", "steps", "core-hours", "disk", "disk", "on", "Slurm"]
    assert lines[0] == head
    assert lines[3] == ["all", "tiny", "6", "1", "5", "2,500", "2.5", figure(disk[0] / 1e9), "GB", *lines[3][9:]]

    nothing = dry_run_text(dry_run(demanded[:1], [], measured, None)).splitlines()
    assert len(nothing) == 2
    assert nothing[1].split() == ["one", "tiny", "4", "4", "0", "0", "0", "0", "GB", "0", "GB"]


def test_epochs_of_data_that_is_not_prepared_are_unknown_steps(small_table: Path, tmp_path: Path) -> None:
    added = ["trainer.epochs=2", f"data_dir={tmp_path}"]
    demanded = demands([str(small_table)], "tiny", [], overrides=added)
    result = dry_run(demanded, runs_to_make(demanded, tmp_path), {}, None)
    assert result["total"]["steps"] is None
    _, line, note = dry_run_text(result).splitlines()
    assert "  unknown  4 runs not measured  " in line
    assert note == "Every run with trainer.epochs=2; what is measured was measured without."
