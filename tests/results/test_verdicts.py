"""Verdicts of made-up records by hand, and those of the published records as an independent audit computed them."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from ntl.config import UserError
from ntl.results.effects import Outcome
from ntl.results.record import RunRecord
from ntl.results.render import squares
from ntl.results.spec import VerdictsSpec, load_verdicts
from ntl.results.table import build_table
from ntl.results.verdicts import Verdict, correct, corrected, evidence_page, judge, learnt, results_page

WAS, RMSE, MAPE = "NTL-WAS, λ = 0.3", "test/rmse_truth", "interpolate/mape_clipped"
HEAD = """
advice: []
squares: []
learnt: []
claims:
  - name: it
    text: It helps.
    source: here
    whose: ours
    row: "NTL-WAS, λ = 0.3"
    against: CE
    cells:
"""
CELLS = f"""      - {{task: noise, table: quickstart, metric: {RMSE}}}
      - {{task: product, table: quickstart, block: 1, metric: {MAPE}, after: true}}
"""


def load(tmp_path: Path, cells: str = CELLS, head: str = HEAD) -> VerdictsSpec:
    path = tmp_path / "verdicts.yaml"
    path.write_text(f"{head}{cells}", encoding="utf-8")
    return load_verdicts(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{task: noise", "{row: NTL, task: noise", ".row: table 'quickstart' has no row 'NTL' "),
        ("rmse_truth", "rsme", "cells[0]: 'test/rsme' is no column with a good end: test/rmse_truth, "),
        ("table: quickstart, metric", "table: quickstart, scales: [huge], metric", "has no scale 'huge'"),
        ("table: quickstart, ", "", "cells[0]: give a table or a benchmark"),
    ],
)
def test_a_wrong_name_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, CELLS.replace(old, new, 1))
    assert str(caught.value).startswith(f"{tmp_path}/verdicts.yaml: it: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def verdict(tmp_path: Path, make_record: Callable[..., RunRecord]) -> Callable[..., Verdict]:
    """The verdict on the cells, of these errors of CE and NTL-WAS by seed in noise and in products."""

    def make(
        noise: list[float], product: list[float], constant: float = 20.0, cells: str = CELLS, no_worse: bool = False
    ) -> Verdict:
        records = []
        for dataset, metric, scores in (("noisy_numbers", RMSE, noise), ("multiplication", MAPE, product)):
            constants = {f"{metric}:{name}": constant for name in ("mode", "median", "mean")}
            for loss, values in (("ce", [10.0] * len(scores)), ("ntl_was", scores)):
                records += [
                    make_record(loss, seed, {metric: value, **constants}, dataset=dataset)
                    for seed, value in enumerate(values, start=1)
                ]
        head = HEAD.replace("whose: ours", f"whose: ours\n    no_worse: {no_worse}")
        tables = [build_table("quickstart", records)]
        found = judge(load(tmp_path, cells, head), tables)
        assert correct(found, tables) == []
        return found[0]

    return make


LESS, MORE, SAME, OPEN = [8.0, 8.0, 8.1], [12.0, 12.0, 12.1], [10.0, 10.1, 10.2], [8.0, 10.0, 11.0]


# LESS by hand: log ratios -0.22314 twice and -0.21072, mean -0.21900, half width 4.302653 · 0.0071724 / √3 = 0.01782.
@pytest.mark.parametrize(
    ("noise", "constant", "outcome", "text"),
    [
        (LESS, 20.0, Outcome.supported, "-19.7% [-21.1, -18.2], n = 3, better in 3 of 3, p = 0.00036 corrected over"),
        (OPEN, 20.0, Outcome.inconclusive, "; half width 50%"),
        (LESS, 10.0, Outcome.not_testable, "; the baseline does not beat constant: mode (10.000)"),
        ([], 20.0, Outcome.not_run, "no run"),
    ],
)
def test_one_task(verdict: Callable[..., Verdict], noise: list[float], constant: float, outcome: Outcome, text: str):
    found = verdict(noise, [], constant, CELLS.splitlines()[0])
    assert found.outcome is outcome
    assert text in found.cells[0].text
    page, evidence = results_page([found], "", [], [], []), evidence_page([found], [])
    few = ", n = 3" if noise else ""
    place = f"EVIDENCE.md#it-{outcome.value.replace(' ', '-')}{'-n--3' if noise else ''}"
    assert f"| [It helps.]({place}) | **{outcome.value}{few}** | {outcome.value}: noise (tiny{few}) |" in page
    assert f"\n## It: {outcome.value}{few}\n" in evidence
    assert (f"**{outcome.value}, n = 3**\n" in evidence) == bool(noise)


def test_that_nothing_is_lost_has_a_p_of_its_own(verdict: Callable[..., Verdict]) -> None:
    """A harm that is surely there, and surely below 5%: +1.0%, half width 2.5%."""
    (cell,) = verdict(SAME, [], 20.0, CELLS.splitlines()[0], no_worse=True).cells
    p = stats.ttest_1samp([math.log(value / 10) for value in SAME], math.log(1.05)).pvalue
    assert cell.corrected == pytest.approx(p)
    assert f"worse in 2 of 3, p = {p:.2g} against a loss of 5% corrected over the primary comparisons" in cell.text


def test_runs_of_other_tables_count(tmp_path: Path, make_record: Callable[..., RunRecord]) -> None:
    """Seeds 5 to 7 are of no seed of the table; a pair of two processors, seed 8, is left out.

    By hand: -0.22314, -0.22314, -0.21072 here and 0.18232, 0.18232, 0.19062 elsewhere have the mean -0.01692 and the sd
    0.22137, and 2.5706 · 0.22137 / √6 = 0.2323: -1.7% [-22.1, +24.0].
    """
    scores = {1: 8.0, 2: 8.0, 3: 8.1, 5: 12.0, 6: 12.0, 7: 12.1, 8: 1.0}
    records = [make_record("ce", seed, {RMSE: 10.0}) for seed in scores]
    records += [
        make_record("ntl_was", seed, {RMSE: score}, device="cpu" if seed < 8 else "another cpu")
        for seed, score in scores.items()
    ]
    table = build_table("quickstart", records)
    found = judge(load(tmp_path), [table], records)
    correct(found, [table])
    cell, _ = found[0].cells
    assert cell.text.startswith("-1.7% [-22.1, +24.0], n = 6, better in 3 of 6, exact p = ")
    assert " (in this table n = 3: -19.7% [-21.1, -18.2]; in others n = 3: +20.3% [+18.9, +21.8])" in cell.text
    assert cell.outcome is Outcome.inconclusive
    assert cell.corrected == pytest.approx(stats.ttest_1samp([math.log(score / 10) for score in (8, 8, 8.1)], 0).pvalue)


def test_the_correction_is_over_what_tables_name(tmp_path: Path, make_record, verdict: Callable[..., Verdict]) -> None:
    """A primary comparison counts where it is not testable, and where no claim tests it."""
    alone = verdict(LESS, [], 10.0).cells[0]
    assert (alone.outcome, alone.corrected is None, "corrected" in alone.text) == (Outcome.not_testable, False, False)
    records = [
        make_record(loss, seed, {RMSE: 10.0 + (loss == "ntl_was") * seed})
        for loss in ("ce", "ntl_was")
        for seed in (1, 2, 3)
    ]
    tables = [build_table(name, records) for name in ("quickstart", "evidence")]
    found = judge(load(tmp_path), tables)
    ((table, p),) = correct(found, tables)
    cell = found[0].cells[0]
    assert cell.planned is not None
    assert [cell.corrected, p] == [pytest.approx(2 * (cell.planned.p(says_better=True) or math.nan))] * 2
    evidence = evidence_page(found, [(table, p)])
    assert (
        f"- [{table.parts[0]}](tables/evidence_tiny.md), `tiny`: {table.finding} Corrected over the primary" in evidence
    )
    page = results_page(found, corrected(found, [(table, 0.01)]), [], [], [])
    few = "1 has p below 0.05 after Holm's correction: The losses at scale=tiny ("
    assert f"Of the 2 tests of primary comparisons, {few}" in page


@pytest.mark.slow
def test_the_figures_of_the_audit(published: list[RunRecord]) -> None:
    """Also of arithmetic, which ran at tiny, too: the larger scale counts."""
    spec, names = load_verdicts(), {"table2": "arithmetic", "table5": "multiplication", "table7": "arithmetic"}
    spec.claims = [claim for claim in spec.claims if {cell.table for cell in claim.cells} & names.keys()]
    for claim in spec.claims:
        claim.cells = [cell for cell in claim.cells if cell.table in names]
    tables = [
        build_table(name, [r for r in published if r.id.startswith(data)], scale)
        for name, data in names.items()
        for scale in (("tiny", "hour") if name == "table2" else ("hour",))
    ]
    cells = {(each.spec.name, task): cell.short for each in judge(spec, tables) for task, cell in each.tasks.items()}
    assert cells["better than CE", "arithmetic"] == "+11.7% [+3.1, +21.0]"
    assert cells["better than CE", "arithmetic from scratch"] == "-0.452 [-0.630, -0.274]"
    assert cells["better than CE", "multiplication"] == "-29.0% [-42.4, -12.5]"
    assert cells["distance itself helps", "multiplication"] == "-16.7% [-32.9, +3.3]"
    assert cells["NTL-WAS beats NTL-MSE", "arithmetic"] == "+0.096 [+0.068, +0.123]"
    assert cells["digit tokens help CE", "arithmetic"] == "+0.271 [+0.125, +0.417]"


def test_only_a_primary_is_corrected(published: list[RunRecord]) -> None:
    """Melting points have the primary comparison of their table, MultiRC that with a band of 1%; sentiment has none."""
    spec = load_verdicts()
    spec.claims = [each for each in spec.claims if each.name in ("better than CE in regression", "no harm on text")]
    records = [each for each in published if each.id.startswith(("melting_points", "sentiment", "multirc"))]
    tables = [build_table(name, records, "real") for name in ("table4_real", "table8_real")]
    found = judge(spec, tables)
    assert correct(found, tables) == []
    cells = [cell for each in found for cell in each.cells if cell.corrected is not None]
    assert [cell.spec.task for cell in cells] == ["melting points", "MultiRC, SmolLM2-135M"]
    assert "against a loss of 1% corrected over" in cells[1].text


def test_answers_that_need_no_learning_gate_all_groups_and_other_metrics(published: list[RunRecord]) -> None:
    """Table 5's constants are a group of their own; of MultiRC a constant answer has ROUGE-1, and no CE."""
    records = [each for each in published if each.id.startswith(("multiplication", "multirc-smollm2"))]
    spec = load_verdicts()
    spec.claims = [each for each in spec.claims if each.name == "no architecture worse"]
    found = judge(spec, [build_table("table5", records)])[0].tasks["multiplication, mixture of experts"]
    assert (found.outcome, found.why) == (Outcome.not_testable, "the baseline does not beat constant: median (81.13)")
    assert "equivalent in CE, within 1%" in build_table("table8_real", records, "real").finding
    worse = [replace(each, metrics=each.metrics | {"validation/rouge1": 0.01}) for each in records]
    said = "not testable in CE: the baseline does not beat the most frequent answer (0.017): +0.7% [+0.5, +1.0]"
    assert said in build_table("table8_real", worse, "real").finding


def test_sentences_hold_what_they_rest_on(tmp_path: Path, verdict: Callable[..., Verdict]) -> None:
    found = verdict(LESS, [8.0])
    assert (found.outcome, found.share) == (Outcome.supported, ", n = 3")
    assert found.by_task == "supported: noise (tiny, n = 3); not run: product (tiny)"  # one seed has no interval
    assert found.cells[1].text == "no run"
    head = HEAD.replace("learnt: []", 'learnt: [{text: "It is {it/noise}.", holds: {it/noise: supported}}]')
    spec = load(tmp_path, head=head)
    assert learnt(spec.learnt, [found]) == ["It is -19.7% [-21.1, -18.2]."]
    over = "Of the 1 tests of primary comparisons, 1 has p below 0.05 after Holm's correction"
    page = results_page([found], corrected([found], []), [], [], [])
    assert f"{over}: it, noise (supported)." in page
    planned = {"primary/it_tiny": ("8 of 9", Outcome.supported)}
    other = head.replace("{it/noise}", "{primary/it_tiny}").replace("it/noise:", "primary/it_tiny:")
    assert learnt(load(tmp_path, head=other).learnt, [found], planned=planned) == ["It is 8 of 9."]
    with pytest.raises(UserError, match="rests on it/noise being supported, and it is contradicted: write what is"):
        learnt(spec.learnt, [verdict(MORE, [])])
    too = replace(found, spec=replace(found.spec, name="too"))
    with pytest.raises(UserError, match=r"no sentence rests on too/noise \(supported\): write one that is true of it"):
        learnt(spec.learnt, [found, too])
    assert learnt(spec.learnt, [found, too], complete=False) == ["It is -19.7% [-21.1, -18.2]."]
    with pytest.raises(UserError, match="'it/nose' is no claim/task"):
        learnt(load(tmp_path, head=head.replace("{it/noise}", "{it/nose}")).learnt, [found])


def test_a_square_has_both_losses_read_in_both_ways(tmp_path: Path, make_record: Callable[..., RunRecord]) -> None:
    """Means over seeds; what a row or a table lacks is an empty cell, but a table without the block is an error."""
    runs = []
    for loss, errors in (("ce", (8.0, 10.0)), ("ntl_was", (6.0, 7.0))):
        for seed, error in enumerate(errors, 1):
            runs.append(make_record(loss, seed, {RMSE: error, f"{RMSE}@expectation": error / 2}))
    square = "{task: noise, table: evidence, scale: tiny, metric: test/rmse_truth, reading: expectation}"
    spec = load(tmp_path, head=HEAD.replace("squares: []", f"squares: [{square}]"))
    lines = squares(spec.squares, [build_table("evidence", runs)])
    assert lines[2] == "| noise | 2 | mean | 9.00 | 4.50 | 6.50 | 3.25 |  |  |"
    with pytest.raises(UserError, match="squares: noise: there is no such table, scale and block"):
        squares(spec.squares, [])


def test_times_are_of_a_benchmark(tmp_path: Path) -> None:
    entry = """      - {task: loss, benchmark: times.csv, row: "NTL, loss", against: CE, where: {loss: ntl}}
      - {task: fused, benchmark: times.csv, row: "NTL, fused", against: CE fused, where: {loss: ntl}, over: {loss: ce}}
"""
    spec = load(tmp_path, entry, HEAD.replace("whose: ours", "whose: ours\n    no_worse: true"))
    (tmp_path / "times.csv").write_text("loss,rounds,ratio,ratio_low,ratio_high\nntl,7,1.2,1.1,1.3\nce,7,1.2,1.2,1.2\n")
    (found,) = judge(spec, [], [], tmp_path)
    assert [cell.text for cell in found.cells] == ["1.20 [1.10, 1.30] times CE", "1.00 [0.92, 1.08] times CE fused"]
    assert [cell.outcome for cell in found.cells] == [Outcome.contradicted, Outcome.inconclusive]
    (tmp_path / "times.csv").write_text("loss,rounds,ratio,ratio_low,ratio_high\nntl,7,1,1,1\nntl,7,1,1,1\n")
    with pytest.raises(UserError, match=r"it: times\.csv: not one line as named"):
        judge(spec, [], [], tmp_path)
