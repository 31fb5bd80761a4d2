"""The words that go with a table: its title, the warnings of its page, and the notes of its CSV."""

import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ntl.results.match import NOT_COMPUTED_WITH, RowPlan, leaves, row_name
from ntl.results.record import RunRecord, data_read
from ntl.results.spec import BlockSpec, ScaleSpec, TableSpec
from ntl.results.table import Row

K = TypeVar("K")
V = TypeVar("V")
# What a model is called in a text; its head is named by the row.
MODELS = {
    "ernie4_5_tiny": "a tiny Ernie 4.5",
    "gpt2_large": "GPT-2 Large",
    "gpt2_medium": "GPT-2 Medium",
    "gpt2_small": "GPT-2 Small",
    "gpt2_tiny": "a tiny GPT-2",
    "gpt2_xl": "GPT-2 XL",
    "granite_3_1_moe_1b": "Granite 3.1 1B (MoE)",
    "granite_3_2_2b": "Granite 3.2 2B",
    "granite_moe_tiny": "a tiny Granite MoE",
    "granite_tiny": "a tiny Granite",
    "llama_mini": "a small Llama",
    "llama_tiny": "a tiny Llama",
    "qwen2_tiny": "a tiny Qwen2",
    "qwen3_5_0_8b": "Qwen3.5 0.8B",
    "qwen3_5_tiny": "a tiny Qwen3.5",
    "rt": "the Regression Transformer",
    "rt_tiny": "a tiny Regression Transformer",
    "smollm2_135m": "SmolLM2-135M-Instruct",
    "t5_3b": "T5-3B",
    "t5_base": "T5-Base",
    "t5_mini": "a small T5",
    "t5_small": "T5-Small",
    "t5_tiny": "a tiny T5",
    "xval": "xVal",
    "xval_tiny": "a tiny xVal",
}


def model_name(model: str) -> str:
    """What a model of ``config/model`` is called in a text."""
    return MODELS.get(model.removesuffix("_regression"), model)


def heading(spec: TableSpec, plans: Iterable[RowPlan]) -> str:
    """``Table 2 with a tiny GPT-2 in place of T5-Small: loss variants``; ``Table 2: loss variants, T5-Small`` without.

    The title says so where a model with published weights is trained from scratch.
    """
    ran, took, own = {}, {}, {}
    for plan in (plan for plan in plans if plan.place):
        name = model_name(plan.pins["model"]) + " from scratch" * (plan.pins.get("model.pretrained") == "false")
        if plan.stand_in:
            ran[name] = took[model_name(plan.place)] = None
        else:
            own[name] = None
    what, colon, subject = spec.title.partition(": ")
    if took:
        return f"{what} with {_listed(ran)} in place of {_listed(took)}{colon}{subject}"
    return f"{spec.title}, {_listed(own)}" if own else spec.title


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _records(rows: Sequence[Row]) -> list[RunRecord]:
    return [record for row in rows for record in row.records.values()]


def notes(block: BlockSpec, scale: str, rows: Sequence[Row]) -> list[str]:
    """The notes that apply, one or two sentences each, in a fixed order."""
    remarks = [block.note, _stand_ins(scale, block.scales[scale]), _unparsable(block, rows), _origin(_records(rows))]
    return [" ".join(remark.split()) for remark in remarks if remark]


def warnings(block: BlockSpec, scale: str, rows: Sequence[Row]) -> list[str]:
    """What the scale changes, settings and data that make rows unequal, and records of an unknown source."""
    records = _records(rows)
    dirty = sum(bool(record.git.get("dirty")) for record in records)
    added = next((row.plan.added for row in rows if row.plan.added), ())
    remarks = (
        f"Not the table as described: every run of it was made with {', '.join(added)}." if added else "",
        block.scales[scale].note,
        _settings(rows),
        _devices(rows),
        _data_versions(records),
        _rule_versions(records),
        f"{dirty} of the {len(records)} records are of a source with uncommitted changes." if dirty else "",
        _longer_than_train(records),
    )
    return [" ".join(remark.split()) for remark in remarks if remark]


def _sets(pairs: Iterable[tuple[K, V]]) -> dict[K, set[V]]:
    found: dict[K, set[V]] = {}
    for key, value in pairs:
        found.setdefault(key, set()).add(value)
    return found


def _longer_than_train(records: Sequence[RunRecord]) -> str:
    shares = _sets(pair for record in records for pair in record.data.get("longer_than_train", {}).items())
    ends = {split: sorted({min(found), max(found)}) for split, found in shares.items() if max(found) > 0}
    parts = [f"{split} {' to '.join(f'{share:.0%}' for share in found)}" for split, found in ends.items()]
    return f"Test examples with more tokens than any that was trained on: {', '.join(parts)}." if parts else ""


def _stand_ins(scale: str, part: ScaleSpec) -> str:
    models = {old: new for old, new in part.replace.items() if old.startswith("model=")}
    pairs = [f"{new.removeprefix('model=')} stands in for {old.removeprefix('model=')}" for old, new in models.items()]
    others = "; the other models are left out" if part.groups and not part.labels else ""
    published = "The paper's numbers are those of the published models."
    return f"At scale={scale} {', '.join(pairs)}{others}. {published}" if pairs else ""


def _unparsable(block: BlockSpec, rows: Sequence[Row]) -> str:
    parts = []
    for split in dict.fromkeys(column.metric.partition("/")[0] for column in block.columns):
        known, bad = False, []
        for row in rows:
            shares = [
                (record.metrics[f"{split}/unparsable"] or 0, record.metrics.get(f"{split}/count") or 0)
                for record in row.records.values()
                if record.metrics.get(f"{split}/unparsable") is not None
            ]
            known = known or bool(shares)
            if found := sum(share * count for share, count in shares):
                bad.append(f"{row_name(row.spec)} {round(found)} of {sum(count for _, count in shares):.0f}")
        if known:
            parts.append(f"{split}: {', '.join(bad) or 'none'}")
    return f"Unparsable outputs over all seeds: {'; '.join(parts)}." if parts else ""


def _settings(rows: Sequence[Row]) -> str:
    plans = [row.plan for row in rows if row.plan.overrides]
    # What the rows vary on purpose: a key, or a whole group, that they pin to different values.
    varied = {key for plan in plans for key in plan.pins if len({other.pins.get(key) for other in plans}) > 1}
    values: dict[tuple[str, int, str], set[str]] = {}
    for record in _records(rows):
        head = record.config.get("model", {}).get("head", "lm")
        for key, value in leaves(record.config).items():
            group = key.split(".")[0]
            if group not in NOT_COMPUTED_WITH and not {key, group} & varied:
                # The run's seed may draw the data, or name the base, too: rows are then compared seed by seed.
                # What comes with a model's head is compared among runs with that head.
                seed = record.seed if key == "base" or key.endswith(".seed") else 0
                place = key, seed, head if group in ("objective", "decoding") else ""
                values.setdefault(place, set()).add(json.dumps(value))
    differing = sorted({key for (key, *_), found in values.items() if len(found) > 1})
    return f"Not a fair comparison: the runs also differ in {', '.join(differing)}." if differing else ""


def _devices(rows: Sequence[Row]) -> str:
    """Rounding differs between processors, and can decide what a seed learns; a pair should not mix them."""
    found = _sets(((row.spec.group, seed), each.device) for row in rows for seed, each in row.records.items())
    mixed = sorted({seed for (_, seed), devices in found.items() if len(devices) > 1})
    if not mixed:
        return ""
    which = f"seed{'s' * (len(mixed) > 1)} {_listed(map(str, mixed))}"
    return f"Not all rows of {which} ran on the same kind of processor."


def _data_versions(records: Sequence[RunRecord]) -> str:
    prints = _sets(
        (json.dumps(each.config.get("dataset"), sort_keys=True), json.dumps(data_read(each), sort_keys=True))
        for each in records
        if each.data
    )
    most = max(map(len, prints.values()), default=0)
    return f"Not a fair comparison: the runs read {most} different versions of the data." if most > 1 else ""


def _rule_versions(records: Sequence[RunRecord]) -> str:
    # Versions 2 and 3 differ only where a text has several ####, which no published one of 2 has.
    found = {str({rule: 3 if each == 2 else each for rule, each in record.rules.items()}) for record in records}
    return f"Not a fair comparison: {len(found)} versions of the rules read the answers." if len(found) > 1 else ""


def _origin(records: Sequence[RunRecord]) -> str:
    if not records:
        return ""
    commits = sorted({str(record.git.get("commit") or "unknown")[:7] for record in records})
    devices = sorted({record.device or "unknown" for record in records})
    plural = "s" if len(records) > 1 else ""
    return f"From {len(records)} run record{plural}, commit {', '.join(commits)}, device {', '.join(devices)}."
