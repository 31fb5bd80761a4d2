"""Runs that begin from another's weights: that one is made first, once, and counted."""

import io
from collections.abc import Callable
from pathlib import Path

import fake_runs
import pytest
from rich.console import Console

from ntl.config import compose, run_id
from ntl.launch import complete_tables
from ntl.launch.demand import demands, missing
from ntl.launch.status import State, statuses
from ntl.launch.sweep import sweep_missing
from ntl.results import load_records
from ntl.training.checkpoints import checkpoint_at

BASE = "base='loss=ce trainer.max_steps=40@30'"


@pytest.fixture
def table(make_table: Callable[..., Path]) -> Path:
    """Two arms and, as a row of its own, CE from scratch, for each of two seeds."""
    path = make_table("arms", 1, 2)
    text = path.read_text().replace("tokenizer=digit]", f'tokenizer=digit, "{BASE}", trainer.max_steps=50]')
    path.write_text(text)
    return path


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
    assert [run.id for run in missing([demand], outputs)][::3] == bases  # each right before the two arms of its seed

    code, made = complete(table, outputs, target)
    assert (code, len(made)) == (0, 6)
    begun = {arm: _base(outputs, arm).partition("@")[0] for arm in made if arm not in bases}
    assert set(begun.values()) == set(bases)
    assert all(made.index(base) < made.index(arm) for arm, base in begun.items())
    assert all(checkpoint_at(outputs / base, 30).is_dir() for base in bases)
    assert complete(table, outputs, target) == (0, [])


def _base(outputs: Path, run: str) -> str:
    (record,) = load_records([outputs / run])
    return record.config["base"]


def test_a_base_is_made_where_a_run_from_it_is_missing(table: Path, target: str, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    complete(table, outputs, target)
    published = load_records([outputs])
    # Elsewhere, with the records alone: nothing is missing.
    (demand,) = demands([str(table)], "tiny", published)
    assert (demand.lacking, missing([demand], tmp_path / "other")) == ({}, [])
    # Without those of one arm: the arm, and what it begins from.
    arm = next(record for record in published if record.config["base"])
    (demand,) = demands([str(table)], "tiny", [record for record in published if record.id != arm.id])
    todo = missing([demand], tmp_path / "other")
    assert [run.id for run in todo] == [arm.config["base"].partition("@")[0], arm.id]
    assert [status.state for status in statuses([demand], tmp_path / "other")].count(State.missing) == 2


def test_a_launcher_of_hydra_gets_bases_before_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ntl.training.run", fake_runs.run, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shared = ["dataset=noisy_numbers", "seed=1"]
    runs = [
        [*shared, "loss=ntl_was", "trainer.max_steps=50", BASE],
        [*shared, "loss=ce", "trainer.max_steps=40", "keep_steps=[30]"],
    ]
    with capfd.disabled():
        report = sweep_missing(runs, "basic", root=tmp_path)
    assert [run.label for run in report.done] == ["noisy_numbers ce seed 1", "noisy_numbers ntl_was seed 1"]


def test_a_run_that_two_others_begin_from_keeps_both_checkpoints(tmp_path: Path) -> None:
    from ntl.launch.plan import plan_runs

    words = ["dataset=noisy_numbers", "loss=ce", "trainer.max_steps=40"]
    todo, _ = plan_runs([words, [*words, "keep_steps=[30]"], [*words, "keep_steps=[10]"]], tmp_path)
    assert [run.keep_steps for run in todo] == [(10, 30)]
    assert compose(todo[0].overrides).keep_steps == [10, 30]
