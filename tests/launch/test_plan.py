"""Which runs tables need: each once, without those that have a record, and bases before the runs that need them."""

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import fake_runs
import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

from ntl.config import UserError, compose, run_id
from ntl.launch import complete_tables
from ntl.launch.plan import Run, demands, missing_overrides, plan_runs, runs_to_make
from ntl.launch.status import statuses
from ntl.results import load_records
from ntl.training.checkpoints import checkpoint_at, write_manifest

NOISY = ["dataset=noisy_numbers", "loss=ce"]
BASE = "base='loss=ce trainer.max_steps=40@30'"


def finish(overrides: Sequence[str], outputs: Path) -> None:
    words = [*overrides, f"output_dir={outputs}"]
    fake_runs.run(compose(words), overrides=words)


def test_each_run_once_and_those_with_a_record_apart(tmp_path: Path) -> None:
    one, two = ([*NOISY, f"seed={seed}"] for seed in (1, 2))
    done = tmp_path / run_id(compose(two))
    done.mkdir()
    (done / "record.json").write_text("{}")
    todo, have = plan_runs([one, two, ["seed=1", *NOISY]], tmp_path)
    assert [(run.label, run.folder) for run in todo] == [("noisy_numbers ce seed 1", tmp_path / run_id(compose(one)))]
    assert [run.folder for run in have] == [done]


def test_the_order_given_and_a_base_right_before_the_first_run_that_begins_from_it(tmp_path: Path) -> None:
    def arm(seed: int, loss: str) -> list[str]:
        return ["dataset=noisy_numbers", f"loss={loss}", f"seed={seed}", "base='loss=ce trainer.max_steps=9@9'"]

    bases = [[*NOISY, f"seed={seed}", "trainer.max_steps=9"] for seed in (1, 2)]
    long = [*NOISY, "seed=3", "trainer.max_steps=90"]
    arms = [arm(seed, loss) for seed in (1, 2) for loss in ("ce", "ntl_was")]
    todo, _ = plan_runs([*bases, *arms, long], tmp_path)
    ids = [run_id(compose(overrides)) for overrides in (bases[0], *arms[:2], bases[1], *arms[2:], long)]
    assert [run.id for run in todo] == ids


@pytest.mark.parametrize("name", ["a,b=c", "it's [x]{y}"])
def test_any_folder_name_reaches_the_config(tmp_path: Path, name: str) -> None:
    (run,), _ = plan_runs([NOISY], tmp_path / name)
    assert run.folder.parent == tmp_path / name
    assert compose(run.overrides).output_dir == str(tmp_path / name)


def test_a_place_with_a_dollar_is_that_place(tmp_path: Path) -> None:
    """Hydra would take it for an interpolation, and the runs would go where nobody looks."""
    with pytest.raises(UserError, match=r"^output_dir=.*/\$\{seed\}: .* write the value"):
        plan_runs([["dataset=noisy_numbers", "seed=1"]], tmp_path / "${seed}")


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ('{"step": 25}\n{"step": 5', 25),
        ('{"step": 25}\n{"note": "no step"}\n[1]\n', 25),
        ("not json\n", 0),
    ],
)
def test_step_is_the_last_whole_line_with_one(make_run: Callable[..., Run], text: str, step: int) -> None:
    run = make_run()
    (run.folder / "metrics.jsonl").write_text(text)
    assert run.step(since=0.0) == step
    os.utime(run.folder / "metrics.jsonl", (1000.0, 1000.0))
    assert run.step(since=1001.0) == 0  # of an earlier attempt


def test_runs_by_id_and_what_lacks_a_record(small_table: Path, tmp_path: Path) -> None:
    (demand,) = demands([str(small_table)], "tiny", [])
    assert len(demand.runs) == 4
    assert all(run_id(config) == key for key, config in demand.runs.items())
    assert set(demand.missing.values()) == set(demand.runs)

    first, key = next(iter(demand.missing.items()))
    finish(first, tmp_path)
    (after,) = demands([str(small_table)], "tiny", load_records([tmp_path]))
    assert after.runs.keys() == demand.runs.keys()
    assert set(demand.missing.values()) - set(after.missing.values()) == {key}


def test_in_wandb_the_runs_of_a_table_are_a_group(small_table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where W&B is told at all: the overrides of other runs stay what they were."""
    (demand,) = demands([str(small_table)], "tiny", [])
    assert missing_overrides([demand]) == list(demand.missing)
    monkeypatch.setenv("WANDB_MODE", "offline")
    grouped = missing_overrides([demand])
    assert grouped == [(*overrides, f"tracking.group='{demand.spec.name}'") for overrides in demand.missing]
    assert [run_id(compose(overrides)) for overrides in grouped] == list(demand.missing.values())
    (own,) = demands([str(small_table)], "tiny", [], overrides=["tracking.group=mine"])
    assert missing_overrides([own]) == list(own.missing)


def test_a_run_of_two_tables_is_one(make_table: Callable[..., Path], tmp_path: Path) -> None:
    pair = demands([str(make_table("one", 1, 2)), str(make_table("two", 2, 3))], "tiny", [])
    shared = pair[0].runs.keys() & pair[1].runs.keys()
    assert len(shared) == 2
    ids = [run.id for run in runs_to_make(pair, tmp_path)]
    assert len(ids) == len(set(ids)) == 6


def test_a_table_without_the_scale_is_skipped_with_a_line(small_table: Path) -> None:
    lines: list[str] = []
    (demand,) = demands([str(small_table), "table8"], "paper", [], lines.append)
    assert demand.spec.name == "table8"
    assert lines == ["small: nothing at scale=paper, skipped; it has tiny."]
    with pytest.raises(UserError, match=r"nothing at scale=paper; choose from tiny[.]$"):
        demands([str(small_table)], "paper", [], lines.append)


def test_some_seeds_of_a_table(small_table: Path) -> None:
    (both,), (second,) = (demands([str(small_table)], "tiny", [], seeds=seeds) for seeds in ((), (2,)))
    assert len(second.runs) == len(both.runs) / 2
    assert {config.seed for config in second.runs.values()} == {2}
    with pytest.raises(UserError, match=r"^seeds=7: at scale=tiny small has 1, 2; choose from these\.$"):
        demands([str(small_table)], "tiny", [], seeds=[1, 7])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.weight=0.5", "small sets loss.weight itself, as in the row 'NTL-WAS'; leave it out, .*table=FILE.yaml"),
        ("model=t5_tiny", "small sets model itself, as in the row .*"),
        ("dataset=gsm8k", "small sets dataset itself, as in the row .*"),
    ],
)
def test_what_rows_pin_is_not_overridden(override: str, message: str, small_table: Path) -> None:
    with pytest.raises(UserError, match=f"^{override}: {message}"):
        demands([str(small_table)], "tiny", [], overrides=[override])


def test_what_the_scale_sets_is_overridden_and_is_in_the_ids(small_table: Path) -> None:
    """A recipe's values, those of the scale's own file and places, on top of what the rows say."""
    overrides = ["trainer.lr=1e-4", "dataset.train_rows=50", "dataset.seed=${seed}", "data_dir=elsewhere"]
    (plain,), (other,) = (demands([str(small_table)], "tiny", [], overrides=words) for words in ([], overrides))
    assert len(plain.runs) == len(other.runs) == 4
    assert not plain.runs.keys() & other.runs.keys()
    for config in other.runs.values():
        assert (config.trainer.lr, config.data_dir) == (1e-4, "elsewhere")
        assert (config.dataset.train_rows, config.dataset.seed) == (50, config.seed)


def test_neither_table_takes_the_records_of_the_other(small_table: Path, tmp_path: Path) -> None:
    def count(*overrides: str) -> int:
        (demand,) = demands([str(small_table)], "tiny", load_records([tmp_path]), overrides=overrides)
        return len(demand.missing)

    (other,) = demands([str(small_table)], "tiny", [], overrides=["trainer.lr=1e-4"])
    for overrides in other.missing:
        finish(overrides, tmp_path)
    assert (count(), count("trainer.lr=1e-4"), count("trainer.lr=0.0001")) == (4, 0, 0)
    (plain,) = demands([str(small_table)], "tiny", [])
    finish(next(iter(plain.missing)), tmp_path)
    assert (count(), count("trainer.lr=1e-4")) == (3, 0)


def test_one_models_files_are_for_rows_of_one_model(make_table: Callable[..., Path], tmp_path: Path) -> None:
    ours, folder = make_table("ours", 1), tmp_path / "weights"
    two = make_table("two", 1, overrides=["model=llama_tiny", "tokenizer=digit"])
    folder.mkdir()
    for name in ("config.json", "vocab.json", "merges.txt"):
        (folder / name).write_text("{}")
    save_file({"wte": torch.zeros(2, 3)}, folder / "model.safetensors")
    path = f"model.path={folder}"
    with pytest.raises(UserError, match=r"one model's files, and the rows have 2 \(gpt2_tiny, llama_tiny\);"):
        demands([str(ours), str(two)], "tiny", [], overrides=[path])
    published = make_table("published", 1, overrides=["model=gpt2_small", "tokenizer=digit"])
    (demand,) = demands([str(published)], "tiny", [], overrides=[path])
    assert all(config.model.path == str(folder) and config.model.pretrained for config in demand.runs.values())
    # A stand-in is made from scratch.
    with pytest.raises(UserError, match=r"model=gpt2_tiny model\.path=.*: this model has random weights"):
        demands([str(ours)], "tiny", [], overrides=[path])


# ---- runs that start from the weights of others


@pytest.fixture
def table(make_table: Callable[..., Path]) -> Path:
    """Two arms for each of two seeds."""
    return make_table("arms", 1, 2, overrides=["model=gpt2_tiny", "tokenizer=digit", BASE, "trainer.max_steps=50"])


def complete(table: Path, outputs: Path, target: str) -> tuple[int, list[str]]:
    out = io.StringIO()
    report = complete_tables(
        [str(table)], "tiny", records=[outputs], outputs=outputs, workers=2, target=target, console=Console(file=out)
    )
    return report.exit_code, [run.id for run in report.done]


def test_a_base_is_made_before_its_arms_and_once(table: Path, target: str, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    bases = [run_id(compose(["dataset=noisy_numbers", "loss=ce", "trainer.max_steps=40", f"seed={s}"])) for s in (1, 2)]
    (demand,) = demands([str(table)], "tiny", [])
    assert len(demand.runs) == 6
    assert [run.id for run in runs_to_make([demand], outputs)][::3] == bases  # each before the two arms of its seed

    code, made = complete(table, outputs, target)
    assert (code, len(made)) == (0, 6)
    started_from = {record.id: record.config["base"] for record in load_records([outputs])}
    begun = {arm: started_from[arm].partition("@")[0] for arm in made if arm not in bases}
    assert set(begun.values()) == set(bases)
    assert all(made.index(base) < made.index(arm) for arm, base in begun.items())
    assert all(checkpoint_at(outputs / base, 30).is_dir() for base in bases)
    assert complete(table, outputs, target) == (0, [])


def test_a_base_is_made_where_a_run_from_it_is_missing(
    table: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = tmp_path / "outputs"
    complete(table, outputs, target)
    published = load_records([outputs])
    # Elsewhere, with the records alone: nothing is missing.
    (demand,) = demands([str(table)], "tiny", published)
    assert (demand.missing, runs_to_make([demand], tmp_path / "other")) == ({}, [])
    # Without those of one arm: the arm, and what it begins from.
    arm = next(record for record in published if record.config["base"])
    (demand,) = demands([str(table)], "tiny", [record for record in published if record.id != arm.id])
    todo = runs_to_make([demand], tmp_path / "other")
    assert [run.id for run in todo] == [arm.config["base"].partition("@")[0], arm.id]
    assert [status.state for status in statuses([demand], tmp_path / "other")].count("missing") == 2
    # With the published weights of what it begins from: the arm alone.
    base, _, step = arm.config["base"].partition("@")
    weights = checkpoint_at(tmp_path / "bases" / base, int(step))
    weights.mkdir(parents=True)
    (weights / "model.safetensors").touch()
    write_manifest(weights)
    monkeypatch.setattr("ntl.launch.plan.BASES", tmp_path / "bases")
    (demand,) = demands([str(table)], "tiny", [record for record in published if record.id != arm.id])
    assert [run.id for run in runs_to_make([demand], tmp_path / "other")] == [arm.id]


def test_a_run_that_two_others_begin_from_keeps_both_checkpoints(tmp_path: Path) -> None:
    words = ["dataset=noisy_numbers", "loss=ce", "trainer.max_steps=40"]
    todo, _ = plan_runs([words, [*words, "keep_steps=[30]"], [*words, "keep_steps=[10]"]], tmp_path)
    assert [run.keep_steps for run in todo] == [(10, 30)]
    assert compose(todo[0].overrides).keep_steps == [10, 30]
