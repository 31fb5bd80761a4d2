"""What runs say at their end, alone or in a sweep: their metrics by decoding, and effects paired by seed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.evaluation.metrics import RIDGE, Better, metric_of
from ntl.results.effects import effect, summarize
from ntl.results.match import NOT_COMPUTED_WITH, by_seed, override_key
from ntl.results.record import RECORD, RunRecord, read_record, run_record
from ntl.results.render import header, plus_minus
from ntl.results.spec import ColumnSpec
from ntl.system.errors import UserError, needs

if TYPE_CHECKING:
    import pandas as pd

OWN_ERROR = {"multiplication": "mape_clipped"}  # of other data sets the MAE
# Of each test split and decoding, where it has them.
SHOWN = ("accuracy", "mae", "unparsable", "represented", "coverage_90", "width_90")  # of each test split and decoding
SHOWN_OF_TEXT = ("exact_match", "rouge1", "ce", "bits_per_byte")
LEGEND = """\
Mean ± standard deviation over n seeds. Effect over CE, or the first run, decoded in the same way; of CE's other
decodings over its own: over the seeds of both, on the same test data, of errors the ratio, of rates the difference
[95% t interval], not corrected for the number of comparisons. Three seeds give an interval, six can bring p below 0.05.
Unparsable answers are in no MAE; decodings by number speak for the represented part of the probability."""


def show_sweep(runs: Mapping[Path, Sequence[str]]) -> None:
    """Print how the runs of a sweep compare, as far as they have a record, and which have none.

    ``runs`` are their folders, with the overrides of this sweep: those of a record may be of an earlier command.
    """
    with needs("train"):
        import pandas  # noqa: F401

    done = [folder for folder in runs if (folder / RECORD).is_file()]
    datasets = dict[str, list[RunRecord]]()
    for record in (replace(run_record(folder), overrides=[*runs[folder]]) for folder in done):
        datasets.setdefault(str(record.config["dataset"]["name"]), []).append(record)
    for name, records in datasets.items():
        heads = regression_heads(records, done[0].parent)
        names = [*labels(records), *["regression head"] * len(heads)]
        print("", name, *comparison(names, [*records, *heads]), sep="\n")
        made = [(r.git.get("commit", "")[:10], r.packages.get("torch"), r.device, r.rules) for r in records]
        named = ("commits", "versions of torch", "devices", "versions of the answer rules")
        for what, values in zip(named, zip(*made, strict=True), strict=True):
            if len(different := dict.fromkeys(map(str, values))) > 1:
                print(f"Warning: the runs have different {what}: {', '.join(different)}.")
    if lacking := [folder.name for folder in runs if folder not in done]:
        print(f"{len(lacking)} of {len(runs)} runs have no record: {', '.join(lacking)}")


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

    found, known = list[RunRecord](), {record.id for record in records}
    for path in sorted(outputs.glob(f"*/{RECORD}")):
        with suppress(UserError):  # a broken record of another run is no fault of this one
            found.append(read_record(path))
    heads = (each for each in found if each.config["model"].get("head") == "regression" and each.id not in known)
    return [each for each in heads if start(each) == start(records[0])]


def comparison(names: Sequence[str], records: Sequence[RunRecord]) -> list[str]:
    """The lines of ``compare_runs``, with its legend, the best constant answer and ridge regression."""
    lines, first = [*compare_runs(names, records).to_string().splitlines(), LEGEND], records[0].metrics
    error = OWN_ERROR.get(records[0].config["dataset"]["name"], "mae")
    for split in [key.removesuffix(f"/{error}") for key in first if key.endswith(f"/{error}")]:
        metric = metric_of(f"{split}/{error}")
        scores = {name: first.get(f"{split}/{error}:{name}") for name in ("mode", "median", "mean", RIDGE)}
        told = [f"{format(score, metric.format)} by {name}" for name, score in scores.items() if score is not None]
        lines += [f"{split} {metric.heading} without a language model: {', '.join(told)}."] if told else []
    return lines


def compare_runs(names: Sequence[str], records: Sequence[RunRecord]) -> "pd.DataFrame":
    """A line for each name of runs, metric and decoding: mean and sd over seeds, and the effect over CE (`LEGEND`).

    The runs are of one data set; only scores on the same test data are compared.
    """
    import pandas as pd

    runs, lines = dict[str, dict[int, RunRecord]](), list[tuple[str, str, str, int, str]]()
    for name, record in zip(names, records, strict=True):
        runs.setdefault(name, {})[record.seed] = record
    of_ce = [have for have in runs.values() for run in have.values() if run.config["loss"]["name"] == "ce"]
    base = (of_ce or [*runs.values()])[0]
    shown = dict.fromkeys([*SHOWN, *SHOWN_OF_TEXT, OWN_ERROR.get(records[0].config["dataset"]["name"], "mae")])
    splits = dict.fromkeys(key.removesuffix("/count") for key in records[0].metrics if key.endswith("/count"))
    for name, have in runs.items():
        beside = {
            each for run in have.values() for each in run.config["beside"].keys() - {run.config["decoding"]["name"]}
        }
        readings = ["", *(f"@{each}" for each in sorted(beside))]
        for plain, reading in ((f"{split}/{each}", at) for split in splits for at in readings for each in shown):
            if values := by_seed(f"{plain}{reading}", have):
                heading = f"{plain.partition('/')[0]} {metric_of(plain).heading}"
                called = f", {reading[1:].replace('_', ' ')}" if reading else ""
                column, told = ColumnSpec(f"{plain}{reading}", f"{heading}{called}"), ""
                if (have is not base or reading) and column.better is not Better.neither:
                    told = _effect(column, plain if have is base else column.metric, base, have)
                mean = plus_minus(summarize([*values.values()]), column.format) or "undefined"
                lines.append((name, header(column), mean, len(values), told))
    return pd.DataFrame(lines, columns=["run", "metric", "mean", "n", "effect"]).set_index(["run", "metric"])


def _effect(column: ColumnSpec, metric: str, base: Mapping[int, RunRecord], have: Mapping[int, RunRecord]) -> str:
    """Of these runs over those of ``base`` in ``metric``, or why there is none."""
    file = f"{column.metric.partition('/')[0]}.jsonl"
    seeds = [seed for seed in base if seed in have]
    same = [s for s in seeds if base[s].data.get("files", {}).get(file) == have[s].data.get("files", {}).get(file)]
    one, other = ({seed: runs[seed] for seed in same} for runs in (base, have))
    gap = effect(column, [by_seed(metric, one)], [by_seed(column.metric, other)])
    return gap.text if gap else f"none: {'other test data' if seeds else 'no seed in common'}"
