"""Convert records of older versions to lines of DATASET.jsonl in the present format.

python scripts/migrate_records.py FOLDER --out results/runs
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ntl.config.cli import Parser, report
from ntl.config.folders import FORMER, RESULTS, renamed

# A pattern of old dotted paths -> the present one.
MOVED = {
    r"ntl\.data\.(sets\.)?(polynomial|star_graph|induction|key_values|needle)\.": "ntl.data.sets.generated.",
    r"ntl\.data\.(sets\.)?arithmetic\.|ntl\.data\.mathematics\.": "ntl.data.sets.mathematics.",
    r"ntl\.data\.(multiplication|noisy_numbers)\.": r"ntl.data.sets.\1.",
    r"ntl\.data\.(sets\.)?(gsm8k|multirc|rjokes|packaged)\.": "ntl.data.sets.official.",
    r"ntl\.data\.number_collate\.": "ntl.data.collate.",
    r"ntl\.models\.(causal|gpt2|t5)\.build$": r"ntl.models.pretrained.build_\1",
    r"ntl\.models\.causal\.": "ntl.models.pretrained.",
    r"ntl\.models\.regression\.(build_\w+)": r"ntl.models.pretrained.\1_regression",
    r"ntl\.training\.objectives\.(mtp|next_token)\.": r"ntl.objectives.\1.",
    r"ntl\.training\.objectives\.(masked_number|regression)\.": "ntl.objectives.number_heads.",
}
DROPPED = ("code", "tracking._target_", "tokenizer.max_place", "trainer.tf32")  # withdrawn settings, and a later one
UNREAD = ("digit_histograms", "mistakes")  # fields of records
Json = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the files that were written. UserError: a broken record, or another one under its id."""
    from ntl.system.files import write_text

    parser = Parser(description=__doc__)
    parser.add_argument("folder", type=Path, help="has ID.json files of one record each, or DATASET.jsonl files")
    parser.add_argument("--out", type=Path, default=RESULTS / "runs", help="where published records are")
    chosen = parser.parse_args(argv)
    files: dict[Path, list[str]] = {}
    for path in chosen.folder.glob("*.json*"):
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines() if path.suffix == ".jsonl" else [text]:
            values = migrate(json.loads(line))
            target = chosen.out / f"{values['config']['dataset']['name']}.jsonl"
            files.setdefault(target, []).append(_line(values))
    for path, lines in files.items():
        write_text(path, "".join(sorted(lines)))
        print(f"{path}: {len(lines)} records")


def migrated_run(folder: Path, place: Path) -> Path:
    """A copy of the folder of a run as today's version would have it, in ``place``, which links to the rest."""
    from ntl.config.folders import read_yaml
    from ntl.results.record import RECORD
    from ntl.system.files import write_atomically

    record, config = folder / RECORD, folder / "config.yaml"
    target = place / folder.absolute().name
    target.mkdir()
    for path in folder.iterdir():
        if path not in (record, config):
            (target / path.name).symlink_to(path.absolute())
    write_atomically(target / RECORD, _line(migrate(json.loads(record.read_text(encoding="utf-8")))))
    if config.is_file():  # JSON is YAML
        write_atomically(target / config.name, json.dumps(migrate_config(read_yaml(config))))
    return target


def migrate(values: Json) -> Json:
    """A record in today's words."""
    from ntl.results.record import SCHEMA
    from ntl.system.errors import UserError

    if not {"schema", "overrides", "config"} <= values.keys():
        raise UserError("a record without schema, overrides or config: give record.json of a run, or lines of them")
    values = _of_schema_2(values) if values["schema"] == 1 else values
    overrides = [_override(word) for word in values["overrides"]]
    return {**values, "schema": SCHEMA, "config": migrate_config(values["config"]), "overrides": overrides}


def _of_schema_2(values: Json) -> Json:
    """With a value of each setting, and without a term that its loss lacks: 0.0 reads as perfect."""
    from ntl.config.composition import from_values
    from ntl.config.decoding import DecodingConfig
    from ntl.config.identity import recorded

    stored = migrate_config(values["config"])
    config = from_values(stored, values["id"])
    usual = vars(DecodingConfig())
    for name, decoding in config.extra_decodings.items():
        for field in fields(decoding):  # one that is younger had its default then, or was off: empty, 0 or false
            if field.name not in {**stored["extra_decodings"][name], **usual}:
                setattr(decoding, field.name, type(getattr(decoding, field.name))())
    absent = ["ntl"] * (not config.loss.has_number) + ["ce"] * (config.model.head == "regression")
    series = {name for term in absent for name in (term, f"eval_{term}")}
    kept = {
        key: [pair for pair in points if key not in series or pair[1] != 0] for key, points in values["curves"].items()
    }
    return {
        **{key: value for key, value in values.items() if key not in UNREAD},
        "config": recorded(config),
        "metrics": {
            k: v for k, v in values["metrics"].items() if v != 0 or k not in {f"validation/{x}" for x in absent}
        },
        "curves": {key: points for key, points in kept.items() if points or key not in series},
        "errors": {key: text.removeprefix("z:") for key, text in values["errors"].items()},
    }


def migrate_config(values: Any, path: str = "") -> Any:
    """A stored config in today's names. ``path`` is the dotted key of the values."""
    if path == "loss":
        return migrate_loss(values)
    if isinstance(values, Mapping):
        inside = {key: f"{path}.{key}".lstrip(".") for key in values}
        kept = {key: migrate_config(value, inside[key]) for key, value in values.items() if inside[key] not in DROPPED}
        return kept if path else {FORMER.get(key, key): value for key, value in kept.items()}
    if isinstance(values, list):
        return [migrate_config(value) for value in values]
    if path.rpartition(".")[2] not in ("_target_", "collator"):
        return values
    return next((re.sub(old, now, values) for old, now in MOVED.items() if re.match(old, values)), values)


def migrate_loss(values: Any) -> Json:
    """The functions ``base``, ``number`` and ``cost`` of a stored loss as its kind, and their options."""
    from ntl.config.loss import checked_kind

    if "kind" in values:
        return values
    base, number, cost = values["base"], values["number"] or {}, values["cost"]
    names = [part["_target_"].rpartition(".")[2] for part in (base, number) if part]
    kept = [name for name in names if name != "cross_entropy"]
    return {
        "name": _override(f"loss={values['name']}").removeprefix("loss="),
        "kind": checked_kind("+".join(kept or names)),
        "weight": values["weight"],
        "squash": cost["options"]["factor"] if cost else None,
        "options": {**base["options"], **number.get("options", {})},
        "implementation": values["implementation"],
    }


def _override(word: str) -> str:
    word = re.sub(r"^(\+?)loss\.(base|number)\.options\.", r"\1loss.options.", word)
    return "loss=squared_error" if word == "loss=mse" else renamed(word)


def _line(values: Json) -> str:
    from ntl.results.record import dumps

    return f"{dumps(values)}\n"


if __name__ == "__main__":
    sys.exit(report(main))
