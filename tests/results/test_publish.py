import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.folders import ROOT
from ntl.launch.publish import publish
from ntl.results import RunRecord, build_table, write_record, write_tables
from ntl.results.check_record import check_record
from ntl.results.record import read_records
from ntl.results.spec import TableSpec, load_table_spec
from ntl.runs.folder import BASES, MANIFEST, WEIGHTS, is_complete, read_json, step_of


def test_a_table_without_records_has_no_files(tmp_path: Path, make_record) -> None:
    record = make_record("ce", 1, {"test/mae": 1.0})
    assert len(write_tables([build_table("quickstart", [record])], tmp_path)) == 2
    (tmp_path / "mine.md").write_text("a file of the user's")
    assert write_tables([build_table("quickstart", [])], tmp_path) == []
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mine.md"]


def test_publish_checks_all_before_it_writes_any(tmp_path: Path, make_record) -> None:
    outputs, target = tmp_path / "outputs", tmp_path / "runs"
    for loss, dirty in (("ce", False), ("was", True)):
        record = make_record("ce", 1, {}, id=f"{loss}-s1", git={"commit": "0123456789", "dirty": dirty})
        source = write_record(outputs / record.id / "record.json", record)
    (source.parent / "predictions.jsonl").write_text("{}")
    (outputs / "broken").mkdir()
    (outputs / "broken" / "record.json").write_text("{")
    (outputs / "running").mkdir()
    (outputs / "running" / "config.yaml").write_text("")
    for run, message in (
        ("broken", r"record\.json:1: broken JSON"),
        ("ce-s2", r"^no run 'ce-s2': neither a run folder nor an id under .*/outputs/\. Did you mean 'ce-s1'\?"),
        ("running", r"has no record\.json: the run has not ended"),
        ("was-s1", r"^was-s1 was started from a source with uncommitted .* --dirty.*$"),
    ):
        with pytest.raises(UserError, match=message):
            publish(["ce-s1", run], outputs, target)
    assert not target.exists()
    with pytest.raises(UserError, match=r"no run 'a': .* There are 0 runs there\."):
        publish(["a"], tmp_path / "none", target)
    # Each copy has the bytes of the record, also where it is there already.
    for runs in (["ce-s1"], ["ce-s1", "was-s1"]):
        found = publish(runs, outputs, target, dirty=True)
        assert [(path, record.id) for path, record in found] == [(target / "noisy_numbers.jsonl", run) for run in runs]
    assert found[0][0].read_text().splitlines(keepends=True)[1:] == [source.read_text()]


def test_two_that_publish_at_once_lose_no_line_and_a_different_record_stops_all(tmp_path: Path, make_record) -> None:
    outputs, target = tmp_path / "outputs", tmp_path / "runs"
    names = [f"run{number}" for number in range(8)]
    for name in names:
        write_record(outputs / name / "record.json", make_record("ce", 1, {}, id=name))
    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(lambda name: publish([name], outputs, target), names)]) == 8
    (file,) = target.glob("*.jsonl")
    assert [record.id for record in read_records(file)] == names
    before = file.read_bytes()
    write_record(outputs / "new" / "record.json", make_record("ce", 1, {}, id="new"))
    write_record(outputs / "run3" / "record.json", make_record("ce", 3, {}, id="run3"), overwrite=True)
    with pytest.raises(UserError, match=r"noisy_numbers\.jsonl: a different record is there"):
        publish(["new", "run3"], outputs, target)
    assert file.read_bytes() == before


@pytest.mark.slow
def test_published_weights_are_those_that_published_runs_started_from(published: list[RunRecord]) -> None:
    started = {base["run"]: base["sha256"] for record in published if (base := record.model.get("base"))}
    checkpoints = sorted(BASES.glob("*/checkpoints/checkpoint-*"))
    assert checkpoints
    for checkpoint in checkpoints:
        run = f"{checkpoint.parents[1].name}@{step_of(checkpoint)}"
        assert is_complete(checkpoint)
        digest = read_json(checkpoint / MANIFEST)[WEIGHTS]
        assert digest == started.get(run, digest), run


@pytest.mark.slow
def test_a_published_record_passes_its_check(published: list[RunRecord]) -> None:
    faults, rows = check_record(of_quickstart(published), published, ROOT)
    assert faults == []
    assert any(row.startswith("quickstart at tiny") and row.endswith("row CE, seed 1") for row in rows)


def of_quickstart(published: list[RunRecord]) -> RunRecord:
    return next(each for each in published if each.id.startswith("noisy_numbers-gpt2_tiny-ce-s1-"))


@pytest.fixture
def quickstart(monkeypatch: pytest.MonkeyPatch) -> TableSpec:
    """The only table that there is."""
    spec = load_table_spec("quickstart")
    monkeypatch.setattr("ntl.results.check_record.table_names", lambda: [spec.name])
    monkeypatch.setattr("ntl.results.check_record.load_table_spec", lambda name: spec)
    return spec


@pytest.mark.usefixtures("quickstart")
def test_each_thing_that_does_not_fit_has_its_line(published: list[RunRecord]) -> None:
    right = of_quickstart(published)
    wrong = replace(
        right,
        seed=2,
        git={"commit": "0" * 40, "dirty": True},
        data={"files": {"train.jsonl": "0" * 64}},
        metrics={**right.metrics, "test/accuracy": 0.9},
        config={**right.config, "trainer": {**right.config["trainer"], "lr": 0.5}},
    )
    expected = [
        "trainer.lr is 0.5 in its config, and 0.0[0-9]+ by its overrides",
        "its seed is 2, and 1 by its overrides",
        "its commit 0+ is not in this repository",
        "its source had uncommitted changes",
        "data.files.train.jsonl differs from [0-9]+ published runs with the same settings",
        "test/accuracy is 0.9, and its answers give 0.[0-9]+",
    ]
    faults, _ = check_record(wrong, published, ROOT)
    assert [bool(re.match(*pair)) for pair in zip(expected, faults, strict=True)] == [True] * len(expected), faults


def test_a_processor_is_compared_within_the_group_of_a_row(published: list, quickstart: TableSpec) -> None:
    record = replace(of_quickstart(published), device="cuda")
    (fault,), (_,) = check_record(record, published, ROOT)
    assert re.search("other rows of this seed ran on cpu .*, this one on cuda: a pair must not mix processors", fault)
    for row in quickstart.blocks[0].rows:
        row.group = row.label
    assert check_record(record, published, ROOT)[0] == []
