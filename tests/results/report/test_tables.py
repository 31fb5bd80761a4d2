"""The tables section: which tables, which cells, and nothing of their text as markup."""

import re
from collections.abc import Callable

import pytest

from ntl.config.table import load_table_spec, table_names
from ntl.results import RunRecord
from ntl.results.report.tables import RULE_LABELS, VIEWS, compute, section


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
    row = re.search(r'<th scope="row">NTL-WAS, λ = 0.3</th><td>(.*?)</td>', text)
    assert row is not None
    for value in ("0.520 ± 0.010", "0.620 ± 0.010", "0.720 ± 0.010"):
        assert value in row[1]
    assert "[0.495, 0.545] n=3" in row[1]
    assert "+0.090" in row[1]  # 0.52 - 0.43
    assert '<span class="view view-paper">0.43 ± 0.05</span>' in row[1]


def test_bold_is_what_the_markdown_has_bold(some_records: list[RunRecord]) -> None:
    filled, empty = compute(some_records, ["table2"])
    assert "**0.520 ± 0.010**" in filled[0].default.markdown()
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
