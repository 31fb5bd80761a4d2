from dataclasses import replace
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results import load_records, write_record
from ntl.results.load import check_folders, find_run


def test_records_of_both_shapes_in_order_of_id(tmp_path: Path, make_record) -> None:
    runs, outputs = tmp_path / "runs", tmp_path / "outputs"
    write_record(runs / "deeper" / "b.json", make_record("ce", 1, {}, id="b"))
    write_record(runs / "c.json", make_record("ce", 1, {}, id="c"))
    write_record(outputs / "a" / "record.json", make_record("ce", 1, {}, id="a"))
    (outputs / "a" / "checkpoints").mkdir()
    (outputs / "a" / "checkpoints" / "trainer_state.json").write_text("{")
    (outputs / "quickstart.json").write_text("{")
    (outputs / "unfinished").mkdir()
    (outputs / "unfinished" / "config.yaml").write_text("")
    (outputs / "unfinished" / "tokenizer.json").write_text("{")
    records = load_records([runs, outputs, tmp_path / "none"])
    assert [record.id for record in records] == ["a", "b", "c"]
    assert load_records([outputs, runs]) == records
    assert [record.id for record in load_records([outputs / "a"])] == ["a"]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_run_folder_wins_over_the_published_copy(tmp_path: Path, make_record, reverse: bool) -> None:
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.0}, id="a"))
    write_record(tmp_path / "outputs" / "a" / "record.json", make_record("ce", 1, {"test/mae": 2.0}, id="a"))
    folders = [tmp_path / "runs", tmp_path / "outputs"]
    records = load_records(folders[::-1] if reverse else folders)
    assert [record.metrics for record in records] == [{"test/mae": 2.0}]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_one_that_was_read_in_more_ways_wins(tmp_path: Path, make_record, reverse: bool) -> None:
    more = make_record("ce", 1, {"test/mae": 1.0}, id="a")
    record = replace(more, config={key: value for key, value in more.config.items() if key != "beside"})
    write_record(tmp_path / "runs" / "a.json", more)
    write_record(tmp_path / "outputs" / "a" / "record.json", record)
    folders = [tmp_path / "runs", tmp_path / "outputs"]
    assert load_records(folders[::-1] if reverse else folders) == [more]


def test_one_id_with_two_configs(tmp_path: Path, make_record) -> None:
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {}, id="a"))
    write_record(tmp_path / "outputs" / "a" / "record.json", make_record("ce", 1, {}, id="a", config={"seed": 2}))
    with pytest.raises(UserError, match=r"a\.json have the id a but different configs"):
        load_records([tmp_path / "runs", tmp_path / "outputs"])


def test_a_folder_that_is_named_exists(tmp_path: Path) -> None:
    assert check_folders([tmp_path]) == [tmp_path]
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        with pytest.raises(UserError, match=f"--records .*{name}: no such folder"):
            check_folders([tmp_path, tmp_path / name])


def test_a_folder_an_id_and_neither(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    for name in ("abc123", "xyz789"):
        (outputs / name).mkdir(parents=True)
    (outputs / "file").touch()
    assert find_run("abc123", outputs) == find_run(str(outputs / "abc123"), Path("none")) == outputs / "abc123"
    for run, folder, message in (
        ("abc12", outputs, f"no run 'abc12': neither a run folder nor an id under {outputs}/. Did you mean 'abc123'?"),
        ("file", outputs, f"no run 'file': neither a run folder nor an id under {outputs}/. There are 2 runs there."),
        ("abc123", Path("x"), "no run 'abc123': neither a run folder nor an id under x/. There are 0 runs there."),
    ):
        with pytest.raises(UserError) as caught:
            find_run(run, folder)
        assert str(caught.value) == message
