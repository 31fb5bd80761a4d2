from pathlib import Path

import pytest

from ntl.config.folders import RESULTS
from ntl.results import RunRecord, build_table
from ntl.results.render import RENDERERS
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
