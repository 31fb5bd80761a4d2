"""Whether the record of a run that somebody else made can stand beside the published ones."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ntl.config.composition import compose
from ntl.config.identity import recorded
from ntl.config.root import Config
from ntl.results.match import leaves, plan_table, row_records
from ntl.results.record import RunRecord, unpack_bits, with_weights_of
from ntl.results.spec import load_table_spec, table_names


def differences(record: RunRecord, config: Config) -> dict[str, tuple[Any, Any]]:
    """The settings, with the contents of files, that a config has otherwise than a record: both values of each."""
    now, then = leaves(recorded(with_weights_of(record, config))), leaves(record.config)
    chosen = ("decoding.",) if config.decoding.name == "auto" and "readings" in record.model else ()
    both = sorted(now.keys() & then.keys())
    return {key: (now[key], then[key]) for key in both if now[key] != then[key] and not key.startswith(chosen)}


def check_record(record: RunRecord, published: Sequence[RunRecord], root: Path) -> tuple[list[str], list[str]]:
    """What is wrong with a record, and the rows of tables that it fills, a line each.

    ``published`` are those that it stands beside, ``root`` is a checkout of the repository, which has the commit of the
    run. UserError: its overrides are refused.
    """
    others, faults, filled = [run for run in published if run.id != record.id], list[str](), list[str]()
    # The overrides give the config and the seed.
    config = compose(record.overrides)
    for key, (now, then) in differences(record, config).items():
        faults.append(f"{key} is {json.dumps(then)} in its config, and {json.dumps(now)} by its overrides")
    if record.seed != config.seed:
        faults.append(f"its seed is {record.seed}, and {config.seed} by its overrides")
    commit = str(record.git.get("commit") or "")
    command = ["git", "-C", str(root), "cat-file", "-e", f"{commit}^{{commit}}"]
    if not commit or subprocess.run(command, capture_output=True, check=False).returncode:
        faults.append(f"its commit {commit or '(none)'} is not in this repository")
    if record.git.get("dirty"):
        faults.append("its source had uncommitted changes: commit, and run it again")
    # The same settings of a data set gave the same files to every published run.
    same = [run for run in others if run.config.get("dataset") == record.config.get("dataset")]
    for name, value in record.data.get("files", {}).items():
        digests = {run.data.get("files", {}).get(name) for run in same} - {None}
        if digests and value not in digests:
            faults.append(f"data.files.{name} differs from {len(same)} published runs with the same settings")
    # Packed answers are as many, and as often correct, as the metrics say.
    for split, packed in record.correct.items():
        count, share = (record.metrics.get(f"{split}/{name}") for name in ("count", "accuracy"))
        if count and share is not None and abs((actual := unpack_bits(packed, int(count)).mean()) - share) > 1e-9:
            faults.append(f"{split}/accuracy is {share}, and its answers give {actual:.10g}")
    # A pair of rows with one seed ran on one kind of processor.
    scale, of_seed = record.config["scale"]["name"], [run for run in others if run.seed == record.seed]
    specs = [spec for spec in map(load_table_spec, table_names()) if scale in spec.scales]
    for name, block, rows in ((spec.name, *planned) for spec in specs for planned in plan_table(spec, scale)):
        for row in (row for row in rows if row.overrides and row_records(row, [record])):
            filled.append(f"{name} at {scale}, {block.title}, row {row.name}, seed {record.seed}")
            beside = [other for other in rows if other.spec.group == row.spec.group]
            devices = {run.device for other in beside for run in row_records(other, of_seed).values()}
            if lacking := ", ".join(sorted(devices - {record.device})):
                mixed = f"other rows of this seed ran on {lacking}, this one on {record.device}"
                faults.append(f"{filled[-1]}: {mixed}: a pair must not mix processors")
    return faults, filled
