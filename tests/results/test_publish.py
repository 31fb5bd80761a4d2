"""Records are checked before they are published, with the worst answers that `evaluate.py --worst` prints."""

import json
import re
import runpy
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.folders import ROOT
from ntl.decoding.predictor import predict
from ntl.evaluation import read_predictions, score_predictions, write_predictions
from ntl.launch.publish import publish
from ntl.results import RunRecord, build_table, read_record, write_record, write_tables
from ntl.results.check_record import check_record
from ntl.results.record import read_records
from ntl.results.spec import TableSpec, load_table_spec
from ntl.runs.folder import BASES, MANIFEST, WEIGHTS, is_complete, read_json, step_of
from ntl.system.files import sha256_of


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


# ---- the worst answers of a run, as `evaluate.py --worst` prints them and as a published record keeps them

evaluate, publishing = (
    runpy.run_path(str(ROOT / "scripts" / f"{name}.py"))["main"] for name in ("evaluate", "publish")
)


@pytest.fixture
def answered(finished: Path, no_tables: None) -> Path:
    """A run whose answers are right but for three: 1000 away, of the other sign, and without a number."""
    path = finished / "predictions.jsonl"
    lines = path.read_text().splitlines()
    rows = [json.loads(line) for line in lines[1:]]
    for row in rows:
        row["prediction"] = row["answer"]
    rows[0]["prediction"] = "none"
    rows[1]["prediction"] = f"-{rows[1]['answer']}"
    rows[2]["prediction"] = str(1000 + int(rows[2]["answer"]))
    path.write_text("\n".join([lines[0], *map(json.dumps, rows)]) + "\n")
    record = read_record(finished / "record.json")
    scores = score_predictions(path).metrics
    metrics = record.metrics | {key: None if isnan(value) else value for key, value in scores.items()}
    record = replace(record, predictions_sha256=sha256_of(path), metrics=metrics)
    write_record(finished / "record.json", record, overwrite=True)
    return finished


def test_the_worst_answers_by_hand(answered: Path, prepared, small, capsys: pytest.CaptureFixture[str]) -> None:
    header, rows = read_predictions(answered / "predictions.jsonl")
    lines = (prepared(small()) / "test.jsonl").read_text().splitlines()
    texts = [json.loads(line)["question"] for line in lines]
    evaluate([str(answered), "--worst", "20", "--json"])
    found = json.loads(capsys.readouterr().out)["test"]
    assert [line["question"] for line in found] == [texts[2], texts[1], texts[0]]
    assert [line["error"] for line in found] == [1000.0, 2.0 * float(rows[1]["answer"]), None]
    evaluate([str(answered), "--worst", "1"])
    printed = capsys.readouterr().out
    assert texts[2] in printed
    assert texts[1] not in printed
    # An answer of another data set, such as `predict.py RUN dataset=...` writes beside, has the same id.
    path = answered / "predictions-greedy-1-other.jsonl"
    write_predictions(path, header, [rows[0] | {"answer": "7"}, *rows[1:]])
    with pytest.raises(UserError, match=f"no questions: {rows[0]['id']} is not of the test questions of this run"):
        evaluate([str(path), "--worst", "1"])


def test_a_published_record_keeps_the_worst(answered: Path) -> None:
    """Once published, a record stays as it is, whatever the predictions are by then."""
    words = [answered.name, "--outputs", str(answered.parent), "--out", str(answered.parent / "runs"), "--dirty"]
    publishing(words)
    path = answered.parent / "runs" / "noisy_numbers.jsonl"
    record, content = read_record(path), path.read_bytes()
    assert [each["error"] for each in record.worst["test"]] == [1000.0, record.worst["test"][1]["error"], None]
    assert record.worst["test"][0].keys() == {"question", "answer", "prediction", "error"}
    assert sorted(map(str, record.typical["test"])) == sorted(map(str, record.worst["test"]))  # so few are wrong
    (answered / "predictions.jsonl").unlink()
    publishing(words)
    assert path.read_bytes() == content


@pytest.mark.usefixtures("no_tables")
def test_the_record_of_another_run_is_refused_whatever_the_folder_is_called(
    finished: Path, copy_of, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other, out = finished.name, copy_of("seed=2"), tmp_path / "runs"
    shutil.copyfile(other / "record.json", finished / "record.json")
    folder = finished.rename(tmp_path / other.name)
    path = folder / "record.json"
    message = (
        f"{path}: the record of another run, {other.name}; config.yaml beside it is of {own}: restore it, or remove it."
    )
    for read in (
        lambda: publishing([str(folder), "--out", str(out), "--dirty"]),
        lambda: publishing(["--check", str(path), "--out", str(out)]),
        lambda: evaluate([str(folder)]),
        lambda: predict(folder),
    ):
        with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
            read()
    assert not out.exists()
    capsys.readouterr()
    evaluate([str(folder), "--json", "--force"])
    assert json.loads(capsys.readouterr().out)["test/count"] == 30


def test_edited_answers_are_not_published(answered: Path, tmp_path: Path) -> None:
    """Nor the worst ones that a record has before it is published: they may be of any answers."""
    folder, out = answered.rename(tmp_path / "elsewhere"), tmp_path / "runs"
    words, path = [str(folder), "--out", str(out), "--dirty"], folder / "predictions.jsonl"
    content, record = path.read_bytes(), read_record(folder / "record.json")
    write_record(folder / "record.json", replace(record, worst={"test": [{}]}), overwrite=True)
    path.write_bytes(content.replace(b'"none"', b'"1"'))
    for command in (words, ["--check", str(folder / "record.json")]):
        with pytest.raises(UserError, match=f"^{path}: not the predictions that record.json was computed from"):
            publishing(command)
    assert not out.exists()
    path.write_bytes(content)
    edited = replace(record, metrics=record.metrics | {"test/mae": 0.5})
    write_record(folder / "record.json", edited, overwrite=True)
    with pytest.raises(UserError, match=r"test/mae is 0\.5, and its predictions give "):
        publishing(words)
    assert not out.exists()
    write_record(folder / "record.json", record, overwrite=True)
    publishing(words)
    assert len(read_record(out / "noisy_numbers.jsonl").worst["test"]) == 3
