from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results.build import build_table
from ntl.results.claims import (
    Claim,
    ClaimSource,
    ClaimSpec,
    EvidenceSpec,
    Hypothesis,
    TimingSpec,
    judge_claims,
    load_claims,
)
from ntl.results.pages import results_page
from ntl.results.record import RunRecord

ENTRY = "{table: quickstart, row: CE + digit CE (control), against: CE, metric: test/rmse_truth, says: better}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("row: CE + digit CE (control)", "row: NTL", ".row: table 'quickstart' has no row 'NTL' that runs"),
        ("rmse_truth", "rsme", ": 'test/rsme' is no column with a good end: test/rmse_truth, test/rmse, "),
        ("says: better", "says: best", "evidence[0].says: 'best' does not fit Hypothesis"),
    ],
)
def test_a_wrong_name_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "claims.yaml"
    head = ["claims:", "  - name: it", "    text: It helps.", "    source: here", "    whose: ours", "    evidence:"]
    path.write_text("\n".join([*head, f"      - {ENTRY.replace(old, new, 1)}", ""]), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_claims(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


WAS, RMSE = "NTL-WAS, λ = 0.3", "test/rmse_truth"
CONSTANTS = {f"{RMSE}:{constant}": 20.0 for constant in ("mode", "median", "mean")}
LOSSES = {"CE": ("ce", 0.3), "CE + digit CE (control)": ("ce_digits", 0.3), WAS: ("ntl_was", 0.3)}


def evidence(row: str = WAS, against: str = "CE", **more) -> EvidenceSpec:
    return EvidenceSpec(
        **{"table": "quickstart", "row": row, "against": against, "metric": RMSE, "says": Hypothesis.better} | more
    )


@pytest.fixture
def judge(make_record):
    """The claim of these pieces of evidence, and of scores by row (one a seed) in the metric or in several."""

    def made(scores: dict[str, list[float] | dict[str, list[float]]], *pieces: EvidenceSpec, timings=()) -> Claim:
        records: list[RunRecord] = []
        for row, values in scores.items():
            columns = values if isinstance(values, dict) else {RMSE: values}
            for seed in range(1, 1 + len(next(iter(columns.values())))):
                metrics = {metric: each[seed - 1] for metric, each in columns.items()}
                records.append(make_record(LOSSES[row][0], seed, CONSTANTS | metrics))
        spec = ClaimSpec("it", "It helps.", "here", ClaimSource.ours, list(pieces), list(timings))
        return judge_claims([spec], [build_table("quickstart", records)])[0]

    return made


CE = [10.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("was", "verdict", "text", "why"),
    [
        # sd 0.1 of three differences: ± 4.303 · 0.1 / √3 = 0.248; all of one sign: p = 2 / 2³.
        ([8.1, 8.0, 7.9], "confirmed", "-2.000 [-2.248, -1.752], n = 3, p = 0.25", "for the claim"),
        ([12.1, 12.0, 11.9], "refuted", "+2.000 [+1.752, +2.248], n = 3, p = 0.25", "against it"),
        ([9.0, 8.0, 7.0], "undecided", "-2.000 [-4.484, +0.484], n = 3, p = 0.25", "interval holds 0"),
        ([22.1, 22.0, 21.9], "undecided", "+12.000 [+11.752, +12.248], n = 3, p = 0.25", "not learnt"),
    ],
)
def test_the_verdict_on_one_comparison(judge, was: list[float], verdict: str, text: str, why: str) -> None:
    claim = judge({"CE": CE, WAS: was}, evidence())
    assert claim.verdict == verdict
    where = "- `tiny`, [Quickstart](tables/quickstart_tiny.md), a tiny GPT-2"
    assert f"{where}: {WAS} minus CE, RMSE to the noise-free target: {text}: **{why}**" in results_page([claim], [])


def test_a_run_without_a_value_decides_nothing_and_is_no_missing_run(judge) -> None:
    claim = judge({"CE": CE, WAS: [8.1, None, 7.9]}, evidence())
    assert claim.verdict == "undecided"
    assert "undefined for 1 seed: **undefined**" in results_page([claim], [])


def test_all_that_was_run_must_agree(judge) -> None:
    control = evidence("CE + digit CE (control)")
    scores = {"CE": CE, WAS: [8.1, 8.0, 7.9]}
    # What was not run does not count; no run at all does.
    assert judge(scores, evidence(), control).verdict == "confirmed"
    assert judge({}, evidence(), control).verdict == "untested"
    never = judge({}, evidence(), control)
    assert never.why == "no run"
    assert "- no run: `tiny`, Quickstart\n" in results_page([never], [])
    undecided = scores | {"CE + digit CE (control)": [9.0, 10.0, 12.0]}
    claim = judge(undecided, evidence(), control)
    assert (claim.verdict, claim.why) == ("undecided", "for the claim: 1, interval holds 0: 1")
    worse = scores | {"CE + digit CE (control)": [11.1, 11.0, 10.9]}
    claim = judge(worse, evidence(), control)
    assert (claim.verdict, claim.why) == ("refuted", "+1.000 [+0.752, +1.248], n = 3, p = 0.25 (1 of 2)")
    # One that has not learnt refutes nothing, and keeps the claim from being confirmed.
    assert judge(scores | {"CE + digit CE (control)": [30.1, 30, 29.9]}, evidence(), control).verdict == "undecided"


@pytest.mark.parametrize(
    ("says", "margin", "was", "verdict"),
    [
        (Hypothesis.no_worse, 0.1, [10.4, 10.5, 10.6], "confirmed"),  # +0.5 [+0.252, +0.748], the margin is 1
        (Hypothesis.no_worse, 0.05, [10.4, 10.5, 10.6], "undecided"),  # 0.5 lies in the interval
        (Hypothesis.no_worse, 0.02, [10.4, 10.5, 10.6], "refuted"),
        (Hypothesis.better, 0.1, [8.1, 8.0, 7.9], "confirmed"),  # better by at least 1.752
        (Hypothesis.better, 0.3, [8.1, 8.0, 7.9], "refuted"),  # better, but not by 3
    ],
)
def test_a_margin_is_a_share_of_the_mean(
    judge, says: Hypothesis, margin: float, was: list[float], verdict: str
) -> None:
    claim = judge({"CE": CE, WAS: was}, evidence(says=says, margin=margin))
    assert claim.verdict == verdict
    said = "better by" if says is Hypothesis.better else "no worse within"
    assert f"{said} {100 * margin:g}%: " in results_page([claim], [])


def test_one_row_by_two_rules_of_decoding(judge) -> None:
    pair = evidence("CE", "CE", metric=f"{RMSE}@expectation", against_metric=RMSE)
    claim = judge({"CE": {RMSE: CE, f"{RMSE}@expectation": [8.1, 8.0, 7.9]}}, pair)
    assert claim.verdict == "confirmed"
    assert "CE by expectation minus CE, greedy, RMSE to the noise-free target: -2.000 [" in results_page([claim], [])
    assert judge({"CE": CE}, pair).why == "no run"


CSV = "# one machine\nloss,part,rounds,ratio,ratio_low,ratio_high\nwas,step,7,1.2,1.1,1.3\nwas,loss,7,1.02,1.01,1.03\n"


def timed(**more) -> TimingSpec:
    return TimingSpec(**{"benchmark": "t.csv", "where": {"loss": "was", "part": "step"}, "what": "a step"} | more)


@pytest.mark.parametrize(
    ("part", "margin", "verdict"),
    [("step", 0.05, "refuted"), ("step", 0.2, "undecided"), ("step", 0.4, "confirmed"), ("loss", 0.05, "confirmed")],
)
def test_times_are_held_against_those_of_ce(tmp_path: Path, part: str, margin: float, verdict: str) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    spec = ClaimSpec("it", "It costs nothing.", "here", ClaimSource.paper)
    spec.timings = [timed(where={"loss": "was", "part": part}, margin=margin)]
    (claim,) = judge_claims([spec], [], benchmarks=tmp_path)
    assert claim.verdict == verdict
    assert f": a step, at most {1 + margin:g} times CE: 1." in results_page([claim], [])


def test_a_wrong_benchmark_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    for change, message in (
        ({"benchmark": "no.csv"}, r"no\.csv: cannot be read"),
        ({"where": {"los": "was"}}, r"timings\[0\]: t\.csv: not one line with these columns \('los'\)$"),
        ({"where": {"loss": "was"}}, r"t\.csv: not one line with these columns \(too many values"),
    ):
        spec = ClaimSpec("it", "It costs nothing.", "here", ClaimSource.paper, timings=[timed(**change)])
        with pytest.raises(UserError, match=message):
            judge_claims([spec], [], benchmarks=tmp_path)
