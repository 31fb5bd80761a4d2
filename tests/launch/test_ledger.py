"""How far tables are and what they cost: --status, --dry-run and results/costs.md."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runs import run

from ntl.config import UserError, compose, run_id
from ntl.config.identity import recorded
from ntl.costs.runs import CPU, Cost, Costs
from ntl.launch import ledger as module
from ntl.launch.ledger import (
    HEAD,
    State,
    Status,
    dry_run,
    dry_run_text,
    figure,
    hours,
    ledger,
    seconds_left,
    status_text,
    statuses,
    write_ledger,
)
from ntl.launch.plan import base_run, demands, runs_to_make
from ntl.launch.slurm import Job, mark
from ntl.results import RunRecord, load_records, table_runs
from ntl.results.spec import load_table_spec, table_names
from ntl.system.locks import lock

PAGE = Path(__file__).resolve().parents[2] / "results" / "costs.md"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.0349, "0.035"), (0.35, "0.35"), (3.04, "3.0"), (9.96, "10.0"), (14.4, "14"), (1443.0, "1,400")],
)
def test_two_digits(value: float, text: str) -> None:
    assert figure(value) == text


def test_hours_name_their_device() -> None:
    assert hours({"CPU": 1260.0, "H100": 34200.0}) == "0.35 (CPU) + 9.5 (H100)"
    assert hours({}) == "0"


def test_every_table_and_scale_is_in_the_published_ledger_with_its_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(HEAD), "make costs"
    rows = {
        (name, scale): (int(runs), basis)
        for name, scale, runs, basis in re.findall(
            r"^\| (\w+) \| (\w+) \| (\d+) \| [^|]+ \| [^|]+ \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE
        )
    }
    specs = {name: load_table_spec(name) for name in table_names()}
    # A table may ask for one run twice, which the ledger counts once; it counts what runs begin from, too.
    most = {
        (name, scale): len(runs) + len(set(map(base_run, map(tuple, runs))) - {()})
        for name, spec in specs.items()
        for scale in spec.scales
        for runs in [table_runs(spec, scale)]
    }
    assert rows.keys() == most.keys(), "make costs"
    assert all(0 < runs <= most[key] for key, (runs, _) in rows.items()), "make costs"
    assert all("measured" in basis or basis in ("estimated", "upper preset") for _, basis in rows.values())
    assert all((basis == "upper preset") == (scale == "paper") for (_, scale), (_, basis) in rows.items())
    assert text.count("all, each run once") == 4


def test_dry_run_counts_a_shared_run_once(
    make_table: Callable[..., Path], timed_record: Callable[..., RunRecord], tmp_path: Path
) -> None:
    demanded = demands([str(make_table("one", 1, 2)), str(make_table("two", 2, 3))], "tiny", [])
    todo = [run.id for run in runs_to_make(demanded, tmp_path)]
    costs = Costs([timed_record(1800.0, "noisy_numbers")])
    result = dry_run(demanded, todo[1:], costs)
    assert [(row["table"], row["runs"], row["missing"]) for row in [*result["tables"], result["total"]]] in (
        [("one", 4, 3), ("two", 4, 4), ("all", 6, 5)],  # the first is of one table,
        [("one", 4, 4), ("two", 4, 3), ("all", 6, 5)],  # of the other,
        [("one", 4, 3), ("two", 4, 3), ("all", 6, 5)],  # or of both
    )
    total = result["total"]
    assert (total["seconds"], total["basis"], total["done"]) == ({"CPU": 9000.0}, "measured", 1)

    lines = dry_run_text(result, workers=2).splitlines()
    assert lines[0].split() == ["table", "scale", "runs", "done", "missing", "hours", "of", "these", "disk", "basis"]
    assert lines[3].split()[:7] == ["all", "tiny", "6", "1", "5", "2.5", "(CPU)"]
    assert lines[4] == "In 2 worker processes: about 1 h 15 min."

    nothing = dry_run(demanded[:1], [], costs)
    lines = dry_run_text(nothing, workers=1).splitlines()
    assert lines[1].split() == ["one", "tiny", "4", "4", "0", "0", "0", "GB"]
    assert not lines[2].startswith(("all", "In"))


def test_the_same_records_give_the_same_page(
    timed_record: Callable[..., RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "table_names", lambda: ["quickstart"])
    records = [timed_record(3600.0, name) for name in ("noisy_numbers", "multiplication")]
    page = tmp_path / "costs.md"
    page.write_text("old")
    write_ledger(page, records)
    text = page.read_text()
    assert text == f"{HEAD}\n{ledger(records)}\n"
    assert re.search(r"^\| quickstart \| tiny \| 15 \| - \| 15 \(CPU\) \| 0\.\d+ GB \| measured \|$", text, re.M)
    write_ledger(page, records)
    assert page.read_text() == text


def test_the_ledger_prints_epochs_and_calls_the_authors_presets_so(
    timed_record: Callable[..., RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = timed_record(60.0, "gsm8k", data={"rows": {"train": 6_000}})
    record.config["dataset"] = recorded(compose(["dataset=gsm8k"]))["dataset"]
    monkeypatch.setattr(module, "table_names", lambda: ["table9"])
    text = ledger([record])
    # 300 steps of 16, 10,000 of 256, 2,500,000 of 32 examples, over 6,000 rows.
    assert re.search(r"^\| table9 \| tiny \| 9 \| 0\.80 \|.* measured \|$", text, re.M)
    assert re.search(r"^\| table9 \| small \| 9 \| 427 \|.* estimated \|$", text, re.M)
    assert re.search(r"^\| table9 \| paper \| 3 \| 13,333 \|.* upper preset \|$", text, re.M)


# ---- --status


@pytest.fixture
def folders(small_table: Path, tmp_path: Path) -> Any:
    """Run folders of the small table: one with a record, one that somebody is at, one with a log, one untouched."""
    (demand,) = demands([str(small_table)], "tiny", [])
    places = [[*overrides, f"output_dir={tmp_path}"] for overrides in demand.missing]
    configs = [compose(words) for words in places]
    folders = [tmp_path / run_id(config) for config in configs]
    run(configs[0], overrides=places[0])
    for folder in folders[1:3]:
        folder.mkdir()
        (folder / "metrics.jsonl").write_text('{"step": 25}\n')
    (folders[2] / "run.log").write_text("Traceback\nValueError: no such thing\n")
    with lock(tmp_path / f".{folders[1].name}.lock"):
        yield folders


def found(small_table: Path, tmp_path: Path) -> list[Status]:
    return statuses(demands([str(small_table)], "tiny", load_records([tmp_path])), tmp_path)


def test_states_without_slurm(folders: list[Path], small_table: Path, tmp_path: Path) -> None:
    by_id = {each.id: each for each in found(small_table, tmp_path)}
    states = [by_id[folder.name].state for folder in folders]
    assert states == [State.done, State.running, State.failed, State.missing]
    assert by_id[folders[1].name].detail == "step 25/500"
    assert by_id[folders[2].name].detail == "ValueError: no such thing"
    demanded = demands([str(small_table)], "tiny", load_records([tmp_path]))
    # An hour each, of which two runs have made 25 of 500 steps.
    costs: Any = SimpleNamespace(of=lambda config: Cost(3600.0, CPU, True, 0, 0))
    left = seconds_left(demanded, by_id.values(), costs)
    assert left == {CPU: pytest.approx(3600 * (1 + 2 * 0.95))}
    lines = status_text(list(by_id.values()), left, 2).splitlines()
    assert lines == [
        "1 done, 1 running, 0 queued, 1 failed, 1 missing of 4 runs",
        "Hours left, from measured runs or estimates (--dry-run): 2.9 (CPU). In 2 worker processes: about 1 h 27 min.",
        f"running {by_id[folders[1].name].label}: step 25/500",
        f"failed  {by_id[folders[2].name].label}: ValueError: no such thing",
    ]


def test_states_of_jobs(
    folders: list[Path], small_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.err"
    log.write_text("srun: Killed\n")
    mark(folders[2], Job("7_0", log))
    mark(folders[3], Job("7_1", log))

    def details(states: dict[str, str]) -> list[tuple[State, str]]:
        monkeypatch.setattr(module, "job_states", lambda: states)
        by_id = {each.id: each for each in found(small_table, tmp_path)}
        return [(by_id[folder.name].state, by_id[folder.name].detail) for folder in folders[2:]]

    assert details({"7_0": "RUNNING", "7_1": "PENDING"}) == [
        (State.running, "step 25/500, job 7_0"),
        (State.queued, "pending, job 7_1"),
    ]
    # The job is over or forgotten: its run's own log says more than the job's.
    assert details({"7_0": "FAILED"}) == [
        (State.failed, "ValueError: no such thing"),
        (State.failed, "srun: Killed"),
    ]

    def no_slurm() -> None:
        raise UserError("no squeue here")

    monkeypatch.setattr(module, "job_states", no_slurm)
    assert [each.state for each in found(small_table, tmp_path)].count(State.failed) == 2
