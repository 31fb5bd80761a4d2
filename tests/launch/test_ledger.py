import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import compose
from ntl.config.identity import plain
from ntl.costs.runs import Costs
from ntl.launch import ledger as module
from ntl.launch.ledger import HEAD, dry_run, dry_run_text, figure, hours, ledger, write_ledger
from ntl.launch.plan import base_run, demands, runs_to_make
from ntl.results import RunRecord, table_runs
from ntl.results.spec import load_table_spec, table_names

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


@pytest.fixture
def one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "table_names", lambda: ["quickstart"])


@pytest.mark.usefixtures("one_table")
def test_the_same_records_give_the_same_page(timed_record: Callable[..., RunRecord], tmp_path: Path) -> None:
    records = [timed_record(3600.0, name) for name in ("noisy_numbers", "multiplication")]
    page = tmp_path / "costs.md"
    page.write_text("old")
    write_ledger(page, records)
    text = page.read_text()
    assert text == f"{HEAD}\n{ledger(records)}\n"
    assert re.search(
        r"^\| quickstart \| tiny \| 15 \| - \| 15 \(CPU\) \| 0\.\d+ GB \| measured \|$", text, re.MULTILINE
    )
    write_ledger(page, records)
    assert page.read_text() == text


def test_the_ledger_prints_epochs_and_calls_the_authors_presets_so(
    timed_record: Callable[..., RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = timed_record(60.0, "gsm8k", data={"rows": {"train": 6_000}})
    record.config["dataset"] = plain(compose(["dataset=gsm8k"]).dataset)
    monkeypatch.setattr(module, "table_names", lambda: ["table9"])
    text = ledger([record])
    # 300 steps of 16, 10,000 of 256, 2,500,000 of 32 examples, over 6,000 rows.
    assert re.search(r"^\| table9 \| tiny \| 9 \| 0\.80 \|.* measured \|$", text, re.MULTILINE)
    assert re.search(r"^\| table9 \| small \| 9 \| 427 \|.* estimated \|$", text, re.MULTILINE)
    assert re.search(r"^\| table9 \| paper \| 3 \| 13,333 \|.* upper preset \|$", text, re.MULTILINE)
