"""The tables section: which tables, which cells, and nothing of their text as markup."""

import re
from collections.abc import Callable
from html import unescape

import pytest

from ntl.results import RunRecord
from ntl.results.render import markdown
from ntl.results.report.tables import RULE_LABELS, VIEWS, compute, section
from ntl.results.spec import load_table_spec, table_names


@pytest.mark.slow
def test_every_table_and_scale_is_filled_or_named(some_records: list[RunRecord]) -> None:
    filled, empty = compute(some_records)
    every = {(name, scale) for name in table_names() for scale in load_table_spec(name).scales}
    tables = [*(ruled.default for ruled in filled), *empty]
    assert sorted((table.name, table.scale) for table in tables) == sorted(every)
    assert ("table2", "tiny") in {(ruled.default.name, ruled.default.scale) for ruled in filled}
    text = section(filled, empty)
    assert all(f'id="{ruled.default.name}-{ruled.default.scale}"' in text for ruled in filled)
    assert all(f"<code>{table.name}, {table.scale}</code>" in text for table in empty)


def test_a_cell_has_every_rule_and_view(some_records: list[RunRecord]) -> None:
    text = section(*compute(some_records, ["table2"]))
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


def test_n_is_told_once(arithmetic_record: Callable[..., RunRecord]) -> None:
    def records(*losses: tuple[str, int]) -> list[RunRecord]:
        metrics = {"interpolate/accuracy": 0.3}
        return [arithmetic_record(loss, seed, metrics) for loss, n in losses for seed in range(1, n + 1)]

    # Rows without a run keep it from being the same for all.
    partly = section(*compute(records(("ce", 3), ("ntl_was", 2)), ["table2"]))
    assert "<h5>arithmetic, 100k examples, n = 0 to 3 seeds</h5>" in partly
    assert re.findall(r'<th scope="row">(?:CE|NTL-WAS, λ\s=\s0.3)<small>(n = \d)</small>', partly) == ["n = 3", "n = 2"]
    assert not re.search(r"<td>(?:(?!</td>).)*n ?= ?\d", partly)


def test_the_papers_number_is_the_second_line_of_its_own_model(arithmetic_record: Callable[..., RunRecord]) -> None:
    tiny, small = (arithmetic_record("ce", 1, {"interpolate/accuracy": 0.3}) for _ in range(2))
    small.config |= {"model": {"name": "t5_small", "pretrained": False}, "scale": {"name": "small"}}
    filled, _ = compute([tiny, small], ["table2"])
    beside = {
        ruled.default.scale: re.findall(r'"beside">([^<]+)<', cell(section([ruled], []), "CE")) for ruled in filled
    }
    assert beside == {"tiny": [], "small": ["paper 0.34 ± 0.01"] * 3}  # one a rule


def test_of_many_tables_of_a_scale_one_is_open(some_records: list[RunRecord]) -> None:
    def opened(names: list[str]) -> dict[str, bool]:
        filled, _ = compute(some_records, names)
        text = section(filled, [])
        found = re.findall(r'<article><details( open)?><summary><h4>.*?</summary><div>?.*?id="([\w-]+)"', text)
        return {name: bool(is_open) for is_open, name in found}

    names = ["table2", "table3", "table7", "table_a6"]
    assert opened(names[:1]) == {"table2-tiny": True}
    assert list(opened(names).values()).count(True) == 1
    assert len(opened(names)) > 2


def test_each_table_says_what_it_shows_under_the_chosen_rule(some_records: list[RunRecord]) -> None:
    filled, _ = compute(some_records, ["table2"])
    text = section(filled, [])
    found = re.findall(r'<p class="finding rule rule-(\w+)">(.*?)</p>', text)
    assert {rule: unescape(finding) for rule, finding in found} == {
        rule: table.finding for rule, table in filled[0].by_rule.items()
    }
    assert set(filled[0].by_rule) == set(RULE_LABELS)


def test_what_is_not_learnt_is_marked(arithmetic_record: Callable[..., RunRecord]) -> None:
    constants = {f"interpolate/mae:{name}": 2.0 for name in ("mode", "median", "mean")}
    records = [
        arithmetic_record(loss, seed, {"interpolate/mae": value, **constants})
        for loss, value in (("ce", 3.0), ("ntl_was", 1.0))
        for seed in (1, 2, 3)
    ]
    text = section(*compute(records, ["table2"]))
    marked = re.findall(r'<th scope="row">([^<]+)<small>[^<]*</small><small class="rule rule-default">not learnt', text)
    assert marked == ["CE"]
    assert "Not learnt: no better than the best constant answer in interpolate MAE." in text


def test_wide_tables_scroll_in_a_box_that_the_keyboard_reaches(some_records: list[RunRecord]) -> None:
    text = section(*compute(some_records, ["table2"]))
    boxes = re.findall(r'<div class="scroll" tabindex="0" role="region" aria-label="([^"]+)"><table>', text)
    assert len(boxes) == text.count("<table") >= 2
    assert boxes[0] == "arithmetic, 100k examples"


def test_bold_is_what_the_markdown_has_bold(some_records: list[RunRecord]) -> None:
    filled, empty = compute(some_records, ["table2"])
    assert "**0.520 ± 0.010**" in markdown.render(filled[0].default)
    assert "<strong>0.520 ± 0.010</strong>" in section(filled, empty)


def test_the_differences_stand_under_each_rule(arithmetic_record: Callable[..., RunRecord]) -> None:
    metrics = {"interpolate/accuracy": 0.1, "interpolate/accuracy@paper": 0.2}
    records = [arithmetic_record(loss, 1, metrics) for loss in ("ce", "ntl_was")]
    text = section(*compute(records, ["table2"]))
    assert {rule for rule in RULE_LABELS if f'<details class="rule rule-{rule}">' in text} == set(RULE_LABELS)


def test_the_switches_have_every_choice_and_start_with_ours(some_records: list[RunRecord]) -> None:
    text = section(*compute(some_records, ["table2"]))
    for name, choices in {"view": VIEWS, "rule": RULE_LABELS}.items():
        found = re.findall(rf'<input type="radio" name="{name}" value="(\w+)"( checked)?>', text)
        assert found == [(value, " checked" if number == 0 else "") for number, value in enumerate(choices)]


def test_missing_runs_and_metrics_are_listed(some_records: list[RunRecord]) -> None:
    text = section(*compute(some_records, ["table2"]))
    assert "loss=ntl_mse loss.weight=0.15 seed=1,2,3" in text
    assert "CE: interpolate/r2, extrapolate/accuracy, extrapolate/mae" in text


def test_labels_are_escaped(some_records: list[RunRecord]) -> None:
    hostile = "<script>alert(1)</script>"
    records = [record for record in some_records if record.id.startswith("arithmetic")]
    for record in records:
        record.device, record.git = hostile, {"commit": "<i>1", "dirty": False}
    text = section(*compute(records, ["table2"]))
    assert hostile not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
