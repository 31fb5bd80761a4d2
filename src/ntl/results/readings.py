"""What runs say at their end, alone or in a sweep: their metrics and readings, effects paired by seed, what follows."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.evaluation.metrics import CONSTANTS, RIDGE, metric_of
from ntl.results.effects import Effect, Outcome, Summary, effect, summarize
from ntl.results.match import NOT_COMPUTED_WITH, by_seed, override_key
from ntl.results.record import RECORD, RunRecord, read_record, run_record
from ntl.results.render import header, plus_minus
from ntl.results.spec import ColumnSpec
from ntl.system.errors import UserError, needs

if TYPE_CHECKING:
    import pandas as pd

Runs = Mapping[int, RunRecord]  # by seed
OWN_ERROR = {"multiplication": "mape_clipped"}  # of other data sets the MAE
SHOWN = ("accuracy", "mae", "exact_match", "rouge1", "ce", "bits_per_byte")  # of each test split, where it has them
# Of each reading, where it has them and not 0, in a column of two lines.
DETAILS = {"unparsable": ("unparsable", ""), "represented": ("represented", "")}
DETAILS |= {"coverage_90": ("90% intervals", "hold"), "width_90": ("90% intervals", "width")}
LEGEND = (
    "Mean ± standard deviation over n seeds. Effect over the first row, over the seeds of both, on the same test data: "
    "of errors the ratio, of rates the difference [95% t interval], not corrected for the number of comparisons. "
    "Unparsable answers are in no MAE; median and expectation speak for the represented part of the probability."
)


def show_sweep(runs: Mapping[Path, Sequence[str]]) -> None:
    """Print how the runs of a sweep compare, as far as they have a record, and which have none.

    ``runs`` are their folders, with the overrides of this sweep: a record's may be of an earlier command.
    """
    with needs("train"):
        import pandas  # noqa: F401

    done = [folder for folder in runs if (folder / RECORD).is_file()]
    datasets = dict[str, list[RunRecord]]()
    for record in (replace(run_record(folder), overrides=[*runs[folder]]) for folder in done):
        datasets.setdefault(str(record.config["dataset"]["name"]), []).append(record)
    for name, records in datasets.items():
        heads = regression_heads(records, done[0].parent)
        names, both = [*labels(records), *["regression head"] * len(heads)], [*records, *heads]
        print("", name, compare_runs(names, both).to_string(), LEGEND, *compare_readings(names, both), sep="\n")
        origins = [
            (r.git.get("commit", "")[:10], r.packages.get("torch"), r.device, r.rules, read_by(r)) for r in records
        ]
        named = ("commits", "versions of torch", "devices", "versions of the answer rules", "decodings")
        for what, values in zip(named, zip(*origins, strict=True), strict=True):
            if len(different := dict.fromkeys(map(str, values))) > 1:
                print(f"Warning: the runs have different {what}: {', '.join(different)}.")
    if lacking := [folder.name for folder in runs if folder not in done]:
        print(f"{len(lacking)} of {len(runs)} runs have no record: {', '.join(lacking)}")


def read_by(record: RunRecord) -> str:
    """How the answers were decoded, but for the size of batches; of decoding=auto, that validation chose."""
    if "readings" in record.model:
        return "auto"
    aside = ("name", "_target_", "head", "batch_size", "interval_rows", "interval_scale")
    settings = record.config["decoding"].items()
    others = [f"{key}={value}" for key, value in settings if value and key not in aside]
    return " ".join([record.config["decoding"]["name"], *others])


def labels(records: Sequence[RunRecord]) -> list[str]:
    """The overrides that distinguish each run from the others, seeds aside: ``loss=ntl_was, loss.weight=0.5``."""
    typed = [[w for w in r.overrides if override_key(w).split(".")[0] not in NOT_COMPUTED_WITH] for r in records]
    common = set.intersection(*map(set, typed))
    return [", ".join(word for word in words if word not in common) or "all runs" for words in typed]


def regression_heads(records: Sequence[RunRecord], outputs: Path) -> list[RunRecord]:
    """The finished runs of regression heads in a folder of runs, on the data and from the weights of these records."""

    def start(record: RunRecord) -> tuple[object, ...]:
        weights = record.model.get("weights", {})
        return record.data.get("files"), record.config["scale"]["name"], weights.get("sha256"), record.steps

    finished, ids = list[RunRecord](), {record.id for record in records}
    for path in sorted(outputs.glob(f"*/{RECORD}")):
        with suppress(UserError):  # a broken record of another run is no fault of this one
            finished.append(read_record(path))
    heads = (run for run in finished if run.config["model"].get("head") == "regression" and run.id not in ids)
    return [run for run in heads if start(run) == start(records[0])]


def compare_runs(names: Sequence[str], records: Sequence[RunRecord]) -> "pd.DataFrame":
    """A line for each name of runs of a data set, and metric: mean, sd, and the effect on the same test data."""
    import pandas as pd

    runs, lines = _by_name(names, records), list[tuple[str, str, str, int, str]]()
    splits = [key.removesuffix("/count") for key in records[0].metrics if key.endswith("/count")]
    base = runs[names[0]]
    ways = {
        name: {
            read_by(run) for run in (*base.values(), *have.values()) if run.config["model"].get("head", "lm") == "lm"
        }
        for name, have in runs.items()
    }
    for (name, have), (split, metric) in product(runs.items(), product(splits, SHOWN)):
        column = _column(records[0], f"{split}/{metric}", f"{split} {metric_of(f'{split}/{metric}').heading}")
        if values := by_seed(column.metric, have):
            scores = summarize([*values.values()])
            mean = plus_minus(scores, column.format) or "undefined"
            mean += f", undefined in {scores.undefined}" if scores.n and scores.undefined else ""
            lacks = "other test data" if base.keys() & have else "no seed in common"
            is_fair = len(ways[name]) < 2
            gap = _gap(base, have, column.metric) if is_fair else None
            text = gap.text if gap else f"none: {lacks if is_fair else 'another decoding'}"
            lines.append((name, header(column), mean, scores.n, "" if have is base else text))
    return pd.DataFrame(lines, columns=["run", "metric", "mean", "n", "effect"]).set_index(["run", "metric"])


def compare_readings(names: Sequence[str], records: Sequence[RunRecord]) -> list[str]:
    """What follows from several readings, then a table with a line for each name of runs and reading, over their seeds.

    It has the error on the first test split of numbers, its difference from CE, or the first row, read in the same way
    and greedily, and what is known of answers and intervals. Nothing without numbers, nor for a single line.
    """
    import pandas as pd

    runs, first = _by_name(names, records), records[0]
    dataset, decoding = (first.config[group]["name"] for group in ("dataset", "decoding"))
    ending = f"/{OWN_ERROR.get(dataset, 'mae')}"
    errors = [key for key in first.metrics if key.endswith(ending) and not key.startswith("validation/")]
    names_of = [record.config.get("extra_decodings", {}) for record in records]
    extra = {f"@{name}": name for names in names_of for name in names if name != decoding}
    called = dict(sorted({"": decoding, **extra}.items(), key=lambda item: item[1] != "greedy"))  # greedy answers first
    if not errors or len(runs) * len(called) < 2:
        return []
    error, greedy = errors[0], next(iter(called))
    split, column = error.partition("/")[0], _column(first, error)
    of_ce = [name for name, have in runs.items() for run in have.values() if run.config["loss"]["name"] == "ce"]
    base = (of_ce or [*runs])[0]

    def summary(row: str, at: str, metric: str) -> Summary:
        return summarize([*by_seed(f"{metric}{at}", runs[row]).values()])

    own_of = {row: next(iter(have.values())).config["decoding"]["name"] for row, have in runs.items()}

    def gap(row: str, at: str, base_at: str) -> Effect | None:
        return None if (row, at) == (base, base_at) else _gap(runs[base], runs[row], error + at, error + base_at)

    def is_same(row: str, at: str) -> bool:
        return bool(at) or own_of[row] == own_of[base]

    cells = [cell for cell in product(runs, called) if by_seed(f"{error}{cell[1]}", runs[cell[0]])]
    means = {cell: summary(*cell, error) for cell in cells}
    table = {(f"{split} {metric_of(error).heading}", ""): [plus_minus(stat, column.format) for stat in means.values()]}
    gaps = dict[tuple[str, str], Effect | None]()
    for way, base_at in (("same reading", None), (called[greedy], greedy)):
        gaps = {
            cell: gap(*cell, cell[1] if base_at is None else base_at)
            for cell in cells
            if base_at is not None or is_same(*cell)
        }
        over = (f"from {base}", way) if len(runs) > 1 else (f"from {way}", "")
        table[over] = [difference.short if (difference := gaps.get(cell)) else "" for cell in cells]
    for metric, heading in DETAILS.items():
        values = [summary(*cell, f"{split}/{metric}").mean for cell in cells]
        table[heading] = [f"{value:.3g}" if value else "" for value in values]
    ways = [(row, (called[at] if at else own_of[row]).replace("_", " ")) for row, at in cells]
    frame = pd.DataFrame(table, index=pd.MultiIndex.from_tuples(ways))
    constants = [score for name in CONSTANTS if (score := first.metrics.get(f"{error}:{name}")) is not None]
    ridge = first.metrics.get(f"{error}:{RIDGE}")
    for name, score in (("ridge regression", ridge), ("best constant", min(constants, default=None))):
        if score is not None:
            frame.loc[(name, ""), :] = [f"{score:{column.format}}", *[""] * (frame.shape[1] - 1)]
    if len(runs) == 1:
        frame.index = [row if not way or row != base else way for row, way in frame.index]
    text = frame.loc[:, frame.ne("").any()].to_string()
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    named = {f"{row}, {called[at]}": difference for (row, at), difference in gaps.items() if difference}
    advice = _advice(f"{base}, {called[greedy]}", named)
    if ridge is not None and ridge < min((s.mean for s in means.values() if s.mean is not None), default=ridge):
        advice.append("Ridge regression on characters has less error than all of these: the model adds nothing.")
    return [*advice, *lines]


def _advice(base: str, gaps: Mapping[str, Effect]) -> list[str]:
    """Sentences that the intervals of the differences from ``base`` allow."""
    defined = {name: gap for name, gap in gaps.items() if gap.summary.mean is not None}
    if max((gap.summary.n for gap in defined.values()), default=0) < 3:
        few = "One or two seeds show no difference: three give an interval, and six can bring p below 0.05."
        return [few] if defined else []
    shown = [name for name, gap in defined.items() if gap.outcome() is Outcome.supported]
    if not shown:
        return [f"Nothing is shown to have less error than {base}: each interval includes 0, or is above it."]
    best, *others = sorted(shown, key=lambda name: defined[name].summary.mean or 0.0)
    also = f"; also {'; '.join(others)}" if others else ""
    chance = "Of many differences some are chance: let validation choose (decoding=auto)."
    return [f"Less error than {base}: {best}, {defined[best].text}{also}. {chance}"]


def _by_name(names: Sequence[str], records: Sequence[RunRecord]) -> dict[str, Runs]:
    pairs = [*zip(names, records, strict=True)]
    return {name: {record.seed: record for label, record in pairs if label == name} for name in names}


def _column(record: RunRecord, metric: str, heading: str = "") -> ColumnSpec:
    """The column of a metric; of errors, three digits where that of a constant is small, in which all is 0.000."""
    is_small = metric.endswith("/mae") and 0 < (record.metrics.get(f"{metric}:median") or 1) < 0.1
    return ColumnSpec(metric, heading, ".3g" * is_small)


def _gap(base: Runs, other: Runs, metric: str, base_metric: str = "") -> Effect | None:
    """Of the one in ``metric`` over the base, over the seeds of both, where they have the same rows of its split."""
    file = f"{metric.partition('/')[0]}.jsonl"
    data = [{seed: run.data.get("files", {}).get(file) for seed, run in runs.items()} for runs in (base, other)]
    same = [seed for seed in base if seed in other and data[0][seed] == data[1][seed]]
    first, second = ({seed: runs[seed] for seed in same} for runs in (base, other))
    return effect(ColumnSpec(metric), [by_seed(base_metric or metric, first)], [by_seed(metric, second)])
