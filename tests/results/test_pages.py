"""results/README.md, and the results in the project's README; `.ci/run` holds both byte for byte."""

from pathlib import Path

from ntl.results.build import build_table
from ntl.results.claims import Claim, ClaimSource, ClaimSpec, EvidenceSpec, Hypothesis, judge_claims
from ntl.results.pages import core_hours, readme_results, results_page

ROOT = Path(__file__).resolve().parents[2]
WAS, RMSE = "NTL-WAS, λ = 0.3", "test/rmse_truth"


def test_the_index_the_verdicts_and_the_parts_of_the_paper(make_record) -> None:
    made = [make_record("ce", seed, {RMSE: 10.0}, wall_time_s=1800.0) for seed in (1, 2, 3)]
    made += [make_record("ntl_was", seed, {RMSE: 8.2 - seed / 10}, wall_time_s=1800.0) for seed in (1, 2)]
    tables = [build_table("quickstart", made), build_table("table2", [], "hour")]
    assert core_hours(tables[0]) == 2.5
    evidence = EvidenceSpec(table="quickstart", row=WAS, against="CE", metric=RMSE, says=Hypothesis.better)
    claims: list[Claim] = judge_claims([ClaimSpec("it", "It helps.", "here", ClaimSource.paper, [evidence])], tables)

    page = results_page(claims, tables).splitlines()
    (row,) = (line for line in page if "quickstart" in line and "core-hours" not in line and line.startswith("| ["))
    assert row.startswith("| [Quickstart](tables/quickstart_tiny.md) | two tasks of a minute | tiny | 2 to 3 | 2.50 | ")
    assert row.endswith(" | `make reproduce TABLE=quickstart SCALE=tiny` |")
    assert "No run yet: Table 2 (hour)." in page
    assert any(line.startswith(f"| it | **{claims[0].verdict}** | ") for line in page)

    lines = readme_results(claims, tables).splitlines()
    assert lines[0].startswith("[Table 2 at `scale=hour`](results/tables/table2_hour.md): ")
    assert any(line.startswith(f"- **{claims[0].verdict}**: It helps") for line in lines)
    command = "`python scripts/reproduce.py table=2 scale=tiny`"
    assert f"| Table 2 | loss variants on integer arithmetic | {command} |  | hour |" in lines
    assert any("| `make figures` | [hour](results/figures/figure4.png) | paper |" in line for line in lines)
    assert not any("Quickstart" in line for line in lines)


def test_a_row_of_verdicts_fits_on_a_screen() -> None:
    verdicts = (ROOT / "results" / "README.md").read_text(encoding="utf-8").partition("## Figures")[0]
    assert max(len(line) for line in verdicts.splitlines() if line.startswith("|")) <= 100
