"""results/README.md, and the results in the project's README."""

import re
from pathlib import Path

import pytest

from ntl.results.build import build_table
from ntl.results.claims import Claim, judge_claims, load_claims
from ntl.results.pages import core_hours, readme_results, results_page
from ntl.results.table import Table

ROOT = Path(__file__).resolve().parents[2]
RMSE = "test/rmse_truth"


@pytest.fixture
def tables(make_record) -> list[Table]:
    made = [make_record("ce", seed, {RMSE: 10.0}, wall_time_s=1800.0) for seed in (1, 2, 3)]
    made += [make_record("ntl_was", seed, {RMSE: 8.2 - seed / 10}, wall_time_s=1800.0) for seed in (1, 2)]
    return [build_table("quickstart", made), *(build_table("table2", [], scale) for scale in ("tiny", "hour"))]


@pytest.fixture
def claims(tables: list[Table]) -> list[Claim]:
    """Those that the tables decide, and those on times."""
    names = {table.name for table in tables}
    specs = [spec for spec in load_claims() if {each.table for each in spec.evidence} <= names]
    assert any(spec.timings for spec in specs)
    return judge_claims(specs, tables)


def test_the_index_is_a_line_a_table(tables: list[Table]) -> None:
    assert core_hours(tables[0]) == 2.5
    lines = results_page([], tables).splitlines()
    (row,) = (line for line in lines if "quickstart" in line)
    assert row.startswith("| [Quickstart](tables/quickstart_tiny.md) | two tasks of a minute | tiny | 2 to 3 | 2.50 | ")
    assert row.endswith(" | `make reproduce TABLE=quickstart SCALE=tiny` |")
    assert "No run yet: Table 2 (tiny, hour)." in lines


def test_the_page_has_the_verdict_the_evidence_and_our_figures(claims: list[Claim], tables: list[Table]) -> None:
    text = results_page(claims, tables)
    for claim in claims:
        assert re.search(rf"^\| {claim.spec.name} \| \*\*{claim.verdict}\*\* \| .* \|$", text, re.MULTILINE)
        assert f"### {claim.spec.name[0].upper()}{claim.spec.name[1:]}: {claim.verdict}\n" in text
    assert "(figures/hour_losses.png)" in text
    assert "(figures/figure2.png)" not in text
    # A row of verdicts fits on a screen.
    verdicts = (ROOT / "results" / "README.md").read_text(encoding="utf-8").partition("## Figures")[0]
    assert max(len(line) for line in verdicts.splitlines() if line.startswith("|")) <= 100


def test_readme_has_a_finding_a_line_a_claim_and_the_parts_of_the_paper(
    claims: list[Claim], tables: list[Table]
) -> None:
    lines = readme_results(claims, tables).splitlines()
    assert lines[0].startswith("[Table 2 at `scale=hour`](results/tables/table2_hour.md): ")
    for claim in claims:
        assert f"- **{claim.verdict}**: {claim.spec.text}" in "\n".join(lines)
    command = "`python scripts/reproduce.py table=2 scale=tiny`"
    assert f"| Table 2 | loss variants on integer arithmetic | {command} |  | tiny, hour |" in lines
    assert any("| `make figures` | [drawn](results/figures/figure2.png) |  |" in line for line in lines)
    assert any("| `make figures` | [hour](results/figures/figure4.png) | paper |" in line for line in lines)
    assert not any("Quickstart" in line for line in lines)
    assert lines[-1].startswith("Tables A1 to A4 ")
