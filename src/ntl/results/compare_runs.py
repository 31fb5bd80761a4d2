"""`scripts/compare.py`, and the end of a sweep: what differs between runs, their metrics, and paired differences."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ntl.config.cli import Parser
from ntl.config.folders import RESULTS
from ntl.results.compare import best_rows, by_seed, corrected, differences
from ntl.results.load import RECORD, load_records
from ntl.results.match import RowPlan
from ntl.results.publish import find_record
from ntl.results.record import RunRecord, read_record
from ntl.results.render.text import header as header_text
from ntl.results.render.text import interval_text, signed
from ntl.results.settings import KIND, differing, name_of, settings_of
from ntl.results.spec import Better, ColumnSpec, Role, RowSpec
from ntl.results.statistics import DRAWS, example_difference
from ntl.results.table import Block, Cell, Difference, DifferenceCell, Row, TableRow
from ntl.system.errors import UserError

PARTS = (*KIND, "objective", "trainer", "decoding")
HIGHER = ("accuracy", "r2", "log_r2", "pearson", "spearman", "within_1_percent", "token_accuracy", "exact_match")
HIGHER += ("bleu", "rouge1", "rouge2", "rougeL", "marked", "digit_accuracy", "number_accuracy", "tokens_per_forward")
NEITHER = ("count", "covered", "wrong_as_shortcut", "steps_until_ce", "tokens", "digits", "numbers")
SHOWN = {  # the first metric that a record has of a split says which of these
    "accuracy": ("accuracy", "mae", "rmse"),
    "exact_match": ("exact_match", "rouge1", "bleu"),
    "ce": ("ce", "bits_per_byte"),
}
LEGEND = (
    "By seed: mean difference over the seeds of both [95% t interval], how many of them have its sign, and p of the "
    "exact two-sided sign-flip test, corrected by Holm's method for all that are shown; bold from 0.05 down. By "
    "example: over the same test examples, each the mean of its seeds [95% bootstrap interval]; accuracy and exact "
    "match on all, MAE on at most 1,000."
)
Examples = tuple[float, float, float]


@dataclass(frozen=True)
class Comparison:
    """The runs of one data set. ``examples``: (row, the row it is against, metric) -> the difference by example."""

    block: Block
    examples: Mapping[tuple[str, str, str], Examples]


def labels(records: Sequence[RunRecord]) -> dict[str, str]:
    """Run id -> what distinguishes it from the others, seeds aside: ``loss=ntl_was, loss.weight=0.5``."""
    named = [part for part in PARTS if len({name_of(record.config, part) for record in records}) > 1]
    texts = {record.id: [f"{part}={name_of(record.config, part) or '?'}" for part in named] for record in records}
    groups: dict[tuple[str, ...], list[tuple[RunRecord, dict[str, str]]]] = {}
    for record in records:
        groups.setdefault(tuple(texts[record.id]), []).append((record, settings_of(record)))
    for runs in groups.values():
        by_line = {(record.seed, *sorted(settings.items())): (record, settings) for record, settings in runs}
        for key in differing([*by_line.values()]):
            for record, settings in runs:
                if key in settings:
                    texts[record.id].append(f"{key}={settings[key]}")
    return {name: ", ".join(found) for name, found in texts.items()}


def _test_splits(record: RunRecord) -> list[str]:
    return [name.partition("/")[0] for name in record.metrics if name.endswith("/count")]


def columns_of(records: Sequence[RunRecord], metrics: Sequence[str] = ()) -> list[ColumnSpec]:
    """The columns of these metrics; by default those of ``SHOWN`` on each test split. UserError: no run has it."""
    known = dict.fromkeys(name for record in records for name in record.metrics)
    splits = dict.fromkeys(split for record in records for split in _test_splits(record))
    kinds = {split: next((name for name in SHOWN if f"{split}/{name}" in known), "accuracy") for split in splits}
    most = 2 if len(splits) > 1 else None  # of each split, so that they fit on a terminal
    wanted = list(metrics) or [f"{split}/{name}" for split in splits for name in SHOWN[kinds[split]][:most]]
    if unknown := [metric for metric in wanted if not any(record.has(metric) for record in records)]:
        raise UserError(f"--metric {unknown[0]}: none of these runs has it; choose from {', '.join(known)}.")
    if not wanted:
        raise UserError(f"{records[0].id}: its record has no metric of a test split.")
    found = []
    for metric in wanted:
        split, _, name = metric.partition("/")
        base = name.partition("@")[0].partition(":")[0].removesuffix("_truth")
        is_higher = base in HIGHER or base.startswith("accepted/")
        better = Better.higher if is_higher else Better.neither if base in NEITHER else Better.lower
        spec = ".3f" if base in HIGHER or base in NEITHER else ".4g"
        header = f"{split} {name}" if len(splits) > 1 else name
        found.append(ColumnSpec(metric=metric, header=header, better=better, format=spec))
    return found


def compare(
    records: Sequence[RunRecord], metrics: Sequence[str] = (), against: str = ""
) -> tuple[list[Comparison], list[str]]:
    """A comparison for each data set, and warnings of what could mislead. The first run's row is what is compared with.

    Runs whose settings agree but for the seed are one row. Rows with other test data are never subtracted.

    Args:
        metrics: "<split>/<metric>"; none for the main ones.
        against: the id of a run whose row is compared with, instead of the first.

    UserError: two runs with the same settings and the same seed, or a metric that no run has.
    """
    blocks: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: record.id != against):
        blocks.setdefault(name_of(record.config, "dataset"), []).append(record)
    warnings = _other_sources(records)
    found = [_compare_block(dataset, _rows(runs), metrics, warnings) for dataset, runs in blocks.items()]
    return found, warnings


def _rows(records: Sequence[RunRecord]) -> dict[str, dict[int, RunRecord]]:
    """Label -> seed -> record."""
    names, rows = labels(records), dict[str, dict[int, RunRecord]]()
    for record in records:
        row = rows.setdefault(names[record.id], {})
        if (other := row.setdefault(record.seed, record)) is not record:
            raise UserError(
                f"{other.id} and {record.id} have the same settings and the same seed {record.seed}; leave one out."
            )
    return rows


def _compare_block(
    dataset: str, groups: Mapping[str, dict[int, RunRecord]], metrics: Sequence[str], warnings: list[str]
) -> Comparison:
    every = [record for rows in groups.values() for record in rows.values()]
    if metrics:
        metrics = [metric for metric in metrics if any(record.has(metric) for record in every)] or metrics
    columns = columns_of(every, metrics)
    rows = []
    for number, (label, records) in enumerate(groups.items()):
        spec = RowSpec(label=label or "all runs", role=Role.other if number else Role.baseline)
        have = dict(sorted(records.items()))
        plan = RowPlan(spec, (label or "-",), {}, tuple(have))
        rows.append(Row(plan, have, {column.metric: by_seed(column.metric, have) for column in columns}))
    best = best_rows(columns, rows)
    shown = []
    for row in rows:
        cells = [
            Cell(column, row.summary(column) if values else None, tuple(values), (), (row, column.metric) in best)
            for column in columns
            for values in [row.values[column.metric]]
        ]
        shown.append(TableRow(**vars(row), cells=tuple(cells), missing=(), command=""))
    comparable = [row for row in rows[1:] if _is_comparable(rows[0], row, warnings)]
    (compared,) = corrected([differences(columns, [rows[0], *comparable])])
    by_name = {row.spec.label: row for row in rows}
    examples = {
        (each.row.label, each.against.label, cell.column.metric): found
        for each in compared
        for cell in each.cells
        if (found := _by_example(by_name[each.against.label], by_name[each.row.label], cell.column.metric))
    }
    plain = tuple(replace(each, cells=tuple(replace(cell, examples=None) for cell in each.cells)) for each in compared)
    block = Block(dataset, tuple(columns), tuple(shown), plain, (), (), columns[0])
    return Comparison(block, examples)


def _common(base: Row, row: Row) -> list[tuple[RunRecord, RunRecord]]:
    return [(base.records[seed], row.records[seed]) for seed in base.records if seed in row.records]


def _is_comparable(base: Row, row: Row, warnings: list[str]) -> bool:
    """Whether two rows were tested on the same data, for each seed of both; a warning says what is not."""
    pairs = _common(base, row)
    name = f"{row.spec.label} and {base.spec.label}"
    if not pairs:
        warnings.append(f"{name}: no seed in common, so there is no difference.")
    other: dict[str, None] = {}
    for left, right in pairs:
        files = [record.data.get("files", {}) for record in (left, right)]
        changed = [file for file in sorted({*files[0], *files[1]}) if files[0].get(file) != files[1].get(file)]
        other.update(dict.fromkeys(changed))
    tested = [file for file in other if any(file == f"{split}.jsonl" for split in _test_splits(pairs[0][0]))]
    if tested:
        warnings.append(f"{name}: other test data ({', '.join(tested)}), so there is no difference.")
    elif other:
        warnings.append(f"{name}: the same test data, but other {', '.join(other)}.")
    return bool(pairs) and not tested


def _other_sources(records: Sequence[RunRecord]) -> list[str]:
    """Lines on code, packages and devices, of which runs that are compared should have one."""
    sources = {
        "commits of the code": [str(record.git.get("commit", ""))[:10] for record in records],
        "versions of torch": [record.packages.get("torch", "") for record in records],
        "devices": [record.device for record in records],
    }
    lines = [
        f"The runs have different {what}: {', '.join(dict.fromkeys(v))}."
        for what, v in sources.items()
        if len({*v}) > 1
    ]
    changed = [record.id for record in records if record.git.get("dirty")]
    if 0 < len(changed) < len(records):
        lines.append(f"{len(changed)} of {len(records)} runs are of code with uncommitted changes.")
    return lines


def _by_example(base: Row, row: Row, metric: str) -> Examples | None:
    # A record keeps exact matches of texts where it keeps the correctness of numbers.
    name = metric.replace("/exact_match", "/accuracy")
    return example_difference(name, _common(base, row)) if name.partition("/")[2] in DRAWS else None


def as_json(comparisons: Sequence[Comparison], warnings: Sequence[str]) -> dict[str, Any]:
    """``rows`` with the ids, seeds and metrics of each, ``differences`` by seed and by example, and ``warnings``."""
    rows, found = [], []
    for comparison in comparisons:
        block = comparison.block
        for row in block.rows:
            metrics = {cell.column.metric: asdict(cell.summary) for cell in row.cells if cell.summary}
            ids = [record.id for record in row.records.values()]
            rows.append({"dataset": block.title, "row": row.spec.label, "runs": ids, "metrics": metrics})
        for each in block.differences:
            for cell in each.cells:
                by_seeds = asdict(cell.paired.differences) | {"p": cell.p, "p_holm": cell.holm} if cell.paired else None
                key = (each.row.label, each.against.label, cell.column.metric)
                line = {"dataset": block.title, "row": key[0], "against": key[1], "metric": key[2], "by_seed": by_seeds}
                found.append(line | {"by_example": comparison.examples.get(key)})
    return {"rows": rows, "differences": found, "warnings": list(warnings)}


def show(comparisons: Sequence[Comparison], warnings: Sequence[str]) -> None:
    """Print the tables for a terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from ntl.results.render import terminal

    console = Console()
    for comparison in comparisons:
        console.print(*terminal.block_parts(comparison.block), sep="\n")
        if not comparison.block.differences:
            continue
        grid = RichTable(title=Text(f"Differences, {comparison.block.title}"), title_justify="left")
        for name in ("", "metric", "by seed", "p", "by example"):
            grid.add_column(name, justify="left" if name in ("", "metric") else "right")
        for each in comparison.block.differences:
            for number, cell in enumerate(each.cells):
                texts = _texts(comparison, each, cell)
                style = "bold" if cell.bold else ""
                name = each.name if number == 0 else ""
                grid.add_row(Text(name), Text(header_text(cell.column)), *(Text(text, style=style) for text in texts))
            grid.add_section()
        console.print(grid, Text(LEGEND, style="dim"), sep="\n")
    for line in warnings:
        console.print(Text(f"Warning: {line}"))


def _texts(comparison: Comparison, each: Difference, cell: DifferenceCell) -> tuple[str, str, str]:
    spec, found = cell.column.format, comparison.examples.get((each.row.label, each.against.label, cell.column.metric))
    if cell.paired is None or cell.paired.differences.mean is None:
        return "undefined", "", ""
    by_seed = f"{interval_text(cell.paired.differences, cell.column)} {cell.paired.agree}/{cell.paired.differences.n}"
    return by_seed, "" if cell.holm is None else f"{cell.holm:.2g}", signed(found, spec) if found else ""


def show_sweep(folders: Sequence[Path]) -> None:
    """Print the comparison of a sweep's runs that have a record, and which have none."""
    folders = list(dict.fromkeys(folders))
    done = [folder for folder in folders if (folder / RECORD).is_file()]
    try:
        if done:
            show(*compare([read_record(folder / RECORD) for folder in done]))
    except UserError as error:
        print(f"The runs of this sweep cannot be compared: {error}")
    if lacking := [folder.name for folder in folders if folder not in done]:
        print(f"{len(lacking)} of {len(folders)} runs have no record: {', '.join(lacking)}")


def find_records(run: str, outputs: Path, published: Path) -> list[RunRecord]:
    """The record of a run folder, an id or a file; all records in any other folder. UserError where there is none."""
    path = Path(run)
    if path.is_file():
        return [read_record(path)]
    if not path.is_dir() and not (outputs / run).is_dir() and (published / f"{run}.json").is_file():
        return [read_record(published / f"{run}.json")]
    if path.is_dir() and not (path / "config.yaml").is_file() and (found := load_records([path])):
        return found
    return [read_record(find_record(run, outputs))]


def main(argv: Sequence[str] | None = None) -> None:
    """Print how runs compare, by their records. UserError: a run without a record, or two that are the same."""
    parser = Parser(
        description="Compare runs by their records: what differs between them, their metrics, and the differences "
        "from the first one, paired by seed and by example.",
    )
    what = "run folder, run id, file of a record, or folder of runs or records"
    parser.add_argument("runs", metavar="RUN", nargs="+", help=what)
    parser.add_argument("--against", metavar="RUN", default="", help="compare with this run (default: the first)")
    add = "as test/mae@expectation; may be given several times (default: the main ones)"
    parser.add_argument("--metric", metavar="SPLIT/METRIC", action="append", default=[], help=add)
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args(argv)
    published = RESULTS / "runs"
    found = {r.id: r for run in chosen.runs for r in find_records(run, chosen.outputs, published)}
    against = ""
    if chosen.against:
        (first, *_) = find_records(chosen.against, chosen.outputs, published)
        found = {first.id: first, **found}
        against = first.id
    comparisons, warnings = compare([*found.values()], chosen.metric, against)
    if chosen.json:
        print(json.dumps(as_json(comparisons, warnings), allow_nan=False, indent=1))
    else:
        show(comparisons, warnings)
