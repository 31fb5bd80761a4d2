"""What tables cost, as text: of the runs that are missing (``--dry-run``), and of all (``results/costs.md``)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from ntl.config.root import Config
from ntl.costs.runs import ASSUMPTIONS, CPU, PRESET_SCALE, Costs, Sum
from ntl.launch.plan import Demand, demands
from ntl.launch.progress import duration
from ntl.results import RunRecord
from ntl.results.match import computing
from ntl.results.spec import load_table_spec, table_names
from ntl.system.files import write_text

WIDTH = 120
PRESETS = (
    f"An upper preset (scale={PRESET_SCALE}) takes as many steps as the authors' command; their "
    "runs were stopped by hand at steps that are not recorded. Epochs are known where a published record has the same "
    "training data."
)
HEAD = """# What the tables cost

Written by `make costs` from the records in `results/runs`; never edited by hand. A run is measured where there are
records of its data set, model and scale: the median of their wall times, one thread a run. Any other is estimated, as
the last paragraph says. `python scripts/reproduce.py table=2 scale=paper --dry-run` prints what a table still lacks.
"""
Json = dict[str, Any]


def figure(value: float) -> str:
    """Two significant digits, without an exponent: 0.35, 3.0, 1,400."""
    if value <= 0:
        return "0"
    places = 1 - math.floor(math.log10(value))
    return f"{round(value, places):,.{max(0, places)}f}"


def hours(seconds: Mapping[str, float]) -> str:
    """``0.35 (CPU) + 9.5 (H100)``"""
    return " + ".join(f"{figure(value / 3600)} ({device})" for device, value in seconds.items()) or "0"


def in_workers(seconds: Mapping[str, float], workers: int) -> str:
    """How long that takes here, as a sentence after a space; empty where a CPU has nothing to do."""
    if CPU not in seconds:
        return ""
    return f" In {workers} worker process{'' if workers == 1 else 'es'}: about {duration(seconds[CPU] / workers)}."


def gigabytes(size: float) -> str:
    return f"{figure(size / 1e9)} GB"


# ---- what is missing


def dry_run(demanded: Sequence[Demand], todo: Iterable[str], costs: Costs) -> Json:
    """Runs, seconds by device and bytes of disk of every table, and of all tables with each run once.

    ``todo`` are the ids of the runs that would be made.
    """
    ids = set(todo)
    every: dict[str, Config] = {}
    rows = []
    for demand in demanded:
        rows.append(_missing(demand.spec.name, demand.scale, demand.runs, ids, costs))
        every.update(demand.runs)
    total = _missing("all", demanded[0].scale, every, ids, costs)
    added = list(computing(demanded[0].spec.added))
    return {"tables": rows, "total": total, "assumptions": ASSUMPTIONS} | ({"added": added} if added else {})


def _missing(name: str, scale: str, runs: Mapping[str, Config], ids: set[str], costs: Costs) -> Json:
    lacking = [config for key, config in runs.items() if key in ids]
    total = costs.total(lacking)
    counts = {"runs": len(runs), "done": len(runs) - len(lacking), "missing": len(lacking)}
    price = {"seconds": dict(total.seconds), "basis": total.basis, "disk_bytes": total.disk}
    return {"table": name, "scale": scale, **counts, **price}


def dry_run_text(result: Json, workers: int) -> str:
    """For a terminal: one line a table, the sum, and how the hours were found."""
    head = ["table", "scale", "runs", "done", "missing", "hours of these", "disk", "basis"]
    rows = [*result["tables"], *([result["total"]] if len(result["tables"]) > 1 else [])]
    grid = [head]
    for row in rows:
        counts = [str(row[key]) for key in head[:5]]
        grid.append([*counts, hours(row["seconds"]), gigabytes(row["disk_bytes"]), row["basis"]])
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in grid]
    if line := in_workers(result["total"]["seconds"], workers):
        lines.append(line.strip())
    if "added" in result:
        lines.append(f"Every run with {', '.join(result['added'])}; what is measured was measured without.")
    return "\n".join([*lines, fill(ASSUMPTIONS, WIDTH)])


# ---- what everything costs


def ledger(records: Sequence[RunRecord]) -> str:
    """A Markdown table of what every table costs at every scale. The same records give the same text."""
    costs = Costs(records)
    names = table_names()
    scales = list(dict.fromkeys(scale for name in names for scale in load_table_spec(name).scales))
    head = [
        "| table | scale | runs | epochs | hours | disk | basis |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    lines = [*head]
    for scale in scales:
        every: dict[str, Config] = {}
        for demand in demands(names, scale, records, skip=lambda line: None):
            every.update(demand.runs)
            lines.append(_line(demand.spec.name, scale, costs.total(demand.runs.values())))
        lines.append(_line("**all, each run once**", scale, costs.total(every.values())))
    return "\n".join([*lines, "", fill(f"{ASSUMPTIONS} {PRESETS}", WIDTH)])


def _line(name: str, scale: str, total: Sum) -> str:
    basis = "upper preset" if scale == PRESET_SCALE and not total.measured else total.basis
    cells = [name, scale, str(total.runs), _epochs(total), hours(total.seconds), gigabytes(total.disk), basis]
    return f"| {' | '.join(cells)} |"


def _epochs(total: Sum) -> str:
    if not total.epochs:
        return "-"
    ends = dict.fromkeys(f"{epochs:,.0f}" if epochs >= 10 else figure(epochs) for epochs in total.epochs)
    return " to ".join(list(ends)[:: max(1, len(ends) - 1)])


def write_ledger(path: Path, records: Sequence[RunRecord]) -> None:
    """Write the page of the ledger, ``results/costs.md``."""
    write_text(path, f"{HEAD}\n{ledger(records)}\n")
