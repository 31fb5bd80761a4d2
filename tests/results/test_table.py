import dataclasses
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.table import load_table_spec
from ntl.results import RunRecord, Table, build_table, pack_bits

SPEC = """
title: Losses & weights
note: "Paper: 4 runs."
blocks:
  - title: noisy_numbers
    dataset: noisy_numbers
    scales:
      tiny: {seeds: [1, 2, 3], replace: {model=t5_small: model=gpt2_tiny}}
    overrides: [model=t5_small]
    columns:
      - {metric: test/accuracy, header: accuracy, better: higher, format: .1%}
      - {metric: test/mae, header: MAE, better: lower, format: .2f}
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
    return table.blocks[0].rows[row].cells


def test_cells(spec, records: list[RunRecord]) -> None:
    table = build_table(spec, records)
    accuracy, mae = cells(table, 0)
    assert mae.summary is not None
    assert accuracy.summary is not None
    assert (mae.summary.mean, mae.summary.sd, mae.seeds, mae.paper) == (6.0, 1.0, (1, 2, 3), (2.15, 0.08))
    assert accuracy.summary.mean == pytest.approx(0.2)
    assert [row.missing for row in table.blocks[0].rows] == [(), (1, 3), (), ()]
    assert table.commands == [
        "python train.py -m dataset=noisy_numbers scale=tiny model=gpt2_tiny loss=ce_digits loss.weight=0.3 seed=1,3"
    ]
    assert table.num_records == 7


def test_the_best_row_is_bold_only_where_the_interval_supports_it(spec, records: list[RunRecord]) -> None:
    # The control's single run ranks between the others on MAE: the best row shares one seed with it, so no interval.
    assert not any(cell.best for row in range(4) for cell in cells(build_table(spec, records), row))
    # Without it, WAS - CE is -2, -1.9, -1.9 on MAE (interval without 0) and +.1, 0, +.2 on accuracy (with 0).
    table = build_table(spec, records[:6])
    assert [cell.best for cell in cells(table, 2)] == [False, True]
    assert not any(cell.best for row in (0, 1, 3) for cell in cells(table, row))


def test_a_tie_is_never_bold(spec, make_record) -> None:
    metrics = {"test/accuracy": 0.5, "test/mae": 1.0}
    same = [make_record(loss, seed, metrics) for loss in ("ce", "ntl_was") for seed in (1, 2, 3)]
    table = build_table(spec, same)
    assert not any(cell.best for row in range(3) for cell in cells(table, row))
    assert "+0.00 [+0.00, +0.00] 0/3" in table.markdown()


def test_an_undefined_row_is_never_best(spec, records: list[RunRecord]) -> None:
    records[3] = dataclasses.replace(records[3], metrics={**records[3].metrics, "test/mae": None})
    table = build_table(spec, records[:6])
    assert not any(cell.best for row in range(4) for cell in cells(table, row))
    assert "undefined in 1 of 3, else 4.10, 5.10" in table.markdown()
    assert "undefined |" in table.markdown().split("Differences.")[1]


MARKDOWN = r"""## Losses & weights

`mine` at `scale=tiny`.

Paper: 4 runs.

### noisy\_numbers

|  | n | accuracy ↑ | MAE ↓ |
| --- | ---: | ---: | ---: |
| CE | 3 | 20.0% ± 10.0% [-4.8%, 44.8%] | 6.00 ± 1.00 [3.52, 8.48]<br>paper 2.15 ± 0.08 (+3.85) |
| control | 1 | undefined | 5.50 |
| NTL\_WAS | 3 | 30.0% ± 0.0% [30.0%, 30.0%] | 4.07 ± 1.05 [1.46, 6.68]<br>paper 0.91 (+3.16) |
| constant: mean |  | - | 9.00 |

Mean ± standard deviation over n seeds [95% t interval]; for n = 2 both values. Bold: the best row, where its difference from the second best, paired by seed, has an interval without 0. In brackets behind the paper's value: ours minus it.

- At scale=tiny gpt2\_tiny stands in for t5\_small. The paper's numbers are those of the published models.
- Unparsable outputs over all seeds: test: control 2 of 100.
- From 7 run records, commit 0123456, device cpu.

Differences. Mean difference over the seeds of both rows [95% t interval] seeds with that sign; bold: the interval excludes 0. With one common seed an interval is a bootstrap over test examples. Not corrected for the number of comparisons.

|  | accuracy ↑ | MAE ↓ |
| --- | ---: | ---: |
| control minus CE | undefined | -0.50 |
| NTL\_WAS minus CE | +10.0% [-14.8%, +34.8%] 2/3 | **-1.93 [-2.08, -1.79] 3/3** |
| NTL\_WAS minus control | undefined | -1.40 |

Runs that are missing:

```sh
python train.py -m dataset=noisy_numbers scale=tiny model=gpt2_tiny loss=ce_digits loss.weight=0.3 seed=1,3
```
"""  # noqa: E501


def test_markdown(spec, records: list[RunRecord]) -> None:
    assert build_table(spec, records).markdown() == MARKDOWN
    assert build_table(spec, records[::-1]).markdown() == MARKDOWN


LATEX = r"""% Needs \usepackage{booktabs,graphicx}. Computed from run records: do not edit.

\begin{table}
\centering
\caption{Losses \& weights (scale: tiny)}
\label{tab:mine-tiny}
\setlength{\tabcolsep}{4pt}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{lrrr}
\toprule
 & $n$ & \begin{tabular}[b]{@{}r@{}}accuracy $\uparrow$\end{tabular} & \begin{tabular}[b]{@{}r@{}}MAE $\downarrow$\end{tabular} \\
\midrule
CE & 3 & {20.0\% $\pm$ 10.0\%} & {6.00 $\pm$ 1.00} \\
 & & \footnotesize{[$-$4.8\%, 44.8\%]} & \footnotesize{[3.52, 8.48]} \\
\quad \textit{paper} & &  & 2.15 $\pm$ 0.08 (+3.85) \\
control & 0 & {-} & {-} \\
NTL\_WAS & 3 & {30.0\% $\pm$ 0.0\%} & \textbf{4.07 $\pm$ 1.05} \\
 & & \footnotesize{[30.0\%, 30.0\%]} & \footnotesize{[1.46, 6.68]} \\
\quad \textit{paper} & &  & 0.91 (+3.16) \\
constant: mean &  & {-} & {9.00} \\
\bottomrule
\end{tabular}}
\par\smallskip\raggedright\scriptsize
Mean $\pm$ standard deviation over n seeds [95\% t interval]; for n = 2 both values. Bold: the best row, where its difference from the second best, paired by seed, has an interval without 0.\par
Paper: 4 runs.\par
At scale=tiny gpt2\_tiny stands in for t5\_small. The paper's numbers are those of the published models.\par
Unparsable outputs over all seeds: test: none.\par
From 6 run records, commit 0123456, device cpu.\par
\end{table}
"""  # noqa: E501


def test_latex(spec, records: list[RunRecord]) -> None:
    assert build_table(spec, records[:6]).latex() == LATEX


CSV = """\
table,scale,block,group,row,metric,n,undefined,mean,sd,low,high,best,paper_mean,paper_sd,minus_paper,seeds,values,records,command
mine,tiny,noisy_numbers,,CE,test/accuracy,1,0,0.3,,,,false,,,,2,0.3,ce-0.3-s2,"{0} loss=ce seed=1,3"
mine,tiny,noisy_numbers,,CE,test/mae,1,0,6.0,,,,false,2.15,0.08,3.85,2,6.0,ce-0.3-s2,"{0} loss=ce seed=1,3"
mine,tiny,noisy_numbers,,control,test/accuracy,0,1,,,,,false,,,,2,,ce_digits-0.3-s2,"{0} loss=ce_digits loss.weight=0.3 seed=1,3"
mine,tiny,noisy_numbers,,control,test/mae,1,0,5.5,,,,false,,,,2,5.5,ce_digits-0.3-s2,"{0} loss=ce_digits loss.weight=0.3 seed=1,3"
mine,tiny,noisy_numbers,,NTL_WAS,test/accuracy,0,0,,,,,false,,,,,,,"{0} loss=ntl_was loss.weight=0.3 seed=1,2,3"
mine,tiny,noisy_numbers,,NTL_WAS,test/mae,0,0,,,,,false,0.91,,,,,,"{0} loss=ntl_was loss.weight=0.3 seed=1,2,3"
mine,tiny,noisy_numbers,,constant: mean,test/accuracy,0,0,,,,,false,,,,,,,
mine,tiny,noisy_numbers,,constant: mean,test/mae,1,0,9.0,,,,false,,,,,9.0,,
""".replace("{0}", "python train.py -m dataset=noisy_numbers scale=tiny model=gpt2_tiny")  # noqa: E501


def test_csv(spec, records: list[RunRecord]) -> None:
    table = build_table(spec, [records[1], records[6]])
    assert table.csv() == CSV
    assert table.cells()[1]["values"] == [6.0]
    assert table.cells()[4]["mean"] is None


def test_two_seeds_show_both_values(spec, records: list[RunRecord]) -> None:
    text = build_table(spec, [records[0], records[1], records[3], records[4]]).markdown()
    assert "| CE | 2 | 20.0%, 30.0% | 5.00, 6.00<br>paper 2.15 ± 0.08 (+3.35) |" in text
    assert "| NTL\\_WAS minus CE | +10.0%, +0.0% 1/2 | -2.00, -1.90 2/2 |" in text


def test_one_seed_is_compared_over_test_examples(spec, make_record) -> None:
    bits = {"ce": [True] * 50 + [False] * 50, "ntl_was": [True] * 80 + [False] * 20}
    ids = {"ce": {"test": "x"}, "ntl_was": {"test": "x"}}

    def text() -> str:
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
        return build_table(spec, made).markdown()

    # 30 of 100 examples differ: binomial(100, 0.3) / 100 has the 2.5 % and 97.5 % points 0.21 and 0.39
    assert "minus CE | **+30.0% [+21.0%, +39.0%]** | +0.00 |" in text()
    ids["ce"] = {"test": "y"}
    assert "minus CE | +30.0% | +0.00 |" in text()


def test_nothing_recorded(spec) -> None:
    table = build_table(spec, [])
    assert "constant" not in table.markdown()
    assert "| CE | 0 | - | -<br>paper 2.15 ± 0.08 |" in table.markdown()
    assert "Differences." not in table.markdown()
    assert "From " not in table.markdown()
    assert len(table.commands) == 3


def test_a_metric_that_the_records_lack(spec, make_record) -> None:
    table = build_table(spec, [make_record("ce", 1, {"test/mae": 1.0}), make_record("ce", 2, {"test/mae": 2.0})])
    assert "- CE: test/accuracy not in the records of ce-0.3-s1, ce-0.3-s2" in table.markdown()
    part = build_table(
        spec, [make_record("ce", 1, {"test/mae": 1.0, "test/accuracy": 0.5}), make_record("ce", 2, {"test/mae": 2.0})]
    )
    assert "| CE | 2 | 50.0% (n=1) | 1.00, 2.00" in part.markdown()


def test_what_makes_a_comparison_unfair_is_said(spec, make_record) -> None:
    first = make_record("ce", 1, {}, data={"files": {"train": "1"}})
    config = {**first.config, "trainer": {"name": "default", "max_steps": 9}}
    ours = {**config, "loss": {"name": "ntl_was", "weight": 0.3}}
    other = make_record(
        "ntl_was", 1, {}, config=ours, data={"files": {"train": "2"}}, git={"commit": "f", "dirty": True}
    )
    text = build_table(spec, [first, other]).markdown()
    assert "- Not a fair comparison: the runs also differ in trainer.max\\_steps." in text
    assert "- Not a fair comparison: the runs read 2 different versions of the data." in text
    assert "- From 2 run records, commit 0123456, f (1 with uncommitted changes), device cpu." in text
    # The seeds of one row may not even differ in what the rows are there to vary.
    later = make_record("ce", 2, {}, config={**first.config, "loss": {"name": "ce", "weight": 0.5}})
    assert "the runs also differ in loss.weight." in build_table(spec, [first, later]).markdown()


def test_constants_of_different_data_are_all_listed(spec, make_record) -> None:
    made = [make_record("ce", seed, {"test/mae:mean": value}) for seed, value in ((1, 9.0), (2, 9.0), (3, 8.0))]
    assert "| constant: mean |  | - | 8.00, 9.00 |" in build_table(spec, made).markdown()


def test_names(spec) -> None:
    with pytest.raises(UserError, match="no table 'quikstart': did you mean 'quickstart'"):
        build_table("quikstart", [])
    with pytest.raises(UserError, match="table 'quickstart' has no scale 'paper': choose from tiny"):
        build_table("quickstart", [], "paper")
    assert build_table("quickstart", []).name == "quickstart"
