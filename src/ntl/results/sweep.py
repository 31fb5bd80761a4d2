"""What a sweep prints at its end: what differs between its runs, their metrics, and effects paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntl.evaluation.metrics import metric_of
from ntl.results.effects import effect, summarize
from ntl.results.match import NOT_COMPUTED_WITH, override_key
from ntl.results.readings import compare_readings, regression_heads
from ntl.results.record import RECORD, RunRecord, run_record
from ntl.results.render import header, plus_minus
from ntl.results.spec import ColumnSpec
from ntl.system.errors import needs

if TYPE_CHECKING:
    import pandas as pd

SHOWN = ("accuracy", "mae", "exact_match", "rouge1", "ce", "bits_per_byte")  # of each test split, where it has them
LEGEND = (
    "Mean ± standard deviation over n seeds. Effect over the first row, over the seeds of both, on the same test data: "
    "of errors the ratio, of rates the difference [95% t interval]; nothing is corrected for the number of comparisons."
)


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
        column = ColumnSpec(key, f"{key.partition('/')[0]} {metric_of(key).heading}")
        summary, base = summarize(list(mine.values())), scores.get((names[0], key), {})
        mean = plus_minus(summary, column.format)
        lines.append({"run": row, "metric": header(column), "mean": mean or "undefined", "n": len(mine)})
        if row != names[0]:
            both = [{seed: side[seed, data] for seed, data in base if (seed, data) in mine} for side in (base, mine)]
            gap, seeds = effect(column, both[:1], both[1:]), {seed for seed, _ in base} & {seed for seed, _ in mine}
            known = "none: other test data" if seeds else "none: no seed in common"
            lines[-1]["effect"] = gap.text if gap else known
    columns = ["run", "metric", "mean", "n", "effect"]
    return pd.DataFrame(lines, columns=columns, dtype=object).fillna("").set_index(["run", "metric"])


def show_sweep(runs: Mapping[Path, Sequence[str]]) -> None:
    """Print how the runs of a sweep compare, as far as they have a record, and which have none.

    ``runs`` are their folders, with the overrides of this sweep: those of a record may be of an earlier command.
    """
    with needs("train"):
        import pandas  # noqa: F401

    done = [folder for folder in runs if (folder / RECORD).is_file()]
    datasets: dict[str, list[RunRecord]] = {}
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
