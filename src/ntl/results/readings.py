"""What runs say at their end of losses and of ways to read them: errors, differences from CE, and what follows."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np

from ntl.evaluation.metrics import COVERED, RIDGE, metric_of
from ntl.results.effects import Effect, Outcome, Seeds, effect, summarize, with_outcome
from ntl.results.record import RECORD, RunRecord, read_record, unpack_errors
from ntl.results.render import plus_minus
from ntl.results.spec import ColumnSpec
from ntl.results.table import by_seed
from ntl.system.errors import UserError

OWN_ERROR = {"multiplication": "mape_clipped"}  # of other data sets the MAE
INTERVALS = {"coverage_90": "share of answers in their 90% intervals", "width_90": "width of these intervals"}


def regression_heads(records: Sequence[RunRecord], outputs: Path) -> list[RunRecord]:
    """The finished runs of regression heads in a folder of runs, on the data and from the weights of these records."""

    def start(record: RunRecord) -> tuple[object, ...]:
        weights = record.model.get("weights", {})
        return record.data.get("files"), record.config["scale"]["name"], weights.get("sha256"), record.steps

    found, known = list[RunRecord](), {record.id for record in records}
    for path in sorted(outputs.glob(f"*/{RECORD}")):
        with suppress(UserError):  # a broken record of another run is no fault of this one
            found.append(read_record(path))
    heads = (each for each in found if each.config["model"].get("head") == "regression" and each.id not in known)
    return [each for each in heads if start(each) == start(records[0])]


def compare_readings(names: Sequence[str], records: Sequence[RunRecord]) -> list[str]:
    """The lines of tables with a row for each name of runs, over their seeds, and a column for each reading.

    They are the error on the first test split of numbers, its difference from that of CE read in the same way and read
    as the first column, and what is known of intervals; beside them ridge regression and the best constant answer, and
    at the end what follows. Without CE the first row takes its place. Nothing for answers that are no numbers, and for
    a single row with a single reading.
    """
    import pandas as pd

    splits = [key for record in records for key in record.errors if "@" not in key and key != "validation"]
    first, runs = records[0], dict[str, dict[int, RunRecord]]()
    for name, record in zip(names, records, strict=True):
        runs.setdefault(name, {})[record.seed] = record
    called = {"": str(first.config.get("decoding", {}).get("name", ""))}
    called |= {name: name for record in records for name in record.config.get("beside", {})}
    # Greedy answers first; the run's own decoding once, also where it is one of several.
    order = sorted(called, key=lambda at: called[at] != "greedy")
    readings = [at for place, at in enumerate(order) if called[at] not in [called[each] for each in order[:place]]]
    if not splits or len(runs) * len(readings) < 2:
        return []
    split, base_at, places = splits[0], readings[0], [*product(runs, readings)]
    column = ColumnSpec(f"{split}/{OWN_ERROR.get(first.config['dataset']['name'], 'mae')}")
    called = {at: name.replace("_", " ") for at, name in called.items()}
    of_ce = [name for name, have in runs.items() for r in have.values() if r.config["loss"]["name"] == "ce"]
    base_row = (of_ce or [*runs])[0]

    def values(row: str, at: str, metric: str = column.metric) -> Seeds:
        return by_seed(f"{metric}@{at}" if at else metric, runs[row])

    def table(title: str, cell: Callable[[str, str], str]) -> list[str]:
        found = pd.DataFrame({called[at]: {row: cell(row, at) for row in runs} for at in readings})
        found = found[found.ne("").any(axis="columns")]
        return ["", title, *found.to_string().splitlines()] if len(found) else []

    def gap(row: str, at: str, base_at: str) -> Effect | None:
        base = values(base_row, base_at)
        return effect(column, [base], [values(row, at)]) if base and (row, at) != (base_row, base_at) else None

    def short(found: Effect | None) -> str:
        return found.short if found else ""

    def mean(row: str, at: str, metric: str) -> str:
        found = summarize([*values(row, at, metric).values()]).mean
        return "" if found is None else f"{found:.3g}"

    summaries = {place: summarize([*values(*place).values()]) for place in places}
    lines = table(
        f"{split} {metric_of(column.metric).heading}, mean ± standard deviation over seeds",
        lambda row, at: plus_minus(summaries[row, at], column.format),
    )
    references = {name: first.metrics.get(f"{column.metric}:{name}") for name in ("mode", "median", "mean", RIDGE)}
    scores = {name: score for name, score in references.items() if score is not None}
    ridge = scores.pop(RIDGE, math.inf)
    best = {"a constant answer": min(scores.values(), default=math.inf), "ridge regression on characters": ridge}
    told = [f"{format(score, column.format)} by {name}" for name, score in best.items() if score < math.inf]
    lines += [f"For comparison: {', '.join(told)}."] if told else []
    lines += table(f"difference from {base_row}, read in the same way", lambda row, at: short(gap(row, at, at)))
    lines += table(f"difference from {base_row}, {called[base_at]}", lambda row, at: short(gap(row, at, base_at)))
    for metric, title in INTERVALS.items():
        lines += table(title, lambda row, at, name=f"{split}/{metric}": mean(row, at, name))
    gaps = {f"{row}, {called[at]}": found for row, at in places if (found := gap(row, at, base_at))}
    advice = _advice(f"{base_row}, {called[base_at]}", gaps)
    if ridge < min((each.mean for each in summaries.values() if each.mean is not None), default=-math.inf):
        advice.append("Ridge regression on characters has less error than all of these: the model adds nothing yet.")
    lost = {
        f"{row}, {called[at]}": float(np.isnan(unpack_errors(record.errors[key])).mean())
        for row, at in places
        for record in runs[row].values()
        if (key := f"{split}@{at}" if at else split) in record.errors and column.metric.endswith("/mae")
    }
    if lost and (share := max(lost.values())) > 0:
        of = max(lost, key=lost.__getitem__)
        advice.append(f"An answer without a number is in no MAE: up to {share:.0%} of the answers ({of}).")
    shares = [value or 0.0 for place in places for value in values(*place, f"{split}/represented").values()]
    if (found := min(shares, default=1.0)) < COVERED:
        advice.append(f"Of some rows, median and expectation are of a part of the answers: {found:.0%} are numbers.")
    return [*lines, "", *advice]


def _advice(base: str, gaps: Mapping[str, Effect]) -> list[str]:
    """Sentences that the intervals of the differences from ``base`` allow."""
    known = {name: found for name, found in gaps.items() if found.summary.mean is not None}
    if max((found.summary.n for found in known.values()), default=0) < 3:
        few = "One or two seeds show no difference: three give an interval, and six can bring p below 0.05."
        return [few] if known else []
    shown = sorted(with_outcome(known, Outcome.supported), key=lambda name: known[name].summary.mean or 0.0)
    if not shown:
        return [f"Nothing is shown to have less error than {base}: each interval includes 0, or is above it."]
    also = f"; also {'; '.join(shown[1:])}" if shown[1:] else ""
    return [
        f"Less error than {base}: {shown[0]}, {known[shown[0]].text}{also}. Of many differences some are chance: let "
        "validation choose (decoding=auto)."
    ]
