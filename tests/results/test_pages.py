"""results/README.md; what it and README say of verdicts is in test_verdicts.py; `.ci/run` holds both byte for byte."""

from ntl.results.table import build_table
from ntl.results.verdicts import results_page

RMSE = "test/rmse_truth"


def test_the_index_is_a_line_a_table_with_its_command(make_record) -> None:
    made = [make_record("ce", seed, {RMSE: 10.0}, wall_time_s=1800.0) for seed in (1, 2, 3)]
    made += [make_record("ntl_was", seed, {RMSE: 8.2 - seed / 10}, wall_time_s=1800.0) for seed in (1, 2)]
    tables = [build_table("quickstart", made), *(build_table("table2", [], scale) for scale in ("tiny", "hour"))]
    lines = results_page([], ["It is so."], ["| a square |"], tables).splitlines()
    assert {"- It is so.", "| a square |"} < {*lines}
    (row,) = (line for line in lines if "quickstart" in line)
    assert row.startswith("| [Quickstart](tables/quickstart_tiny.md) | two tasks of a minute | 2 to 3 | 2.50 | ")
    assert row.endswith(" | `table=quickstart scale=tiny` |")
    assert "No run yet: Table 2 (tiny, hour)." in lines
    assert any(line.startswith("Tables A1 to A4 ") for line in lines)
    drawn = [line for line in lines if line.startswith("![")]
    assert drawn == ["![The paper's claims](figures/claims.png)"]
