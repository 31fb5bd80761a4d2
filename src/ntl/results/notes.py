"""The words that go with a table: its title, and what a reader has to be warned of."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from ntl.config.folders import CONFIG_DIR, read_yaml
from ntl.results.match import NOT_COMPUTED_WITH, Row, leaves
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, TableSpec

MODELS: dict[str, str] = read_yaml(CONFIG_DIR / "model_names.yaml")


def model_name(model: str) -> str:
    """What a model of ``config/model`` is called in a text."""
    return MODELS.get(model.removesuffix("_regression"), model)


def heading(spec: TableSpec, rows: Iterable[Row]) -> str:
    """``Table 2 with a tiny GPT-2 in place of T5-Small: loss variants``; ``Table 2: loss variants, T5-Small`` without.

    The title says so where a model with published weights is trained from scratch.
    """
    ran, took, own = {}, {}, {}
    for row in (row for row in rows if row.place):
        name = model_name(row.pins["model"]) + " from scratch" * (row.pins.get("model.pretrained") == "false")
        (ran if row.stand_in else own)[name] = None
        took |= {model_name(row.place): None} if row.stand_in else {}
    what, colon, subject = spec.title.partition(": ")
    if took:
        return f"{what} with {_listed(ran)} in place of {_listed(took)}{colon}{subject}"
    return f"{spec.title}, {_listed(own)}" if own else spec.title


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def warnings(block: BlockSpec, scale: str, rows: Sequence[Row], added: Sequence[str] = ()) -> Iterator[str]:
    """What the scale changes, settings and data that make rows unequal, and records of an unknown source."""
    records = [record for row in rows for record in row.records.values()]
    if added:
        yield f"Not the table as described: every run of it was made with {', '.join(added)}."
    if note := block.scales[scale].note:
        yield " ".join(note.split())
    if differing := _differing(rows, records):
        yield f"Not a fair comparison: the runs also differ in {', '.join(differing)}."
    # Rounding differs between processors, and can decide what a seed learns; a pair should not mix them.
    devices = _sets(((row.spec.group, seed), each.device) for row in rows for seed, each in row.records.items())
    if mixed := sorted({seed for (_, seed), found in devices.items() if len(found) > 1}):
        which = f"seed{'s' * (len(mixed) > 1)} {_listed(map(str, mixed))}"
        yield f"Not all rows of {which} ran on the same kind of processor."
    # What was measured on the data is no part of it, and not every record has it.
    data = [(each.config.get("dataset"), {**each.data, "longer_than_train": None}) for each in records if each.data]
    read = _sets((json.dumps(settings, sort_keys=True), json.dumps(of, sort_keys=True)) for settings, of in data)
    if (most := max(map(len, read.values()), default=0)) > 1:
        yield f"Not a fair comparison: the runs read {most} different versions of the data."
    # Versions 2 and 3 differ only where a text has several ####, which no published one of 2 has.
    rules = {str({rule: 3 if each == 2 else each for rule, each in record.rules.items()}) for record in records}
    if len({each.replace("'default': 4", "'default': 3") for each in rules}) > 1:
        yield f"Not a fair comparison: {len(rules)} versions of the rules read the answers."
    elif len(rules) > 1:
        yield "Two versions of the rules read the answers: numerals alike, fractions and other notations not."
    if dirty := sum(bool(record.git.get("dirty")) for record in records):
        yield f"{dirty} of the {len(records)} records are of a source with uncommitted changes."
    shares = _sets(pair for record in records for pair in record.data.get("longer_than_train", {}).items())
    ends = {split: sorted({min(found), max(found)}) for split, found in shares.items() if max(found) > 0}
    if parts := [f"{split} {' to '.join(f'{share:.0%}' for share in found)}" for split, found in ends.items()]:
        yield f"Test examples with more tokens than any that was trained on: {', '.join(parts)}."


def _sets(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, set[Any]]:
    found: dict[Any, set[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, set()).add(value)
    return found


def _differing(rows: Sequence[Row], records: Sequence[RunRecord]) -> list[str]:
    # What the rows vary on purpose: a key, or a whole group, that they pin to different values.
    pins = _sets((key, row.pins.get(key)) for key in {*chain(*(row.pins for row in rows))} for row in rows if row.pins)
    varied = {key for key, found in pins.items() if len(found) > 1}
    values = list[tuple[tuple[str, int, str], str]]()
    for record in records:
        loss, objective = (record.config.get(group, {}).get("name") for group in ("loss", "objective"))
        source = loss if loss == objective else record.config.get("model", {}).get("head", "lm")
        for key, value in leaves(record.config).items():
            group = key.split(".")[0]
            if group not in NOT_COMPUTED_WITH and not {key, group} & varied:
                # The seed may draw the data, and name base and tokenizer, too: rows are then compared seed by seed.
                # What comes with a model's head, or with a loss that is an objective, is compared among runs with it.
                seed = record.seed if key in ("base", "tokenizer.path") or key.endswith(".seed") else 0
                place = key, seed, source if group in ("objective", "decoding") else ""
                values.append((place, json.dumps(value)))
    return sorted({key for (key, *_), found in _sets(values).items() if len(found) > 1})
