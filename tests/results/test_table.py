from pathlib import Path

import pytest

from ntl.config.folders import RESULTS
from ntl.results import RunRecord, build_table, pack_bits
from ntl.results.render import RENDERERS, to_cells
from ntl.results.spec import load_table_spec

SPEC = """
title: A table
primary: {row: WAS, against: CE, metric: test/mae, named: 2026-11-22}
blocks:
  - title: noisy_numbers
    dataset: noisy_numbers
    scales: {tiny: {seeds: [1, 2, 3]}}
    columns: [{metric: test/accuracy}, {metric: test/mae}]
    rows:
      - {label: CE, role: baseline, overrides: [loss=ce]}
      - {label: WAS, role: other, overrides: [loss=ntl_was, loss.weight=0.3]}
"""


@pytest.fixture
def spec(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(SPEC)
    return load_table_spec("mine", tmp_path, tmp_path / "none")


def test_the_tables_of_the_published_records_are_those_committed(published: list[RunRecord]) -> None:
    """Pages, LaTeX and CSV, byte for byte; `.ci/run` makes all of them."""
    table = build_table("quickstart", published, "tiny")
    for suffix, render in RENDERERS.items():
        assert render(table) == (RESULTS / "tables" / f"quickstart_tiny.{suffix}").read_text(encoding="utf-8")


def test_one_seed_is_compared_over_test_examples(spec, make_record) -> None:
    bits = {"ce": [True] * 50 + [False] * 50, "ntl_was": [True] * 80 + [False] * 20}
    ids = {"ce": {"test": "x"}, "ntl_was": {"test": "x"}}

    def interval() -> tuple[float, ...]:
        made = [
            make_record(
                loss,
                1,
                {"test/accuracy": sum(correct) / 100, "test/mae": 1.0, "test/count": 100.0},
                correct={"test": pack_bits(correct)},
                ids_sha256=ids[loss],
            )
            for loss, correct in bits.items()
        ]
        found = [cell for cell in to_cells(build_table(spec, made)) if cell["kind"] == "difference"]
        return tuple(found[0][key] for key in ("metric", "mean", "low", "high"))

    # 30 of 100 examples differ: binomial(100, 0.3) / 100 has the 2.5 % and 97.5 % points 0.21 and 0.39.
    metric, *found = interval()
    assert metric == "test/accuracy"
    assert found == pytest.approx([0.3, 0.21, 0.39])
    ids["ce"] = {"test": "y"}
    assert interval()[2:] == (None, None)
