"""What the plan of 2026-11-29 names second (results/log/2026-11.md), from run records: python scripts/readings_plan.py.

Tables A and D are `readings` and `stages`, B and C the two blocks of `readings_real`. Effects are as in the tables.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS
from ntl.results.effects import Effect, Seeds, effect
from ntl.results.match import by_seed, plan_block, row_records
from ntl.results.record import RunRecord, check_folders, load_records, unpack_errors
from ntl.results.spec import ColumnSpec, table_spec

CE, NTL = "CE", "NTL-WAS, λ = 0.3"
DOSES = {"0.1": "NTL-WAS, λ = 0.1", "0.3": NTL, "1.0": "NTL-WAS, λ = 1.0"}
MIDDLE = "noise 6, 4,000 rows"
NOISY = ("noise 6, 500 rows", MIDDLE, "noise 12, 500 rows", "noise 12, 4,000 rows")
STAGES = ("from nothing", "from 4,000 steps of CE")
READINGS = ("", "@digit_median", "@median", "@expectation")
TRUTH, LOG_APE = "test/rmse_truth", "interpolate/log_ape"
LIMIT = 100.0  # of an error: the answers have two digits
RESAMPLES = 10_000
Runs = Mapping[int, RunRecord]  # by seed
Arms = Mapping[tuple[str, str], Runs]  # (group, label) -> runs


def arms_of(table: str, scale: str, records: Sequence[RunRecord], block: int = 0) -> Arms:
    """The runs of each row of a block."""
    rows = plan_block(table_spec(table).blocks[block], scale)
    return {(row.spec.group, row.spec.label): row_records(row, records) for row in rows if row.overrides}


def chosen(validation: str, test: str, runs: Runs) -> Seeds:
    """Of each run the test error by the reading with the least ``validation`` error, of equal ones the first."""

    def error(run: RunRecord, reading: str) -> float:
        value = run.value(validation + reading)
        return math.inf if value is None else value

    there = {seed: [r for r in READINGS if run.has(validation + r)] for seed, run in runs.items()}
    return {seed: run.value(test + min(there[seed], key=partial(error, run))) for seed, run in runs.items()}


def limited(runs: Runs, reading: str = "") -> Seeds:
    """Of each run the root of the mean square of its errors from the labels, each at most ``LIMIT``, NaN too."""
    errors = {seed: unpack_errors(run.errors[f"test{reading}"]).astype(float) for seed, run in runs.items()}
    return {seed: float(np.sqrt(np.mean(np.fmin(of, LIMIT) ** 2))) for seed, of in errors.items()}


def share_explained(by_loss: np.ndarray, by_reading: np.ndarray) -> tuple[float, float, float]:
    """Mean gain of a reading over mean gain of a loss, (n,) each over seeds, with the ends of its 95% interval.

    The interval is of percentiles, over ``RESAMPLES`` resamples of seeds.
    """
    rows = np.random.default_rng(0).integers(len(by_loss), size=(RESAMPLES, len(by_loss)))
    low, high = np.percentile(by_reading[rows].mean(1) / by_loss[rows].mean(1), [2.5, 97.5])
    return float(by_reading.mean() / by_loss.mean()), float(low), float(high)


def same_in_all_cells(differences: np.ndarray) -> tuple[float, float]:
    """F and p of cells within seeds, of differences (n, k) of n seeds in k cells, one for each."""
    from scipy.special import fdtrc

    (n, k), of_cells, of_seeds = differences.shape, differences.mean(0), differences.mean(1, keepdims=True)
    rest = differences - of_cells - of_seeds + differences.mean()
    f = n * of_cells.var(ddof=1) / ((rest**2).sum() / ((n - 1) * (k - 1)))
    return float(f), float(fdtrc(k - 1, (n - 1) * (k - 1), f))


def resampled(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """Mean error of ``second`` less ``first``, with its 95% interval; both have the errors (rows,) of each seed.

    The interval is of percentiles, over resamples of seeds and, within them, of rows. NaN is no error.
    """
    generator, means = np.random.default_rng(0), np.empty(resamples)
    for at in range(resamples):
        gaps = []
        for seed in generator.integers(len(first), size=len(first)):
            rows = generator.integers(len(first[seed]), size=len(first[seed]))
            gaps.append(np.nanmean(second[seed][rows]) - np.nanmean(first[seed][rows]))
        means[at] = np.mean(gaps)
    gap = np.mean([np.nanmean(b) - np.nanmean(a) for a, b in zip(first, second, strict=True)])
    low, high = np.percentile(means, [2.5, 97.5])
    return float(gap), float(low), float(high)


def _said(what: str, gap: Effect | None) -> str:
    return f"- {what}: {gap.text if gap else 'no run of a common seed'}"


def _gap(base: Runs, other: Runs, metric: str, base_reading: str = "", reading: str = "") -> Effect | None:
    column = ColumnSpec(metric + reading)
    return effect(column, [by_seed(metric + base_reading, base)], [by_seed(metric + reading, other)])


def _best(pairs: Sequence[tuple[Runs, Runs]], validation: str, test: str) -> str:
    base, other = ([chosen(validation, test, runs) for runs in side] for side in zip(*pairs, strict=True))
    gap = effect(ColumnSpec(test), base, other)
    return _said(f"{NTL} against {CE}, each by the reading that validation chooses", gap)


def _primary(table: str, scale: str, records: Sequence[RunRecord]) -> str:
    from ntl.results.table import build_table  # here, so that a package that is missing is one line

    return f"- primary: {build_table(table, records, scale).finding}"


def readings(records: Sequence[RunRecord]) -> Iterator[str]:
    """Table A."""
    arms = arms_of("readings", "tiny", records)

    def logs(label: str, groups: Sequence[str]) -> tuple[np.ndarray, ...]:
        """Of the seeds that all have, (seeds, cells) each: of CE greedily and by digit median, of the row greedily."""
        runs = [(arms[group, CE], arms[group, label]) for group in groups]
        seeds = sorted(set.intersection(*(set(side) for pair in runs for side in pair)))
        sides = ((0, TRUTH), (0, f"{TRUTH}@digit_median"), (1, TRUTH))
        values = [[[pair[side][seed].value(metric) for pair in runs] for seed in seeds] for side, metric in sides]
        return tuple(np.log(np.array(values, dtype=float)))

    def greedily(label: str, groups: Sequence[str]) -> Effect | None:
        base, other = ([by_seed(TRUTH, arms[group, row]) for group in groups] for row in (CE, label))
        return effect(ColumnSpec(TRUTH), base, other)

    yield _primary("readings", "tiny", records)
    whole = greedily(NTL, NOISY)
    if whole is None or whole.summary.n < 3:
        return
    if whole.gain and whole.gain[0] > 0:  # else there is no gain to explain
        doses = [(f"{MIDDLE}, λ = {dose}", label, [MIDDLE]) for dose, label in DOSES.items()]
        for what, label, groups in (("the four cells with noise", NTL, NOISY), *doses):
            if gap := greedily(label, groups):
                greedy, median, loss = logs(label, groups)
                share = "{:.2f} [{:.2f}, {:.2f}]".format(
                    *share_explained((greedy - loss).mean(1), (greedy - median).mean(1))
                )
                yield f"- {what}: the digit median explains {share} of NTL-WAS's greedy gain ({gap.short})"
    _, median, loss = logs(NTL, NOISY)
    f, p = same_in_all_cells(loss - median)
    yield f"- the primary difference in the four cells: F = {f:.2f}, p = {p:.2g}"
    every = dict.fromkeys(group for group, _ in arms)
    for group in every:
        base, other = arms[group, CE], arms[group, NTL]
        yield _said(f"{group}, {NTL} greedily against {CE} greedily", _gap(base, other, TRUTH))
        yield _said(f"{group}, {NTL} greedily against {CE} by digit median", _gap(base, other, TRUTH, "@digit_median"))
        yield f"{_best([(base, other)], 'validation/rmse', TRUTH)}, {group}"
    yield _best([(arms[group, CE], arms[group, NTL]) for group in NOISY], "validation/rmse", TRUTH)
    yield f"- after: RMSE to the labels, each error at most {LIMIT:.0f}, {NTL} greedily against {CE}"
    for name, groups in (("the four cells with noise", NOISY), *((group, [group]) for group in every)):
        other = [limited(arms[group, NTL]) for group in groups]
        for reading, way in (("", "greedily"), ("@digit_median", "by digit median")):
            base = [limited(arms[group, CE], reading) for group in groups]
            yield f"  {_said(f'{name}, {CE} {way}', effect(ColumnSpec('test/rmse'), base, other))}"


def products(records: Sequence[RunRecord]) -> Iterator[str]:
    """Table B."""
    arms = arms_of("readings_real", "real", records)
    base, other = arms["", CE], arms["", NTL]
    yield _primary("readings_real", "real", records)
    yield _said(f"{CE} by digit median against {CE} greedily", _gap(base, base, LOG_APE, "", "@digit_median"))
    exact = "interpolate/accuracy"
    yield _said(f"exact answers, {CE} by digit median against greedily", _gap(base, base, exact, "", "@digit_median"))
    yield _said(f"exact answers, {NTL} against {CE}, greedily", _gap(base, other, exact))
    yield _said(f"bits of the right answer, {NTL} against {CE}", _gap(base, other, "interpolate/bits"))
    yield _best([(base, other)], "validation/log_ape", LOG_APE)


def melting_points(records: Sequence[RunRecord]) -> Iterator[str]:
    """Table C."""
    arms = arms_of("readings_real", "real", records, block=1)
    for label in (CE, NTL):
        runs = arms["", label]
        for reading in READINGS[1:] if len(runs) > 2 else ():
            first, second = ([unpack_errors(run.errors[f"test{at}"]) for run in runs.values()] for at in ("", reading))
            gap = "{:+.2f} [{:+.2f}, {:+.2f}] K".format(*resampled(first, second))
            yield f"- {label}, MAE by {reading[1:].replace('_', ' ')} less greedily: {gap}, n = {len(runs)}"
    yield _best([(arms["", CE], arms["", NTL])], "validation/mae", "test/mae")


def stages(records: Sequence[RunRecord]) -> Iterator[str]:
    """Table D."""
    arms = arms_of("stages", "tiny", records)
    yield _primary("stages", "tiny", records)
    for stage in STAGES:
        base, other = arms[stage, CE], arms[stage, NTL]
        for reading in READINGS[:2]:
            way = reading[1:].replace("_", " ") or "greedily"
            gap = _gap(base, other, LOG_APE, reading, reading)
            yield _said(f"{stage}, both {'by ' * bool(reading)}{way}, {NTL} against {CE}", gap)
        yield f"{_best([(base, other)], 'validation/log_ape', LOG_APE)}, {stage}"


def main(argv: Sequence[str] | None = None) -> None:
    """Print a section for each table. UserError: a folder that does not exist."""
    parser = Parser(description=__doc__)
    default = [RESULTS / "runs"]
    parser.add_argument("--records", type=Path, nargs="+", metavar="DIR", default=default, help="default: results/runs")
    records = load_records(check_folders(parser.parse_args(argv).records))
    for name, part in (("A", readings), ("B", products), ("C", melting_points), ("D", stages)):
        print(f"**{name}**", "", *part(records), "", sep="\n")


if __name__ == "__main__":
    sys.exit(report(main, extra="report"))
