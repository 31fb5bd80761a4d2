import dataclasses
from pathlib import Path

import pytest

from ntl.config.folders import RESULTS
from ntl.results import RunRecord, Table, build_table, load_records, pack_bits
from ntl.results.render import csv as flat
from ntl.results.render import latex, markdown
from ntl.results.spec import load_table_spec
from ntl.results.write import RENDERERS

SPEC = """
title: "Table 0: losses & weights"
note: "Paper: 4 runs."
primary: {row: NTL_WAS, against: CE, metric: test/mae, named: 2026-11-22, seen: ["0123456"]}
blocks:
  - title: noisy_numbers
    dataset: noisy_numbers
    scales:
      tiny: {seeds: [1, 2, 3], replace: {model=t5_small: model=gpt2_tiny}}
    overrides: [model=t5_small]
    columns:
      - {metric: test/accuracy, header: accuracy, format: .1%}
      - {metric: test/mae, header: MAE, format: .2f}
      - {metric: test/count, header: count, format: .0f, details: true}
    rows:
      - {label: CE, role: baseline, overrides: [loss=ce]}
      - {label: control, role: control, overrides: [loss=ce_digits, loss.weight=0.3]}
      - {label: NTL_WAS, role: ntl, overrides: [loss=ntl_was, loss.weight=0.3]}
      - {label: "constant: mean", role: constant, constant: mean}
"""
PAPER = """
source: A paper
title: Losses
rows:
  - {label: CE, values: {test/mae: [2.15, 0.08]}}
  - {label: NTL_WAS, values: {test/mae: [0.91]}}
"""


@pytest.fixture
def spec(tmp_path: Path):
    (tmp_path / "paper").mkdir()
    (tmp_path / "mine.yaml").write_text(SPEC)
    (tmp_path / "paper" / "mine.yaml").write_text(PAPER)
    return load_table_spec("mine", tmp_path, tmp_path / "paper")


@pytest.fixture
def records(make_record) -> list[RunRecord]:
    base = {"test/mae:mean": 9.0, "test/count": 100.0, "test/unparsable": 0.0}
    values = {"ce": [(0.2, 5.0), (0.3, 6.0), (0.1, 7.0)], "ntl_was": [(0.3, 3.0), (0.3, 4.1), (0.3, 5.1)]}
    found = [
        make_record(loss, seed, {**base, "test/accuracy": accuracy, "test/mae": mae})
        for loss, pairs in values.items()
        for seed, (accuracy, mae) in enumerate(pairs, start=1)
    ]
    control = {**base, "test/accuracy": None, "test/mae": 5.5, "test/unparsable": 0.02}
    return [*found, make_record("ce_digits", 2, control)]


def cells(table: Table, row: int):
    return [table.blocks[0].rows[row].cell(column) for column in table.blocks[0].columns]


def test_an_undefined_row_is_never_best(spec, records: list[RunRecord]) -> None:
    records[3] = dataclasses.replace(records[3], metrics={**records[3].metrics, "test/mae": None})
    table = build_table(spec, records[:6])
    assert not any(cell.best for row in range(4) for cell in cells(table, row))
    assert "| 4.10, 5.10<br>2 of 3 seeds |" in markdown.to_markdown(table)
    assert "undefined in 1 of 3, else 4.10, 5.10" in latex.to_latex(table)
    assert table.finding == "Nothing is shown: MAE is undefined for a run of NTL_WAS or CE."


def test_the_tables_of_the_published_records_are_those_committed() -> None:
    """Pages, LaTeX and CSV of every kind of note, byte for byte."""
    made = load_records([RESULTS / "runs"])
    for name, scale in (("quickstart", "tiny"), ("evidence", "tiny"), ("table5", "hour"), ("table7", "hour")):
        table = build_table(name, made, scale)
        for suffix, render in RENDERERS.items():
            committed = RESULTS / "tables" / f"{name}_{scale}.{suffix}"
            assert render(table) == committed.read_text(encoding="utf-8")


def test_the_paper_s_number_stands_beside_its_own_model_alone(spec, records: list[RunRecord]) -> None:
    assert "paper" not in markdown.to_markdown(build_table(spec, records)).split("Mean ±")[0]
    spec.blocks[0].scales["tiny"].replace = {}
    spec.blocks[0].overrides = ["model=gpt2_tiny"]
    text = markdown.to_markdown(build_table(spec, records))
    assert "# Table 0: losses & weights, a tiny GPT-2\n" in text
    assert "6.0 ± 1.0<br>paper 2.15 ± 0.08 |" in text


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
        found = [cell for cell in flat.cells(build_table(spec, made)) if cell["kind"] == "difference"]
        return tuple(found[0][key] for key in ("metric", "mean", "low", "high"))

    # 30 of 100 examples differ: binomial(100, 0.3) / 100 has the 2.5 % and 97.5 % points 0.21 and 0.39.
    metric, *found = interval()
    assert metric == "test/accuracy"
    assert found == pytest.approx([0.3, 0.21, 0.39])
    ids["ce"] = {"test": "y"}
    assert interval()[2:] == (None, None)
