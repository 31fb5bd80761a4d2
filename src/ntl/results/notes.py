"""The words that go with a table: its title, the warnings of its page, and the notes of its details."""

import json
from collections.abc import Iterable, Mapping, Sequence

from ntl.results.compare import Grid, control_baseline, pairs_with, same_but_loss
from ntl.results.match import NOT_COMPUTED_WITH, RowPlan, leaves, row_name
from ntl.results.packing import unpack_errors
from ntl.results.record import RunRecord, data_read
from ntl.results.render.text import number
from ntl.results.spec import Better, BlockSpec, ColumnSpec, Role, TableSpec
from ntl.results.statistics import Paired, example_difference, paired

# What a model is called in a text; its head is named by the row.
MODELS = {
    "gpt2_large": "GPT-2 Large",
    "gpt2_medium": "GPT-2 Medium",
    "gpt2_small": "GPT-2 Small",
    "gpt2_small_regression": "GPT-2 Small",
    "gpt2_tiny": "a tiny GPT-2",
    "gpt2_tiny_regression": "a tiny GPT-2",
    "gpt2_xl": "GPT-2 XL",
    "granite_3_1_moe_1b": "Granite 3.1 1B (MoE)",
    "granite_3_2_2b": "Granite 3.2 2B",
    "granite_moe_tiny": "a tiny Granite MoE",
    "granite_tiny": "a tiny Granite",
    "llama_mini": "a small Llama",
    "llama_tiny": "a tiny Llama",
    "qwen2_tiny": "a tiny Qwen2",
    "rt": "the Regression Transformer",
    "rt_tiny": "a tiny Regression Transformer",
    "t5_3b": "T5-3B",
    "t5_base": "T5-Base",
    "t5_mini": "a small T5",
    "t5_small": "T5-Small",
    "t5_small_regression": "T5-Small",
    "t5_tiny": "a tiny T5",
    "t5_tiny_regression": "a tiny T5",
    "xval": "xVal",
    "xval_tiny": "a tiny xVal",
}


def is_stand_in(block: BlockSpec, scale: str, plan: RowPlan) -> bool:
    """Whether the row's model takes the place of another at this scale."""
    return f"model={plan.pins.get('model')}" in block.scales[scale].replace.values()


def heading(spec: TableSpec, scale: str, parts: Sequence[tuple[BlockSpec, Sequence[RowPlan]]]) -> str:
    """``Table 2 with a tiny GPT-2 in place of T5-Small: loss variants``; ``Table 2: loss variants, T5-Small`` without.

    The title says so where a model with published weights is trained from scratch.
    """
    ran, took, own = {}, {}, {}
    for block, plans in parts:
        places = {new: old for old, new in block.scales[scale].replace.items()}
        for plan in (plan for plan in plans if plan.overrides and "model" in plan.pins):
            scratch = " from scratch" if plan.pins.get("model.pretrained") is False else ""
            name = f"{model_name(plan.pins['model'])}{scratch}"
            if is_stand_in(block, scale, plan):
                ran[name] = took[model_name(places[f"model={plan.pins['model']}"].removeprefix("model="))] = None
            else:
                own[name] = None
    what, colon, subject = spec.title.partition(": ")
    if took:
        return f"{what} with {_listed(ran)} in place of {_listed(took)}{colon}{subject}"
    return f"{spec.title}, {_listed(own)}" if own else spec.title


def model_name(model: str) -> str:
    """What a model of ``config/model`` is called in a text."""
    return MODELS.get(model, model)


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


Records = Sequence[Mapping[int, RunRecord]]
# A setting, and the runs that should agree in it: those of one seed where the seed draws the data, and those of one
# kind of head for settings that come with a model's head.
SettingKey = tuple[str, int | None, str]
HEAD_SETTINGS = ("objective", "decoding")


def notes(block: BlockSpec, scale: str, plans: Sequence[RowPlan], records: Records) -> list[str]:
    """The notes that apply, one or two sentences each, in a fixed order."""
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
    """What the scale changes, settings and data that make rows unequal, and records of an unknown source."""
    every = [record for have in records for record in have.values()]
    dirty = sum(bool(record.git.get("dirty")) for record in every)
    changed = f"{dirty} of the {len(every)} records are of a source with uncommitted changes." if dirty else ""
    told = (
        _added(plans),
        block.scales[scale].note,
        _settings(plans, records),
        _data_versions(every),
        changed,
        _longer_than_train(every),
    )
    return [" ".join(each.split()) for each in told if each]


def _added(plans: Sequence[RowPlan]) -> str:
    words = next((plan.added for plan in plans if plan.added), ())
    return f"Not the table as described: every run of it was made with {', '.join(words)}." if words else ""


def _longer_than_train(records: Sequence[RunRecord]) -> str:
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
    # What the rows vary on purpose: a key, or a whole group, that they pin to different values.
    varied = {key for plan in runs for key in plan.pins if len({repr(other.pins.get(key)) for other in runs}) > 1}
    across: dict[SettingKey, set[str]] = {}
    differing: set[str] = set()
    for have in records:
        within: dict[SettingKey, set[str]] = {}
        for record in have.values():
            for key, value in leaves(record.config).items():
                if key.split(".")[0] not in NOT_COMPUTED_WITH:
                    # The run's seed may draw the data, too; rows are then compared seed by seed.
                    drawn = record.seed if key.endswith(".seed") else None
                    head = (
                        record.config.get("model", {}).get("head", "lm") if key.split(".")[0] in HEAD_SETTINGS else ""
                    )
                    within.setdefault((key, drawn, head), set()).add(json.dumps(value))
        for (key, drawn, head), values in within.items():
            # Rows may differ in what they pin; the seeds of one row may differ in nothing.
            if len(values) > 1:
                differing.add(key)
            elif key not in varied and key.split(".")[0] not in varied:
                across.setdefault((key, drawn, head), set()).update(values)
    differing.update(key for (key, _, _), values in across.items() if len(values) > 1)
    if not differing:
        return ""
    return f"Not a fair comparison: the runs also differ in {', '.join(sorted(differing))}."


def _data_versions(records: Sequence[RunRecord]) -> str:
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


def control_note(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid, learnt: Sequence[bool | None] = ()
) -> str:
    """``control_parts`` as one note, empty without any."""
    parts = control_parts(columns, plans, grid, learnt)
    return f"What the control, which has no distance, gives alone: {'. '.join(parts)}." if parts else ""


def control_parts(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid, learnt: Sequence[bool | None] = ()
) -> list[str]:
    """For each column the largest gain of an NTL row whose interval over seeds excludes 0, and the control's there.

    All rows compared differ in the loss alone: gains are over the row without a number loss. A row that is not
    ``learnt`` has no gain. Empty where a group has no such rows, or fewer than three seeds in common.
    """
    parts = []
    for control, plan in enumerate(plans):
        base = control_baseline(plans, control)
        if plan.row.role is not Role.control or base is None:
            continue
        rows = [index for index in same_but_loss(plans, control) if plans[index].row.role is Role.ntl]
        known = [index for index in rows if not learnt or learnt[index] is not False]
        name, over = f"{plan.row.group}: " if plan.row.group else "", plans[base].row.label
        found, none = _shares(columns, plans, grid, (base, control, known))
        if rows and not known:
            parts.append(f"{name}no NTL row beats a constant answer, so there is no gain to share")
        if found:
            parts.append(f"{name}of the largest gain over {over}, {'; '.join(found)}")
        if none:
            parts.append(f"{name}no NTL row gains more over {over} than its seeds vary in {', '.join(none)}")
    return parts


def _shares(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], grid: Grid, places: tuple[int, int, Sequence[int]]
) -> tuple[list[str], list[str]]:
    base, control, rows = places
    found, none = [], []
    for column in columns:
        values = [line[column.metric] for line in grid]
        alone, best = paired(values[base], values[control]), _best(column, values, base, rows)
        if column.better is Better.neither or alone is None or alone.differences.low is None or best is None:
            continue
        gain, index = best
        if index is None:
            none.append(column.header)
        else:
            part = alone.differences.mean or 0.0
            whole = f"{number(gain, column.format, '+')} ({plans[index].row.label})"
            found.append(f"{column.header}: {number(part, column.format, '+')} of {whole}, {part / gain:z.0%}")
    return found, none


def _best(
    column: ColumnSpec, values: Sequence[Mapping[int, float | None]], base: int, rows: Sequence[int]
) -> tuple[float, int | None] | None:
    compared: list[tuple[int, Paired]] = [
        (index, difference) for index in rows if (difference := paired(values[base], values[index])) is not None
    ]
    known = [(each.differences.mean, index, each) for index, each in compared if each.differences.low is not None]
    if not known:
        return None
    gains = [(mean, index) for mean, index, each in known if mean is not None and each.excludes_zero]
    sign = column.better.value
    good = [(mean, index) for mean, index in gains if sign * mean > 0]
    return max(good, key=lambda each: sign * each[0]) if good else (0.0, None)


# How a note of these scores begins: the share of the test set that it covers.
_WHOLE = {
    "accuracy": "All {count:.0f} test answers",
    "mae": "Only {kept} of the {count:.0f} test answers, as the records keep the errors of no more; unlike the table",
}


def example_notes(
    columns: Sequence[ColumnSpec], plans: Sequence[RowPlan], records: Sequence[Mapping[int, RunRecord]]
) -> list[str]:
    """Paired bootstrap over test examples of each row against its baseline, a note a column of accuracy or MAE.

    An example's score is its mean over the seeds that both rows have (``example_difference``). The note begins with
    the number of test answers that it covers.
    """
    found = []
    for column in columns:
        clear, held, over = [], 0, ""
        for base, index in pairs_with(plans, Role.baseline):
            result = _over_seeds(column.metric, records[base], records[index])
            if result is None:
                continue
            mean, low, high = (number(value, column.format, "+") for value in result)
            over = f"{_answers(column.metric, records[index])}: {column.header} minus {plans[base].row.label}"
            if result[1] > 0 or result[2] < 0:
                clear.append(f"{row_name(plans[index].row)} {mean} [{low}, {high}]")
            else:
                held += 1
        rest = f"{held} row{'s' if held > 1 else ''} with 0 in the interval" if held else ""
        if over:
            told = "; ".join(filter(None, [*clear, rest]))
            found.append(f"{over}, paired bootstrap of the seeds' mean, which says nothing of other seeds. {told}.")
    return found


def _answers(metric: str, records: Mapping[int, RunRecord]) -> str:
    split, _, name = metric.partition("/")
    record = next(iter(records.values()))
    count = record.metrics.get(f"{split}/count") or 0
    kept = len(unpack_errors(record.errors[split])) if split in record.errors else 0
    return _WHOLE["accuracy" if kept >= count else name].format(kept=kept, count=count)


def _over_seeds(
    metric: str, base: Mapping[int, RunRecord], other: Mapping[int, RunRecord]
) -> tuple[float, float, float] | None:
    pairs = [(base[seed], other[seed]) for seed in sorted(set(base) & set(other))]
    # Where the seed draws the test set, too, an example has no mean over seeds.
    if len({str(data_read(record)) for pair in pairs for record in pair}) != 1:
        return None
    return example_difference(metric, pairs)
