"""What runs say at their end, alone or in a sweep: their metrics and readings, effects paired by seed, what follows."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ntl.evaluation.metrics import COVERED, RIDGE, metric_of
from ntl.results.effects import Effect, Outcome, effect, summarize, with_outcome
from ntl.results.match import NOT_COMPUTED_WITH, by_seed, override_key
from ntl.results.record import RECORD, RunRecord, read_record, run_record, unpack_errors
from ntl.results.render import header, plus_minus
from ntl.results.spec import ColumnSpec
from ntl.system.errors import UserError, needs

if TYPE_CHECKING:
    import pandas as pd

OWN_ERROR = {"multiplication": "mape_clipped"}  # of other data sets the MAE
INTERVALS = {"coverage_90": "share of answers in their 90% intervals", "width_90": "width of these intervals"}
SHOWN = ("accuracy", "mae", "exact_match", "rouge1", "ce", "bits_per_byte")  # of each test split, where it has them
LEGEND = (
    "Mean ± standard deviation over n seeds. Effect over the first row, over the seeds of both, on the same test data: "
    "of errors the ratio, of rates the difference [95% t interval]; nothing is corrected for the number of comparisons."
)


def show_sweep(runs: Mapping[Path, Sequence[str]]) -> None:
    """Print how the runs of a sweep compare, as far as they have a record, and which have none.

    ``runs`` are their folders, with the overrides of this sweep: those of a record may be of an earlier command.
    """
    with needs("train"):
        import pandas  # noqa: F401

    done = [folder for folder in runs if (folder / RECORD).is_file()]
    datasets = dict[str, list[RunRecord]]()
    for record in (replace(run_record(folder), overrides=[*runs[folder]]) for folder in done):
        datasets.setdefault(str(record.config.get("dataset", {}).get("name", "")), []).append(record)
    for name, records in datasets.items():
        print(f"\n{name}\n{compare_runs(records).to_string()}")
        heads = regression_heads(records, done[0].parent)
        names = [*labels(records), *["regression head"] * len(heads)]
        print(*compare_readings(names, [*records, *heads]), sep="\n")
        made = [(r.git.get("commit", "")[:10], r.packages.get("torch"), r.device, r.rules) for r in records]
        named = ("commits", "versions of torch", "devices", "versions of the answer rules")
        for what, values in zip(named, zip(*made, strict=True), strict=True):
            if len(different := dict.fromkeys(map(str, values))) > 1:
                print(f"Warning: the runs have different {what}: {', '.join(different)}.")
    if done:
        print(LEGEND)
    if lacking := [folder.name for folder in runs if folder not in done]:
        print(f"{len(lacking)} of {len(runs)} runs have no record: {', '.join(lacking)}")


def labels(records: Sequence[RunRecord]) -> list[str]:
    """The overrides that distinguish each run from the others, seeds aside: ``loss=ntl_was, loss.weight=0.5``."""
    typed = [[w for w in r.overrides if override_key(w).split(".")[0] not in NOT_COMPUTED_WITH] for r in records]
    common = set.intersection(*map(set, typed))
    return [", ".join(word for word in words if word not in common) or "all runs" for words in typed]


def compare_runs(records: Sequence[RunRecord]) -> "pd.DataFrame":
    """A line for each row and metric: mean and sd over seeds, and the effect over the first row.

    Runs of one data set, of which those whose overrides agree but for the seed are one row. Only scores on the same
    test data are compared.
    """
    import pandas as pd

    names, scores = labels(records), dict[tuple[str, str], dict[tuple[int, str], float | None]]()
    for row, record in zip(names, records, strict=True):
        for split in [key.removesuffix("/count") for key in record.metrics if key.endswith("/count")]:
            place = record.seed, record.data.get("files", {}).get(f"{split}.jsonl", "")
            for key in (f"{split}/{name}" for name in SHOWN if f"{split}/{name}" in record.metrics):
                scores.setdefault((row, key), {})[place] = record.value(key)
    lines = list[dict[str, Any]]()
    for (row, key), mine in scores.items():
        column, base = ColumnSpec(key, f"{key.partition('/')[0]} {metric_of(key).heading}"), scores.get((names[0], key))
        said = plus_minus(summarize(list(mine.values())), column.format) or "undefined"
        lines.append({"run": row, "metric": header(column), "mean": said, "n": len(mine), "effect": ""})
        if row != names[0]:
            both = [
                {seed: side[seed, data] for seed, data in base or () if (seed, data) in mine}
                for side in (base or {}, mine)
            ]
            seeds = {seed for seed, _ in base or ()} & {seed for seed, _ in mine}
            gap = effect(column, both[:1], both[1:])
            lines[-1]["effect"] = gap.text if gap else f"none: {'other test data' if seeds else 'no seed in common'}"
    return pd.DataFrame(lines, columns=["run", "metric", "mean", "n", "effect"]).set_index(["run", "metric"])


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
    own = str(first.config.get("decoding", {}).get("name", ""))
    # The run's own decoding once, also where it is one of several.
    beside = {f"@{name}": name for record in records for name in record.config.get("beside", {}) if name != own}
    # Greedy answers first.
    called = dict(sorted({"": own, **beside}.items(), key=lambda each: each[1] != "greedy"))
    if not splits or len(runs) * len(called) < 2:
        return []
    split, base_at, places = splits[0], next(iter(called)), [*product(runs, called)]
    column = ColumnSpec(f"{split}/{OWN_ERROR.get(first.config['dataset']['name'], 'mae')}")
    called = {at: name.replace("_", " ") for at, name in called.items()}
    of_ce = [name for name, have in runs.items() for r in have.values() if r.config["loss"]["name"] == "ce"]
    base_row = (of_ce or [*runs])[0]

    def table(title: str, cell: Callable[[str, str], str]) -> list[str]:
        found = pd.DataFrame({name: {row: cell(row, at) for row in runs} for at, name in called.items()})
        found = found[found.ne("").any(axis="columns")]
        return ["", title, *found.to_string().splitlines()] if len(found) else []

    def gap(row: str, at: str, base_at: str) -> Effect | None:
        base, other = (by_seed(f"{column.metric}{at}", runs[row]) for row, at in ((base_row, base_at), (row, at)))
        return effect(column, [base], [other]) if (row, at) != (base_row, base_at) else None

    def differences(base_at: str | None = None) -> Callable[[str, str], str]:
        return lambda row, at: found.short if (found := gap(row, at, at if base_at is None else base_at)) else ""

    def mean(row: str, at: str, metric: str) -> str:
        found = summarize([*by_seed(f"{split}/{metric}{at}", runs[row]).values()]).mean
        return "" if found is None else f"{found:.3g}"

    cells = {(row, at): summarize([*by_seed(f"{column.metric}{at}", runs[row]).values()]) for row, at in places}
    lines = table(
        f"{split} {metric_of(column.metric).heading}, mean ± standard deviation over seeds",
        lambda row, at: plus_minus(cells[row, at], column.format),
    )
    references = {name: first.metrics.get(f"{column.metric}:{name}") for name in ("mode", "median", "mean", RIDGE)}
    scores = {name: score for name, score in references.items() if score is not None}
    ridge = scores.pop(RIDGE, math.inf)
    best = {"a constant answer": min(scores.values(), default=math.inf), "ridge regression on characters": ridge}
    told = [f"{format(score, column.format)} by {name}" for name, score in best.items() if score < math.inf]
    lines += [f"For comparison: {', '.join(told)}."] if told else []
    lines += table(f"difference from {base_row}, read in the same way", differences())
    lines += table(f"difference from {base_row}, {called[base_at]}", differences(base_at))
    for metric, title in INTERVALS.items():
        lines += table(title, lambda row, at, metric=metric: mean(row, at, metric))
    gaps = {f"{row}, {called[at]}": found for row, at in places if (found := gap(row, at, base_at))}
    advice = _advice(f"{base_row}, {called[base_at]}", gaps)
    if ridge < min((each.mean for each in cells.values() if each.mean is not None), default=-math.inf):
        advice.append("Ridge regression on characters has less error than all of these: the model adds nothing yet.")
    lost = {
        f"{row}, {called[at]}": float(np.isnan(unpack_errors(record.errors[f"{split}{at}"])).mean())
        for row, at in places
        for record in runs[row].values()
        if f"{split}{at}" in record.errors and column.metric.endswith("/mae")
    }
    if lost and (share := max(lost.values())) > 0:
        of = max(lost, key=lost.__getitem__)
        advice.append(f"An answer without a number is in no MAE: up to {share:.0%} of the answers ({of}).")
    shares = [share or 0.0 for row, at in places for share in by_seed(f"{split}/represented{at}", runs[row]).values()]
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
