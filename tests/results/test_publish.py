from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results import build_table, publish_runs, write_record, write_tables
from ntl.results.publish import write_index, write_text


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


def test_files_of_tables_are_stable(tmp_path: Path, make_record) -> None:
    tables = [build_table("quickstart", [make_record("ce", 1, {"test/mae": 1.0})])]
    paths = [*write_tables(tables, tmp_path / "out"), write_index(tables, tmp_path / "out")]
    names = ["quickstart_tiny.md", "quickstart_tiny.tex", "quickstart_tiny.csv", "README.md"]
    assert [path.name for path in paths] == names
    before = snapshot(tmp_path / "out")
    write_tables(tables, tmp_path / "out")
    write_index(tables, tmp_path / "out")
    assert snapshot(tmp_path / "out") == before
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "| quickstart | tiny | 1 | 14 | [md](quickstart_tiny.md) [tex]" in readme
    assert tables[0].markdown() in readme


def test_a_copy_has_the_bytes_of_the_record(tmp_path: Path, make_record) -> None:
    source = write_record(tmp_path / "outputs" / "a" / "record.json", make_record("ce", 1, {"test/mae": 1.0}))
    (source.parent / "predictions.jsonl").write_text("{}")
    for _ in range(2):
        assert publish_runs(["a"], tmp_path / "outputs", tmp_path / "runs") == [tmp_path / "runs" / "ce-0.3-s1.json"]
    assert [path.read_bytes() for path in (tmp_path / "runs").iterdir()] == [source.read_bytes()]


def test_publish_checks_all_before_it_writes_any(tmp_path: Path, make_record) -> None:
    outputs, target = tmp_path / "outputs", tmp_path / "runs"
    write_record(outputs / "ce-0.3-s1" / "record.json", make_record("ce", 1, {}))
    (outputs / "broken").mkdir()
    (outputs / "broken" / "record.json").write_text("{")
    (outputs / "running").mkdir()
    (outputs / "running" / "config.yaml").write_text("")
    for run, message in (
        ("broken", r"record\.json:1: broken JSON"),
        ("ce-0.3-s2", r"no run 'ce-0\.3-s2': .* Did you mean 'ce-0\.3-s1'\?"),
        ("running", r"has no record\.json: the run has not ended"),
    ):
        with pytest.raises(UserError, match=message):
            publish_runs(["ce-0.3-s1", run], outputs, target)
    assert not target.exists()
    with pytest.raises(UserError, match="There are 0 runs there"):
        publish_runs(["a"], tmp_path / "none", target)


def test_published_results_are_not_replaced(tmp_path: Path, make_record) -> None:
    write_record(tmp_path / "runs" / "ce-0.3-s1.json", make_record("ce", 1, {"test/mae": 2.0}))
    write_record(tmp_path / "outputs" / "ce-0.3-s1" / "record.json", make_record("ce", 1, {"test/mae": 1.0}))
    with pytest.raises(UserError, match="a different record is there already"):
        publish_runs(["ce-0.3-s1"], tmp_path / "outputs", tmp_path / "runs")


@pytest.mark.parametrize("name", ["../../stolen", "/stolen", "a/b", "..", ""])
def test_an_id_is_never_a_path(tmp_path: Path, make_record, name: str) -> None:
    path = write_record(tmp_path / "outputs" / "a" / "record.json", make_record("ce", 1, {}))
    path.write_text(path.read_text().replace('"id":"ce-0.3-s1"', f'"id":"{name}"'))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"record\.json: id=.*: not a plain name"):
        publish_runs(["a"], tmp_path / "outputs", tmp_path / "deep" / "runs")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture(params=["a file in its place", "read-only"])
def closed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder that nobody can write to, not even root."""
    folder = tmp_path / "closed"
    if request.param == "read-only":
        folder.mkdir()
        request.getfixturevalue("make_read_only")(folder)
    else:
        folder.write_text("")
    return folder


def test_a_folder_that_cannot_be_written_to(closed: Path, tmp_path: Path, make_record) -> None:
    source = write_record(tmp_path / "outputs" / "a" / "record.json", make_record("ce", 1, {"test/mae": 1.0}))
    before = source.read_bytes()
    with pytest.raises(UserError, match=rf"^cannot publish to {closed}: (File exists|Read-only file system).*\.$"):
        publish_runs(["a"], tmp_path / "outputs", closed)
    table = build_table("quickstart", [make_record("ce", 1, {"test/mae": 1.0})])
    reasons = "File exists|Not a directory|Read-only file system"
    with pytest.raises(UserError, match=rf"^cannot write {closed}/quickstart_tiny.md: ({reasons}).*\.$"):
        write_tables([table], closed)
    assert source.read_bytes() == before


def test_a_text_that_could_not_be_written_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UserError, match=r"cannot write .*a\.md: No space left on device"):
        write_text(tmp_path / "a.md", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.md", "old")]
