"""What the page opens with."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import escape, unescape

import pytest

from ntl.results import RunRecord, Table, Verdict, build_table
from ntl.results.claims import load_claims
from ntl.results.report.findings import ClaimRow, claims_section, group_of, link, section
from ntl.results.report.page import render


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
    text = section(tables)
    lines = re.findall(r'<li><span><a href="#([^"]+)">([^<]+)</a></span><span>(.*?)</span></li>', text)
    # In the order of the groups, as text and not as markup.
    assert [(place, name, unescape(sentence)) for place, name, sentence in lines] == [
        (f"{name}-tiny", name, f"The sentence of {name}: 1 < 2.") for name in ("second", "third", "first")
    ]
    assert re.findall(r"<h3>([^<]+)<", text) == ["Shown", "Not shown", "Not learnt"]
    assert ": 1 shown, 0 shown by the interval alone, 1 not shown, 1 not learnt." in text


def test_that_nothing_is_shown_is_said(table: Table) -> None:
    text = section([judged(table, "only", Verdict.nothing)])
    assert re.findall(r"<h3>([^<]+)<", text) == ["Shown: nothing yet", "Not shown"]


def test_scales_are_told_apart(table: Table) -> None:
    text = section([table, replace(table, scale="small")])
    assert re.findall(r"</a><small>([^<]+)</small>", text) == [" tiny", " small"]


def test_claims_stand_first_where_there_are_any(some_records: list[RunRecord], table: Table) -> None:
    assert claims_section([]) == ""
    without = render(some_records, [], ["table2"])
    assert 'id="claims"' not in without
    assert 'href="#claims"' not in without
    whole = render(some_records, [])
    assert re.findall(r'<section id="(\w+)"', whole) == ["claims", "findings", "tables", "figures", "explorer", "runs"]
    assert '<a href="#claims">Claims</a>' in whole
    assert all(f'<th scope="row">{escape(claim.text, quote=False)}<' in whole for claim in load_claims())
    text = claims_section([ClaimRow("NTL costs < nothing", "untested", [link(table), "Table 2 & more"])])
    assert re.findall(r'<th scope="row">(NTL [^<]+)<.*?</th><td><strong>(\w+)</strong></td>', text) == [
        ("NTL costs &lt; nothing", "untested")
    ]
    assert '<li><a href="#table2-tiny">Table 2</a></li><li>Table 2 &amp; more</li>' in text
    assert "<details" not in claims_section([ClaimRow("Another", "untested", [])])


def test_the_page_opens_with_the_findings(arithmetic_record: Callable[..., RunRecord]) -> None:
    records = [
        arithmetic_record(loss, seed, {"interpolate/mae": value + seed / 100})
        for loss, value in (("ce", 3.0), ("ntl_was", 2.0))
        for seed in (1, 2, 3)
    ]
    text = render(records, [], ["table2"])
    first = text[text.index("<main>") :]
    assert first.startswith('<main><section id="findings"')
    # Every seed differs by -1: the interval is that, and 3 of 3 signs alike have the exact p of 2 / 2^3.
    finding = build_table("table2", records).finding
    assert "-1.00 [-1.00, -1.00] (n = 3 seeds; exact p = 0.25" in finding
    assert finding in unescape(first[: first.index('<section id="tables"')])
