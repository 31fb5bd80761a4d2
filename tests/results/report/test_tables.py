"""The findings and tables of the page: which ones, what their cells show, and which rule each is scored by."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape

import pytest
from pages import chapter

from ntl.results import RunRecord, Table, Verdict, build_table
from ntl.results.render import markdown
from ntl.results.report.make_report import environment, render
from ntl.results.report.tables import (
    GROUPS,
    RULE_LABELS,
    VIEWS,
    CellText,
    anchor,
    cell_text,
    compute,
    group_of,
    grouped,
    under,
)
from ntl.results.spec import load_table_spec, table_names

METRIC = "interpolate/accuracy"
Maker = Callable[..., RunRecord]


def texts(values: list[float | None], make: Maker, loss: str = "ce") -> CellText:
    records = [make(loss, seed, {METRIC: value}) for seed, value in enumerate(values, start=1)]
    row = build_table("table2", records).blocks[0].rows[0]
    return cell_text(row.cells[0], row)


def test_three_seeds_have_a_spread_and_an_interval(arithmetic_record: Maker) -> None:
    # mean 0.4, sd 0.1, t(2) = 4.3027: 0.4 ± 4.3027 · 0.1 / √3; the paper has 0.34.
    expected = CellText("0.400 ± 0.100", "[0.152, 0.648]", "0.34 ± 0.01", "+0.060", best=False, beside=False)
    assert texts([0.3, 0.4, 0.5], arithmetic_record) == expected


def test_fewer_seeds_have_their_values(arithmetic_record: Maker) -> None:
    two, one = texts([0.3, 0.4], arithmetic_record), texts([0.24], arithmetic_record)
    assert (two.ours, two.interval, two.difference) == ("0.300, 0.400", "", "+0.010")
    assert (one.ours, one.interval, one.difference) == ("0.240", "", "-0.100")


def test_what_is_undefined_is_said(arithmetic_record: Maker) -> None:
    undefined = texts([None], arithmetic_record)
    assert (undefined.ours, undefined.interval, undefined.difference) == ("undefined", "", "-")
    partly = texts([0.3, None], arithmetic_record)
    assert (partly.ours, partly.interval, partly.difference) == ("undefined in 1 of 2, else 0.300", "", "-")


def test_n_stands_in_a_cell_only_where_it_is_not_that_of_the_row(arithmetic_record: Maker) -> None:
    records = [arithmetic_record("ce", seed, {METRIC: seed / 10, "interpolate/mae": 1.0}) for seed in (1, 2)]
    records.append(arithmetic_record("ce", 3, {METRIC: 0.3}))
    row = build_table("table2", records).blocks[0].rows[0]
    assert cell_text(row.cells[0], row).interval == "[-0.048, 0.448]"  # 0.2 ± 4.3027 · 0.1 / √3
    assert cell_text(row.cells[1], row).interval == "(n=2)"


def test_the_papers_number_belongs_beside_that_of_its_own_model(arithmetic_record: Maker) -> None:
    stand_in = arithmetic_record("ce", 1, {METRIC: 0.1})
    own = arithmetic_record("ce", 1, {METRIC: 0.1})
    own.config |= {"model": {"name": "t5_small", "pretrained": False}, "scale": {"name": "small"}}
    found = {}
    for scale, record in (("tiny", stand_in), ("small", own)):
        row = build_table("table2", [record], scale).blocks[0].rows[0]
        found[scale] = cell_text(row.cells[0], row)
    assert {scale: text.beside for scale, text in found.items()} == {"tiny": False, "small": True}
    assert {text.paper for text in found.values()} == {"0.34 ± 0.01"}


def test_a_cell_without_record(arithmetic_record: Maker) -> None:
    assert texts([], arithmetic_record) == CellText(paper="0.34 ± 0.01")


def test_under_another_rule_every_column_and_paper_number_has_its_suffix(
    arithmetic_record: Maker,
) -> None:
    spec = under("paper", load_table_spec("table2"))
    suffixes = [column.metric.partition("@")[2] for column in spec.blocks[0].columns]
    assert suffixes == ["paper"] * 6 + ["expectation"] * 4  # a column that names its decoding keeps it
    record = arithmetic_record("ce", 1, {METRIC: 0.1, f"{METRIC}@paper": 0.44})
    row = build_table(spec, [record]).blocks[0].rows[0]
    expected = CellText("0.440", "", "0.34 ± 0.01", "+0.100", best=False, beside=False)
    assert cell_text(row.cells[0], row) == expected
    assert cell_text(row.cells[1], row).ours == "-"


def test_the_default_rule_is_the_table_itself() -> None:
    spec = load_table_spec("table2")
    assert under("default", spec) == spec


def findings(tables: Sequence[Table]) -> str:
    """The chapter of findings for these tables."""
    by_scale = dict.fromkeys(table.scale for table in tables)
    return (
        environment()
        .get_template("findings.html")
        .render(
            claims=[], tables=tables, groups=grouped(tables), group_meanings=GROUPS, anchor=anchor, by_scale=by_scale
        )
    )


@pytest.fixture
def table(some_records: list[RunRecord]) -> Table:
    return build_table("table2", some_records)


def judged(table: Table, name: str, verdict: Verdict, p: float | None = None) -> Table:
    primary = replace(table.primary, verdict=verdict, p=p, sentence=f"The sentence of {name}: 1 < 2.")
    return replace(table, name=name, subject=f"{name}: a subject", primary=primary)


@pytest.mark.parametrize(
    ("verdict", "p", "title"),
    [
        (Verdict.better, 0.05, "Shown"),
        (Verdict.worse, 0.03125, "Shown"),
        (Verdict.better, 0.0625, "Shown by the interval alone"),
        (Verdict.worse, 0.25, "Shown by the interval alone"),
        (Verdict.nothing, 0.03125, "Not shown"),
        (Verdict.too_few, 0.5, "Not shown"),
        (Verdict.undefined, None, "Not shown"),
        (Verdict.not_run, None, "Not shown"),
        (Verdict.not_learnt, 0.03125, "Not learnt"),
    ],
)
def test_a_finding_stands_under_what_it_shows(table: Table, verdict: Verdict, p: float | None, title: str) -> None:
    assert group_of(judged(table, "some", verdict, p).primary) == title


def test_each_table_has_its_sentence_and_leads_to_its_place(table: Table) -> None:
    tables = [
        judged(table, "first", Verdict.not_learnt),
        judged(table, "second", Verdict.better, 0.03125),
        judged(table, "third", Verdict.nothing),
    ]
    text = findings(tables)
    lines = re.findall(r'<li><span><a href="#([^"]+)">([^<]+)</a></span><span>(.*?)</span></li>', text)
    # In the order of the groups, as text and not as markup.
    assert [(place, name, unescape(sentence)) for place, name, sentence in lines] == [
        (f"{name}-tiny", name, f"The sentence of {name}: 1 < 2.") for name in ("second", "third", "first")
    ]
    assert re.findall(r"<details( open)?><summary><h3>([^<]+)<", text) == [
        (" open", "Shown"),
        ("", "Not shown"),
        ("", "Not learnt"),
    ]
    assert ": 1 shown, 0 shown by the interval alone, 1 not shown, 1 not learnt." in text


def test_that_nothing_is_shown_is_said(table: Table) -> None:
    text = findings([judged(table, "only", Verdict.nothing)])
    assert re.findall(r"<h3>([^<]+)<", text) == ["Shown: nothing yet", "Not shown"]


def test_scales_are_told_apart(table: Table) -> None:
    text = findings([table, replace(table, scale="small")])
    assert re.findall(r"</a><small>([^<]+)</small>", text) == [" tiny", " small"]


def test_the_page_opens_with_the_findings(arithmetic_record: Maker) -> None:
    records = [
        arithmetic_record(loss, seed, {"interpolate/mae": value + seed / 100})
        for loss, value in (("ce", 3.0), ("ntl_was", 2.0))
        for seed in (1, 2, 3)
    ]
    text = render(records, [], ["table2"])
    first = text[text.index("<main>") :]
    assert re.match(r'<main>\s*<section id="findings"', first)
    # Every seed differs by -1: the interval is that, and 3 of 3 signs alike have the exact p of 2 / 2^3.
    finding = build_table("table2", records).finding
    assert "-1.00 [-1.00, -1.00] against a mean of 3.02 (n = 3 seeds; exact p = 0.25" in finding
    assert finding in unescape(first[: first.index('<section id="tables"')])


@pytest.mark.slow
def test_every_table_and_scale_is_filled_or_named(some_records: list[RunRecord]) -> None:
    filled, empty = compute(some_records)
    text = chapter("tables", some_records, ())
    every = {(name, scale) for name in table_names() for scale in load_table_spec(name).scales}
    tables = [*(ruled.default for ruled in filled), *empty]
    assert sorted((table.name, table.scale) for table in tables) == sorted(every)
    assert ("table2", "tiny") in {(ruled.default.name, ruled.default.scale) for ruled in filled}
    assert all(f'id="{ruled.default.name}-{ruled.default.scale}"' in text for ruled in filled)
    assert all(f"<code>{table.name}, {table.scale}</code>" in text for table in empty)


def test_a_cell_has_every_rule_and_view(some_records: list[RunRecord]) -> None:
    text = chapter("tables", some_records)
    row = re.search(r'<th scope="row">NTL-WAS, λ\s=\s0.3<.*?</th><td>(.*?)</td>', text)
    assert row is not None
    for value in ("0.520 ± 0.010", "0.620 ± 0.010", "0.720 ± 0.010"):
        assert value in row[1]
    assert "[0.495, 0.545]" in row[1]
    assert "+0.090" in row[1]  # 0.52 - 0.43
    assert '<span class="view view-paper">0.43 ± 0.05</span>' in row[1]


def cell(text: str, label: str) -> str:
    found = re.search(rf'<th scope="row">{label}.*?</th><td>(.*?)</td>', text)
    assert found is not None
    return found[1]


def test_n_is_told_once(arithmetic_record: Maker) -> None:
    def records(*losses: tuple[str, int]) -> list[RunRecord]:
        metrics = {"interpolate/accuracy": 0.3}
        return [arithmetic_record(loss, seed, metrics) for loss, n in losses for seed in range(1, n + 1)]

    # Rows without a run keep it from being the same for all.
    partly = chapter("tables", records(("ce", 3), ("ntl_was", 2)))
    assert "<h5>arithmetic, 100k examples, n = 0 to 3 seeds</h5>" in partly
    assert re.findall(r'<th scope="row">(?:CE|NTL-WAS, λ\s=\s0.3)<small>(n = \d)</small>', partly) == ["n = 3", "n = 2"]
    assert not re.search(r"<td>(?:(?!</td>).)*n ?= ?\d", partly)


def test_the_papers_number_is_the_second_line_of_its_own_model(arithmetic_record: Maker) -> None:
    tiny, small = (arithmetic_record("ce", 1, {"interpolate/accuracy": 0.3}) for _ in range(2))
    small.config |= {"model": {"name": "t5_small", "pretrained": False}, "scale": {"name": "small"}}
    beside = {
        scale: re.findall(r'"beside">([^<]+)<', cell(chapter("tables", [record]), "CE"))
        for scale, record in (("tiny", tiny), ("small", small))
    }
    assert beside == {"tiny": [], "small": ["paper 0.34 ± 0.01"] * 3}  # one a rule


def test_of_many_tables_one_is_open(some_records: list[RunRecord]) -> None:
    def opened(names: list[str]) -> dict[str, bool]:
        text = chapter("tables", some_records, names)
        found = re.findall(r'<article>\s*<details( open)?>\s*<summary><h4>.*?</summary>\s*<div id="([\w-]+)"', text)
        return {name: bool(is_open) for is_open, name in found}

    names = ["table2", "table3", "table7", "table_a6"]
    assert opened(names[:1]) == {"table2-tiny": True}
    assert list(opened(names).values()).count(True) == 1
    assert len(opened(names)) > 2


def test_each_table_says_what_it_shows_under_the_chosen_rule(some_records: list[RunRecord]) -> None:
    filled, _ = compute(some_records, ["table2"])
    text = chapter("tables", some_records)
    found = re.findall(r'<p class="finding rule rule-(\w+)">(.*?)</p>', text)
    assert {rule: unescape(finding) for rule, finding in found} == {
        rule: table.finding for rule, table in filled[0].by_rule.items()
    }
    assert set(filled[0].by_rule) == set(RULE_LABELS)


def test_what_is_not_learnt_is_marked(arithmetic_record: Maker) -> None:
    constants = {f"interpolate/mae:{name}": 2.0 for name in ("mode", "median", "mean")}
    records = [
        arithmetic_record(loss, seed, {"interpolate/mae": value, **constants})
        for loss, value in (("ce", 3.0), ("ntl_was", 1.0))
        for seed in (1, 2, 3)
    ]
    text = chapter("tables", records)
    marked = re.findall(r'<th scope="row">([^<]+)<small>[^<]*</small><small class="rule rule-default">not learnt', text)
    assert marked == ["CE"]
    assert "Not learnt: no better than the best constant answer in interpolate MAE." in text


def test_wide_tables_scroll_in_a_box_that_the_keyboard_reaches(some_records: list[RunRecord]) -> None:
    text = chapter("tables", some_records)
    boxes = re.findall(r'<div class="scroll" tabindex="0" role="region" aria-label="([^"]+)">\s*<table>', text)
    assert len(boxes) == text.count("<table") >= 2
    assert boxes[0] == "arithmetic, 100k examples"


def test_bold_is_what_the_markdown_has_bold(some_records: list[RunRecord]) -> None:
    filled, _ = compute(some_records, ["table2"])
    assert "**0.520 ± 0.010**" in markdown.render(filled[0].default)
    assert "<strong>0.520 ± 0.010</strong>" in chapter("tables", some_records)


def test_the_differences_stand_under_each_rule(arithmetic_record: Maker) -> None:
    metrics = {"interpolate/accuracy": 0.1, "interpolate/accuracy@paper": 0.2}
    records = [arithmetic_record(loss, 1, metrics) for loss in ("ce", "ntl_was")]
    text = chapter("tables", records)
    assert {rule for rule in RULE_LABELS if f'<details class="rule rule-{rule}">' in text} == set(RULE_LABELS)


def test_the_switches_have_every_choice_and_start_with_ours(some_records: list[RunRecord]) -> None:
    text = chapter("tables", some_records)
    for name, choices in {"view": VIEWS, "rule": RULE_LABELS}.items():
        found = re.findall(rf'<input type="radio" name="{name}" value="(\w+)"( checked)?>', text)
        assert found == [(value, " checked" if number == 0 else "") for number, value in enumerate(choices)]


def test_missing_runs_and_metrics_are_listed(some_records: list[RunRecord]) -> None:
    text = chapter("tables", some_records)
    assert "loss=ntl_mse loss.weight=0.15 seed=1,2,3" in text
    assert "CE: interpolate/r2, extrapolate/accuracy, extrapolate/mae" in text


def test_labels_are_escaped(some_records: list[RunRecord]) -> None:
    hostile = "<script>alert(1)</script>"
    records = [record for record in some_records if record.id.startswith("arithmetic")]
    for record in records:
        record.device, record.git = hostile, {"commit": "<i>1", "dirty": False}
    text = chapter("tables", records)
    assert hostile not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
