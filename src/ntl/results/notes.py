"""What stands with a table: warnings, as of rows that are unequal beyond their labels, and notes for its details."""

import json
from collections.abc import Mapping, Sequence

from ntl.config.table import BlockSpec
from ntl.results.match import PLACES, RowPlan, leaves, row_name
from ntl.results.record import RunRecord, data_read

Records = Sequence[Mapping[int, RunRecord]]
# A setting, and among which runs it should be one: those of a seed where the seed draws the data, those of one kind of
# head for what a model brings along with its head.
Kind = tuple[str, int | None, str]
BROUGHT = ("objective", "decoding")


def notes(block: BlockSpec, scale: str, plans: Sequence[RowPlan], records: Records) -> list[str]:
    """One sentence or two each, in a fixed order; what does not apply is left out."""
    part = block.scales[scale]
    remarks = [
        block.note,
        _stand_ins(scale, part.replace, bool(part.groups) and not part.labels),
        _unparsable(block, plans, records),
    ]
    every = [record for have in records for record in have.values()]
    remarks.append(_origin(every))
    return [" ".join(remark.split()) for remark in remarks if remark]


def warnings(block: BlockSpec, scale: str, plans: Sequence[RowPlan], records: Records) -> list[str]:
    """What the scale changes, what makes rows unequal or a test another than it seems, records of unknown source."""
    every = [record for have in records for record in have.values()]
    dirty = sum(bool(record.git.get("dirty")) for record in every)
    changed = f"{dirty} of the {len(every)} records are of a source with uncommitted changes." if dirty else ""
    told = (_added(plans), block.scales[scale].note, _settings(plans, records), _data(every), changed, _longer(every))
    return [" ".join(each.split()) for each in told if each]


def _added(plans: Sequence[RowPlan]) -> str:
    words = next((plan.added for plan in plans if plan.added), ())
    return f"Not the table as described: every run of it was made with {', '.join(words)}." if words else ""


def _longer(records: Sequence[RunRecord]) -> str:
    shares: dict[str, set[float]] = {}
    for record in records:
        for split, share in record.data.get("longer_than_train", {}).items():
            shares.setdefault(split, set()).add(share)
    told = [
        f"{split} {' to '.join(f'{share:.0%}' for share in sorted({min(values), max(values)}))}"
        for split, values in shares.items()
        if max(values) > 0
    ]
    if not told:
        return ""
    return f"Test examples with more tokens than any that was trained on: {', '.join(told)}."


def _stand_ins(scale: str, replace: Mapping[str, str], left_out: bool) -> str:
    pairs = [
        f"{new.removeprefix('model=')} stands in for {old.removeprefix('model=')}"
        for old, new in replace.items()
        if old.startswith("model=") and new.startswith("model=")
    ]
    if not pairs:
        return ""
    others = "; the other models are left out" if left_out else ""
    return f"At scale={scale} {', '.join(pairs)}{others}. The paper's numbers are those of the published models."


def _unparsable(block: BlockSpec, plans: Sequence[RowPlan], records: Records) -> str:
    parts = []
    for split in dict.fromkeys(column.metric.partition("/")[0] for column in block.columns):
        bad: list[str] = []
        known = False
        for plan, have in zip(plans, records, strict=True):
            shares = [
                (share, record.metrics.get(f"{split}/count"))
                for record in have.values()
                if (share := record.metrics.get(f"{split}/unparsable")) is not None
            ]
            known = known or bool(shares)
            if not any(share for share, _ in shares):
                continue
            total = sum(count or 0 for _, count in shares)
            if all(count for _, count in shares):
                number = round(sum(share * (count or 0) for share, count in shares))
                bad.append(f"{row_name(plan.row)} {number} of {total:.0f}")
            else:
                bad.append(f"{row_name(plan.row)} {sum(share for share, _ in shares) / len(shares):.2%}")
        if known:
            parts.append(f"{split}: {', '.join(bad) or 'none'}")
    return f"Unparsable outputs over all seeds: {'; '.join(parts)}." if parts else ""


def _settings(plans: Sequence[RowPlan], records: Records) -> str:
    runs = [plan for plan in plans if plan.overrides]
    # What the rows are there to vary: a key, or a whole group, that they pin to different values.
    varied = {key for plan in runs for key in plan.pins if len({repr(other.pins.get(key)) for other in runs}) > 1}
    across: dict[Kind, set[str]] = {}
    differing: set[str] = set()
    for have in records:
        within: dict[Kind, set[str]] = {}
        for record in have.values():
            for key, value in leaves(record.config).items():
                if key.split(".")[0] not in PLACES:
                    # The run's seed may draw the data too; then rows are alike where they are alike seed by seed.
                    drawn = record.seed if key.endswith(".seed") else None
                    head = record.config.get("model", {}).get("head", "lm") if key.split(".")[0] in BROUGHT else ""
                    within.setdefault((key, drawn, head), set()).add(json.dumps(value))
        for (key, drawn, head), values in within.items():
            # A row may differ from the others in what it pins, and its seeds among themselves in nothing.
            if len(values) > 1:
                differing.add(key)
            elif key not in varied and key.split(".")[0] not in varied:
                across.setdefault((key, drawn, head), set()).update(values)
    differing.update(key for (key, _, _), values in across.items() if len(values) > 1)
    if not differing:
        return ""
    return f"Not a fair comparison: the runs also differ in {', '.join(sorted(differing))}."


def _data(records: Sequence[RunRecord]) -> str:
    prints: dict[str, set[str]] = {}
    for record in records:
        if record.data:
            settings = json.dumps(record.config.get("dataset"), sort_keys=True)
            prints.setdefault(settings, set()).add(json.dumps(data_read(record), sort_keys=True))
    most = max(map(len, prints.values()), default=0)
    return f"Not a fair comparison: the runs read {most} different versions of the data." if most > 1 else ""


def _origin(records: Sequence[RunRecord]) -> str:
    if not records:
        return ""
    commits = sorted({str(record.git.get("commit") or "unknown")[:7] for record in records})
    devices = sorted({record.device or "unknown" for record in records})
    plural = "s" if len(records) > 1 else ""
    return f"From {len(records)} run record{plural}, commit {', '.join(commits)}, device {', '.join(devices)}."
