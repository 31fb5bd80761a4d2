"""Whether the record of a run that somebody else made can stand beside the published ones."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from ntl.config.composition import compose
from ntl.config.identity import recorded
from ntl.results.match import leaves, plan_table, row_records
from ntl.results.record import RunRecord, unpack_bits, with_weights_of
from ntl.results.spec import load_table_spec, table_names


def check_record(record: RunRecord, published: Sequence[RunRecord], root: Path) -> tuple[list[str], list[str]]:
    """What is wrong with a record, and the rows of tables that it fills, a line each.

    ``published`` are those that it stands beside, ``root`` is a checkout of the repository, which has the commit of the
    run. UserError: its overrides are refused.
    """
    others = [each for each in published if each.id != record.id]
    rows = [*_rows(record, others)]
    faults = [*_faults(record, others, root), *(line for _, line in rows if line)]
    return faults, [name for name, _ in rows]


def _faults(record: RunRecord, published: Sequence[RunRecord], root: Path) -> Iterator[str]:
    # The overrides give the config and the seed.
    config = compose(record.overrides)
    now, then = leaves(recorded(with_weights_of(record, config))), leaves(record.config)
    has_chosen = config.decoding.name == "auto" and "readings" in record.model
    for key in sorted(set(now) & set(then)):
        if now[key] != then[key] and not (has_chosen and key.startswith("decoding.")):
            yield f"{key} is {json.dumps(then[key])} in its config, and {json.dumps(now[key])} by its overrides"
    if record.seed != config.seed:
        yield f"its seed is {record.seed}, and {config.seed} by its overrides"
    commit = str(record.git.get("commit") or "")
    command = ["git", "-C", str(root), "cat-file", "-e", f"{commit}^{{commit}}"]
    if not commit or subprocess.run(command, capture_output=True, check=False).returncode:
        yield f"its commit {commit or '(none)'} is not in this repository"
    if record.git.get("dirty"):
        yield "its source had uncommitted changes: commit, and run it again"
    # The same settings of a data set gave the same files to every published run.
    same = [each for each in published if each.config.get("dataset") == record.config.get("dataset")]
    for name, value in record.data.get("files", {}).items():
        known = {each.data.get("files", {}).get(name) for each in same} - {None}
        if known and value not in known:
            yield f"data.files.{name} differs from that of {len(same)} published runs with the same settings"
    # Packed answers are as many, and as often correct, as the metrics say.
    for split, packed in record.correct.items():
        count, share = (record.metrics.get(f"{split}/{name}") for name in ("count", "accuracy"))
        if count and share is not None and abs(unpack_bits(packed, int(count)).mean() - share) > 1e-9:
            yield f"{split}/accuracy is {share}, and its answers give {unpack_bits(packed, int(count)).mean():.10g}"


def _rows(record: RunRecord, published: Sequence[RunRecord]) -> Iterator[tuple[str, str]]:
    """The rows whose run it is; with a line where another of its group and seed ran on another processor."""
    scale, of_seed = record.config["scale"]["name"], [run for run in published if run.seed == record.seed]
    for spec in map(load_table_spec, table_names()):
        for block, rows in plan_table(spec, scale) if scale in spec.scales else ():
            for row in (row for row in rows if row.overrides and row_records(row, [record])):
                beside = [other for other in rows if other.spec.group == row.spec.group]
                devices = {run.device for other in beside for run in row_records(other, of_seed).values()}
                where = f"{spec.name} at {scale}, {block.title or spec.title}, row {row.name}, seed {record.seed}"
                line = f"{where}: other rows of this seed ran on {', '.join(sorted(devices - {record.device}))}, this "
                told = f"{line}one on {record.device}: a pair must not mix processors"
                yield where, told if devices - {record.device} else ""
