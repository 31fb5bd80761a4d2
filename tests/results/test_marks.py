import json
import re
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results.build import build_table
from ntl.results.marks import fill, newest_day
from ntl.results.table import Table

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path("page.md")
RMSE = "test/rmse_truth"
PAIR = '{table: quickstart, row: "NTL-WAS, λ = 0.3", against: CE, metric: test/rmse_truth}'
NUMBER = r"[-+−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?%?"
# x [a, b], whatever x is, and x ± y; an index or a list of a program has no number before it.
RESULT = re.compile(rf"{NUMBER}\*{{0,2}} \[{NUMBER}, {NUMBER}\]|\d%? ?± ?\d|\[[-+−]?\d+\.\d+%?, [-+−]?\d+\.\d+%?\]")
MARKED = re.compile(r"<!-- (?P<kind>[a-z ]+?)(?:: .*?)? -->.*?<!-- end of (?P=kind) -->", re.DOTALL)


@pytest.fixture
def tables(make_record) -> list[Table]:
    made = [make_record("ce", seed, {RMSE: 10.0}) for seed in (1, 2, 3)]
    made += [make_record("ce_digits", seed, {RMSE: 9.5 - seed / 100}) for seed in (1, 2, 3)]
    made += [make_record("ntl_was", seed, {RMSE: 8.2 - seed / 10}) for seed in (1, 2, 3)]
    return [build_table("quickstart", made), build_table("table2", [], "small")]


@pytest.mark.parametrize(
    ("kind", "place", "text"),
    [
        # Differences -1.9, -2.0, -2.1: ± 4.303 · 0.1 / √3.
        ("difference", PAIR, "-2.000 [-2.248, -1.752], n = 3, p = 0.25"),
        ("difference", PAIR.replace("rmse_truth}", "mae}"), "no run"),
        ("mean", '{table: quickstart, row: "NTL-WAS, λ = 0.3", metric: test/rmse_truth}', "8.000 ± 0.100"),
        ("mean", "{table: quickstart, block: 1, row: CE, metric: interpolate/accuracy}", "no run"),
        (
            "finding",
            "{table: quickstart}",
            "NTL-WAS, λ = 0.3 is better than CE in RMSE to the noise-free target by the",
        ),
    ],
)
def test_what_stands_between_marks_is_of_the_records(tables: list[Table], kind: str, place: str, text: str) -> None:
    page = f"Before <!-- {kind}: {place} -->old<!-- end of {kind} --> after [1, 2].\n"
    filled = fill(page, PAGE, tables, "results/tables")
    start = f"Before <!-- {kind}: {place} -->"
    assert filled.startswith(start)
    assert filled.endswith(f"<!-- end of {kind} --> after [1, 2].\n")
    assert filled.removeprefix(start).startswith(text)
    assert fill(filled, PAGE, tables, "results/tables") == filled


def test_the_share_of_the_control_by_table(tables) -> None:
    filled = fill("<!-- control: {scale: tiny} --><!-- end of control -->", PAGE, tables, "results/tables")
    first, line, last = filled.splitlines()
    assert (first, last) == ("<!-- control: {scale: tiny} -->", "<!-- end of control -->")
    assert line.startswith("- [Quickstart](results/tables/quickstart_tiny.md) (a tiny GPT-2): noisy")
    # The control's mean gain is 0.52 of 2.
    assert line.endswith("RMSE to the noise-free target: -0.520 of -2.000 (NTL-WAS, λ = 0.3), 26%.")


def filled(kind: str, place: str, tables: list[Table]) -> list[str]:
    """The lines between the marks."""
    return fill(f"<!-- {kind}: {place} --><!-- end of {kind} -->", PAGE, tables, "results/tables").splitlines()[1:-1]


def test_lines_of_a_benchmark(tables: list[Table]) -> None:
    columns = 'columns: {loss: loss, times CE: "ratio:.2f", seconds: seconds}'
    where = 'where: {share: "0.8", part: forward, loss: [ce, ntl_was]}'
    head, ruler, ce, was = filled("benchmark", f"{{file: losses.csv, {columns}, {where}}}", tables)
    assert (head, ruler) == ("| loss | times CE | seconds |", "| --- | ---: | --- |")
    assert ce.startswith("| ce | 1.00 [1.00, 1.00] | 0.0")
    assert re.fullmatch(r"\| ntl\\_was \| \d\.\d\d \[\d\.\d\d, \d\.\d\d\] \| [\d.]+ \|", was)
    nested = '{file: training.json, columns: {model: model, speed: "examples_per_s.ours:,.0f"}, where: {loss: ce}}'
    assert [re.sub(r"[\d,]{5,}", "n", line) for line in filled("benchmark", nested, tables)[2:]] == [
        "| gpt2\\_tiny | n |",
        "| t5\\_tiny | n |",
    ]


def test_typical_wrong_answers_of_the_first_run_that_has_them(make_record) -> None:
    answer = {"question": "3 | 4?", "answer": "7", "prediction": "9", "error": 2.0, "kind": "units digit"}
    made = [make_record("ce", 1, {RMSE: 10.0}), make_record("ce", 2, {RMSE: 10.0}, typical={"test": [answer]})]
    place = "{table: quickstart, row: CE, split: test}"
    lines = filled("answers", place, [build_table("quickstart", made)])
    assert lines == [
        "| question | right | answer | kind |",
        "| --- | ---: | ---: | --- |",
        "| 3 \\| 4? | 7 | 9 | units digit |",
    ]
    assert "-->no run<!--" in fill(
        f"<!-- answers: {place} --><!-- end of answers -->", PAGE, [build_table("quickstart", made[:1])], ""
    )


def test_the_parts_of_the_paper(make_record) -> None:
    made = [make_record("ce", seed, {RMSE: 10.0}) for seed in (1, 2, 3)]
    tables = [build_table("quickstart", made), *(build_table("table2", [], scale) for scale in ("tiny", "small"))]
    lines = filled("paper", "{}", tables)
    command = "`python scripts/reproduce.py table=2 scale=tiny`"
    assert lines[2] == f"| Table 2 | loss variants on integer arithmetic | {command} |  | tiny, small |"
    assert "| `make figures` | [drawn](results/figures/figure2.png) |  |" in lines[4]
    assert "| `make figures` | [hour](results/figures/figure4.png) | paper |" in "".join(lines)
    assert lines[-1].startswith("Tables A1 to A4 ")
    assert not any("Quickstart" in line for line in lines)


def test_a_page_of_dates_keeps_the_entries_of_earlier_days(tables) -> None:
    entry = f"<!-- difference: {PAIR} -->old<!-- end of difference -->\n"
    page = f"# Log\n\n## 2026-11-22: new\n{entry}\n## 2026-11-22: newest day\n{entry}\n## 2026-11-20: old\n{entry}"
    filled = fill(page, PAGE, tables, "tables")
    assert filled.count("-2.000 [") == 2
    assert filled.endswith(f"## 2026-11-20: old\n{entry}")
    assert newest_day("no dates") == len("no dates")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- diference: {} --><!-- end of diference -->", "there is no such mark; choose from finding, difference, "),
        (f"<!-- difference: {PAIR} -->", "the mark has no end; add <!-- end of difference -->"),
        ("<!-- finding: quickstart --><!-- end of finding -->", "quickstart: Key 'quickstart' not in 'FindingMark'"),
        ("<!-- finding: {table: quick} --><!-- end of finding -->", "no table 'quick': choose from quickstart, table2"),
        (
            "<!-- finding: {table: quickstart, scale: paper} --><!-- end of finding -->",
            "table 'quickstart' has no scale 'paper': choose from tiny",
        ),
        (f"<!-- difference: {PAIR.replace('CE', 'XE')} --><!-- end of difference -->", "has no row 'XE' that runs"),
        (
            "<!-- mean: {table: quickstart, row: CE, metric: test/x} --><!-- end of mean -->",
            "table 'quickstart' has no row 'CE' with a column 'test/x'",
        ),
        ("<!-- mean: {table: quickstart, row: CE, metric: m, block: 9} --><!-- end of mean -->", "has no such block"),
        ("<!-- benchmark: {file: no.csv, columns: {a: b}} --><!-- end of benchmark -->", "/no.csv"),
        ("<!-- benchmark: {file: losses.csv, columns: {a: b}} --><!-- end of benchmark -->", "there is no field 'b'"),
        (
            "<!-- benchmark: {file: losses.csv, columns: {a: loss}, where: {loss: x}} --><!-- end of benchmark -->",
            "where: no line has loss=x",
        ),
    ],
)
def test_a_wrong_mark_is_one_line(tables, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        fill(f"text {text}", PAGE, tables, "tables")
    assert str(caught.value).startswith("page.md: <!-- ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def texts() -> dict[str, str]:
    """What a reader takes for the project's word: README, LOG's newest entry, docs, the notebooks' texts."""
    log = (ROOT / "results" / "LOG.md").read_text(encoding="utf-8")
    found = {"results/LOG.md": "\n## ".join(log.split("\n## ")[:2])}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        found[path.name] = path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found[path.name] = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return found


def test_no_result_with_an_interval_is_typed_by_hand() -> None:
    pages = texts()
    assert len(pages) >= 8
    typed = {name: RESULT.findall(MARKED.sub("", text)) for name, text in pages.items()}
    assert {name: found for name, found in typed.items() if found} == {}
    # What is looked for is there, between marks.
    for name in ("README.md", "results/LOG.md"):
        assert RESULT.search((ROOT / name).read_text(encoding="utf-8")), name
    for text in ("0.21 [0.01, 0.41]", "**-0.2** [-0.4, 0.0]", "[-0.387, -0.005]", "9.4% ± 1.2", "3 [1, 5]"):
        assert RESULT.search(text), text
    assert not RESULT.search("labels = [-100] * 3 and loss[0, 1]")
