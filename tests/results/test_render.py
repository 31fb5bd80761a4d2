"""Cells, pages and LaTeX as text, as scripts/make_tables.py writes them."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from rows import make_row, record, values

from ntl.config import UserError
from ntl.config.cli import report
from ntl.config.folders import RESULTS
from ntl.results import RunRecord, build_table, write_record
from ntl.results.render import number, short_text, to_csv, to_latex, to_markdown, write_tables
from ntl.results.spec import TABLE_FOLDER, ColumnSpec, Role, load_table_spec
from ntl.results.verdicts import pages, results_page


def column(spec: str = ".2f", **changes: Any) -> ColumnSpec:
    return ColumnSpec(**{"metric": "test/mae", "header": "MAE", "format": spec, **changes})


def text_of(
    scores: list[float | None] | None, spec: str = ".2f", records: int | None = None, role: Role = Role.ntl
) -> str:
    """The text of a cell with these values in a row of that many records (None: one a value)."""
    have = {seed: record(seed) for seed in range(len(scores or ()) if records is None else records)}
    return short_text(make_row("a", {"test/mae": values(*scores or ())}, role, records=have), column(spec))


# A number has no more digits than its spread; a second line counts the seeds of a cell.
ON_THE_PAGE: list[tuple[Any, str, str]] = [
    (None, ".2f", "-"),
    ([1.0, 2.0, 3.0], ".3f", "2.0 ± 1.0"),
    ([0.01, 0.02, 0.03], ".1%", "2.0% ± 1.0%"),
    ([2.0, 2.0, 2.0], ".3f", "2.000 ± 0.000"),
    ([0.0, 0.0, 3e10], ".2f", "1e10 ± 2e10"),
    ([2.5e4], ".2f", "2e4"),
    ([9000.0, 10000.0, 11000.0], ",.0f", "10,000 ± 1,000"),
    ([1.0, None, 3.0], ".2f", "1.00, 3.00\n2 of 3 seeds"),
]


def test_cells_by_hand() -> None:
    assert [text_of(scores, spec) for scores, spec, _ in ON_THE_PAGE] == [shown for *_, shown in ON_THE_PAGE]
    assert [number(value, ".2f") for value in (-0.004, -0.006)] == ["0.00", "-0.01"]  # no minus before a zero
    # A metric that some records lack shows its own n; a constant has no seeds to count.
    assert text_of([1.0, 3.0], records=3) == "1.00, 3.00\n2 of 3 seeds"
    assert text_of([1.0], records=3, role=Role.constant) == "1.00"


TABLES = RESULTS / "tables"
WIDEST, MOST = 100, 7  # characters of a row as it is read, and columns


def visible(cell: str) -> int:
    """The widest line of a cell as a page shows it."""
    shown = re.sub(r"\\([\\|*_`<])|\*", lambda found: found[1] or "", cell.strip())
    return max(map(len, shown.split("<br>")))


def test_every_committed_page_is_narrow_enough_to_be_read() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in TABLES.glob("*_*.md")}
    blocks = [(name, block) for name, text in texts.items() for block in re.findall(r"(?m)(?:^\|.*\n)+", text)]
    assert len(blocks) >= len(texts) > 10
    for name, block in blocks:
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        widths = [max(map(visible, column)) for column in zip(*(rows[:1] + rows[2:]), strict=True)]
        assert len(widths) <= MOST, name
        assert sum(widths) + len(widths) - 1 <= WIDEST, (name, widths)


def test_latex_on_demand(make_record, tmp_path: Path) -> None:
    made = [make_record("ce", seed, {"test/rmse_truth": value}) for seed, value in values(-1.0, 0.0, 1.0).items()]
    table = build_table("quickstart", made)
    assert [path.suffix for path in write_tables([table], tmp_path)] == [".md", ".csv"]
    assert write_tables([table], tmp_path, latex=True)[-1].read_text(encoding="utf-8") == to_latex(table)
    lines = to_latex(table).splitlines()
    assert r"CE & 0.0 $\pm$ 1.0 & - & - & - & - \\" in lines
    assert any(r"RMSE to the noise-free target $\downarrow$" in line for line in lines)


def test_the_tables_of_the_published_records_are_those_committed(published: list[RunRecord]) -> None:
    """Pages and CSV, byte for byte; `.ci/run` makes all of them."""
    table = build_table("quickstart", published, "tiny")
    for suffix, render in (("md", to_markdown), ("csv", to_csv)):
        assert render(table) == (TABLES / f"quickstart_tiny.{suffix}").read_text(encoding="utf-8")


# ---- scripts/make_tables.py

ROOT = Path(__file__).resolve().parents[2]
make_tables = runpy.run_path(str(ROOT / "scripts" / "make_tables.py"))["main"]


def test_a_table_elsewhere_is_made_again_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((TABLE_FOLDER / "quickstart.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    page = to_markdown(build_table(load_table_spec(str(path)), [], "tiny"))
    assert f"Made by `python scripts/reproduce.py table={path} scale=tiny`." in page


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
def test_mistakes_of_the_user(tmp_path: Path, arguments: list[str], message: str, capsys) -> None:
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


# ---- results/README.md; what it and README say of verdicts is in test_verdicts.py

RMSE = "test/rmse_truth"


def test_the_index_is_a_line_a_table(make_record) -> None:
    made = [make_record("ce", seed, {RMSE: 10.0}, wall_time_s=1800.0) for seed in (1, 2, 3)]
    made += [make_record("ntl_was", seed, {RMSE: 8.2 - seed / 10}, wall_time_s=1800.0) for seed in (1, 2)]
    tables = [build_table("quickstart", made), *(build_table("table2", [], scale) for scale in ("tiny", "hour"))]
    lines = results_page([], "", ["It is so."], ["| a square |"], tables).splitlines()
    assert {"- It is so.", "| a square |"} < {*lines}
    (row,) = (line for line in lines if "quickstart" in line)
    assert row == "| [Quickstart](tables/quickstart_tiny.md) | two tasks of a minute | `tiny` | 2 to 3 | 2.50 |"
    assert "No run yet at `tiny` and `hour`: Table 2." in lines
    assert any(line.startswith("Tables A1 to A4 ") for line in lines)
    drawn = [line for line in lines if line.startswith("![")]
    assert drawn == ["![The paper's claims](figures/claims.png)"]
