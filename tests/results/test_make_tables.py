import json
import runpy
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.cli import report
from ntl.results import write_record
from ntl.results.pages import BEGIN, END

ROOT = Path(__file__).resolve().parents[2]
make_tables = runpy.run_path(str(ROOT / "scripts" / "make_tables.py"))["main"]
PLACES = make_tables.__globals__


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
        (["--scale", "huge"], "no table has the scale 'huge': choose from tiny, small, paper, hour"),
        (["--records", "not/there"], "--records not/there: no such folder"),
        (["table2", "--pages"], "--pages: they say what all tables show; leave out the names and --scale."),
    ],
)
def test_mistakes_of_the_user(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(lambda: make_tables([*arguments, "--out", str(tmp_path / "out")])) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_readme_is_looked_at_before_anything_is_written(
    tmp_path: Path, make_record, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme, page, tables = tmp_path / "README.md", tmp_path / "results" / "README.md", tmp_path / "results" / "tables"
    monkeypatch.setitem(PLACES, "PAGE", page)
    monkeypatch.setitem(PLACES, "README", readme)
    write_record(tmp_path / "runs" / "a.json", make_record("ce", 1, {"test/mae": 1.5}))
    words = ["--records", str(tmp_path / "runs"), "--out", str(tables), "--pages"]
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(UserError, match=r"README\.md: the results go between .*, which are not there; add them\.$"):
        make_tables(words)
    assert not page.exists()
    assert not tables.exists()
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    make_tables(words)
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n[Table 2 at `scale=hour`](")
    assert text.endswith(f"\n{END}\nafter\n")
    assert "old" not in text
    assert "- **untested**: " in text
    assert "**untested**" in page.read_text(encoding="utf-8")
