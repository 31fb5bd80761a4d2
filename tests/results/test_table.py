import dataclasses
from pathlib import Path

import pytest

from ntl.results import RunRecord, Table, build_table, pack_bits
from ntl.results.render import csv as flat
from ntl.results.render import latex, markdown
from ntl.results.spec import load_table_spec

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


def test_cells(spec, records: list[RunRecord]) -> None:
    table = build_table(spec, records)
    accuracy, mae, _ = cells(table, 0)
    assert mae.summary is not None
    assert accuracy.summary is not None
    assert (mae.summary.mean, mae.summary.sd, mae.seeds, mae.paper) == (6.0, 1.0, (1, 2, 3), (2.15, 0.08))
    assert accuracy.summary.mean == pytest.approx(0.2)
    assert [row.missing for row in table.blocks[0].rows] == [[], [1, 3], [], []]
    assert [row.command for row in table.rows if row.missing] == [
        "python train.py -m dataset=noisy_numbers scale=tiny model=gpt2_tiny loss=ce_digits loss.weight=0.3 seed=1,3"
    ]
    assert table.num_records == 7


def test_an_undefined_row_is_never_best(spec, records: list[RunRecord]) -> None:
    records[3] = dataclasses.replace(records[3], metrics={**records[3].metrics, "test/mae": None})
    table = build_table(spec, records[:6])
    assert not any(cell.best for row in range(4) for cell in cells(table, row))
    assert "| 4.10, 5.10<br>2 of 3 seeds |" in markdown.to_markdown(table)
    assert "undefined in 1 of 3, else 4.10, 5.10" in latex.to_latex(table)
    assert table.finding == "Nothing is shown: MAE is undefined for a run of NTL_WAS or CE."


FINDING = (
    "NTL_WAS is better than CE in MAE by the interval, but not by the exact test: -1.93 [-2.08, -1.79] "
    "against a mean of 6.00 (n = 3 seeds; exact p = 0.25, and n = 3 cannot reach 0.05; named after these runs)"
)
MARKDOWN = r"""# Table 0 with a tiny GPT-2 in place of T5-Small: losses & weights

**{finding}; the control, which has no distance: -0.50.**

## noisy\_numbers, n = 1 to 3 seeds

|  | accuracy ↑ | MAE ↓ |
| --- | ---: | ---: |
| CE<br>n = 3 | 20% ± 10% | 6.0 ± 1.0 |
| control<br>n = 1 | undefined | 5.50 |
| NTL\_WAS<br>n = 3 | 30.0% ± 0.0% | 4.1 ± 1.1 |
| constant: mean | - | 9.00 |

Mean ± standard deviation over seeds; for n = 2 both values. No row is clearly the best in any column.

Paper: 4 runs.

Scale `tiny`. Of its runs 2 are missing; the CSV has their commands. [CSV](mine_tiny.csv): intervals, differences, all columns, where the records are from. [LaTeX](mine_tiny.tex). Made by `python scripts/reproduce.py table=mine scale=tiny`.
"""  # noqa: E501


def test_the_page_for_people(spec, records: list[RunRecord]) -> None:
    expected = MARKDOWN.replace("{finding}", FINDING.replace("_", r"\_"))
    assert markdown.to_markdown(build_table(spec, records)) == expected
    assert markdown.to_markdown(build_table(spec, records[::-1])) == expected


CSV = """\
table,scale,block,kind,group,row,against,metric,n,undefined,mean,sd,low,high,best,learnt,paper_mean,paper_sd,minus_paper,\
agree,p,p_holm,primary,seeds,values,records,command,text
mine,tiny,noisy_numbers,cell,,CE,,test/accuracy,1,0,0.3,,,,false,true,,,,,,,,2,0.3,{1},"{0} loss=ce seed=1,3",
mine,tiny,noisy_numbers,cell,,CE,,test/mae,1,0,6.0,,,,false,true,2.15,0.08,3.85,,,,,2,6.0,{1},"{0} loss=ce seed=1,3",
mine,tiny,noisy_numbers,cell,,CE,,test/count,1,0,100.0,,,,false,true,,,,,,,,2,100.0,{1},"{0} loss=ce seed=1,3",
""".replace("{0}", "python train.py -m dataset=noisy_numbers scale=tiny model=gpt2_tiny")


def test_csv(spec, records: list[RunRecord]) -> None:
    table = build_table(spec, [records[1], records[6]])
    assert flat.to_csv(table).startswith(CSV.replace("{1}", records[1].id))
    assert flat.cells(table)[1]["values"] == [6.0]
    assert flat.cells(table)[6]["mean"] is None


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


def test_a_metric_that_the_records_lack(spec, make_record) -> None:
    part = build_table(
        spec, [make_record("ce", 1, {"test/mae": 1.0, "test/accuracy": 0.5}), make_record("ce", 2, {"test/mae": 2.0})]
    )
    assert r"CE & 2 & {50.0\%} & {1.00, 2.00}" in latex.to_latex(part)
    assert "| CE<br>n = 2 | 50.0%<br>1 of 2 seeds | 1.00, 2.00 |" in markdown.to_markdown(part)


def test_a_row_that_has_not_learnt_is_marked_and_never_bold(spec, records: list[RunRecord]) -> None:
    for record in records:
        record.metrics["test/mae:mean"] = 4.0
    table = build_table(spec, records[:6])
    assert [row.learnt for row in table.blocks[0].rows] == [False, None, False, None]
    assert not any(cell.best for row in range(4) for cell in cells(table, row))
    assert "| NTL\\_WAS<br>*not learnt*<br>n = 3 |" in markdown.to_markdown(table)
    assert "Not learnt: no better than the best constant answer in MAE." in markdown.to_markdown(table)
    assert "NTL\\_WAS (not learnt)" in latex.to_latex(table)
    assert table.finding.startswith(
        "Nothing is shown, as neither NTL_WAS nor CE beats a constant answer in MAE: -1.93 ["
    )
