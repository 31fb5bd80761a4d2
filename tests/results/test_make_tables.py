import json
import runpy
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.cli import report
from ntl.results import write_record
from ntl.results.verdicts import pages

ROOT = Path(__file__).resolve().parents[2]
make_tables = runpy.run_path(str(ROOT / "scripts" / "make_tables.py"))["main"]


def test_json_and_a_choice_of_tables(tmp_path: Path, make_record, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.5}))
    folders = ("--records", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    make_tables(["quickstart", "table5", "--scale", "tiny", *folders, "--json"])
    found = {(cell["table"], cell["row"], cell["metric"]): cell for cell in json.loads(capsys.readouterr().out)}
    assert found["quickstart", "CE", "test/mae"]["values"] == [1.5]
    assert {name for name, _, _ in found} == {"quickstart", "table5"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel5"], "no table 'tabel5'. Did you mean 'table5'?"),
        (["table5", "--scale", "huge"], "no table has the scale 'huge': choose from "),
        (["--records", "not/there"], "--records not/there: no such folder"),
        (["table2", "--pages"], "--pages: they say what all tables show; leave out the names and --scale."),
    ],
)
def test_mistakes_of_the_user(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    records = [] if "--records" in arguments else ["--records", str(tmp_path / "runs")]
    assert report(lambda: make_tables([*arguments, *records, "--out", str(tmp_path / "out")])) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"error: {message}")
    assert not (tmp_path / "out").exists()


def test_a_readme_without_a_place_for_results(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(UserError, match=r"README\.md: the results go between .*, which are not there; add them\.$"):
        pages([], [], tmp_path / "page.md", readme)
