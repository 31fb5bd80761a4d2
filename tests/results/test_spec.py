"""Tables as they are specified, the numbers of the paper, and which records and runs are those of a row."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ntl.config import UserError
from ntl.results import missing_decodings, table_runs
from ntl.results.match import plan_block, row_records
from ntl.results.spec import (
    PAPER_FOLDER,
    BlockSpec,
    ColumnSpec,
    PrimarySpec,
    Role,
    RowSpec,
    ScaleSpec,
    TableSpec,
    load_table_spec,
    table_names,
)

GOOD = """
title: A table
primary: {row: NTL, against: CE, metric: test/mae, named: 2026-11-22}
blocks:
  - title: A block
    dataset: noisy_numbers
    scales: {tiny: {seeds: [1, 2]}}
    columns: [{metric: test/mae}]
    rows:
      - {label: CE, role: baseline, overrides: [loss=ce]}
      - {label: NTL, role: ntl, overrides: [loss=ntl_was]}
      - {label: "constant: mean", role: constant, constant: mean}
"""


PAPER = "source: A paper\ntitle: A table\nrows: [{label: CE, values: {test/mae: [1.5, 0.1]}}]\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TableSpec]:
    """The table of this file, with these numbers of a paper."""
    (tmp_path / "paper").mkdir()
    monkeypatch.setattr("ntl.results.spec.PAPER_FOLDER", tmp_path / "paper")
    monkeypatch.setattr("ntl.results.spec.TABLE_FOLDER", tmp_path)

    def make(text: str, paper: str = PAPER) -> TableSpec:
        (tmp_path / "mine.yaml").write_text(text)
        (tmp_path / "paper" / "mine.yaml").write_text(paper)
        return load_table_spec("mine")

    return make


def test_a_spec_is_typed(load, tmp_path: Path) -> None:
    spec = load(GOOD)
    row = spec.blocks[0].rows[0]
    assert (spec.name, spec.scales, row.role, row.paper) == ("mine", ["tiny"], Role.baseline, {"test/mae": [1.5, 0.1]})
    elsewhere = load_table_spec(str(tmp_path / "mine.yaml"))  # a copy that may have other rows
    assert elsewhere.blocks[0].rows[0].paper == {}
    short = (
        "readings: [median]}, {metric: test/rmse}]\n    in_groups: {a: [seed=1], b: [seed=2]}\n    constants: [ridge]"
    )
    text = GOOD.replace("test/mae}]", f"test/mae, {short}").replace("label: NTL,", "label: NTL, group: b,")
    block = load(text.replace("named: ", "groups: [b], named: "), "{rows: []}").blocks[0]
    assert [column.header for column in block.columns] == ["MAE", "MAE, median", "RMSE"]
    rows = [(row.label, row.group, *row.overrides) for row in block.rows if not row.constant]
    assert rows == [
        ("CE", "a", "loss=ce", "seed=1"),
        ("CE", "b", "loss=ce", "seed=2"),
        ("NTL", "b", "loss=ntl_was", "seed=2"),
    ]
    assert [(row.label, row.group) for row in block.rows if row.constant][-1] == (
        "ridge, characters",
        "Constant answers",
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: A table", "title: A table\nseed: 1", r"mine\.yaml: seed: Key 'seed' not in 'TableSpec'"),
        ("label: CE,", "lable: CE,", r"mine\.yaml: lable: Key 'lable' not in 'RowSpec'"),
        ("role: ntl", "role: nlt", r"mine\.yaml: role: Invalid value 'nlt', expected one of \[baseline, control, "),
        (
            "{metric: test/mae}",
            "{metric: test/accurcy}",
            r"mine\.yaml: unknown metric 'accurcy' \(did you mean 'accuracy'\?\); to add "
            r"it, say in src/ntl/evaluation/metrics\.py which values of it are better",
        ),
        ("test/mae", "test/mea", r"paper/mine\.yaml: rows: CE: test/mea has no column in table 'mine'"),
        (
            "    rows:\n",
            "    in_groups: {a: []}\n    rows:\n      - {label: B, group: b}\n",
            "rows: 'b' is none of in_groups",
        ),
        (
            "{metric: test/mae}",
            "{metric: test/mae, readings: [mdian]}",
            "test/mae@mdian: no decoding 'mdian'",
        ),
        ("constant: mean}", "constant: maen}", r"constant: maen: choose from mode, .* Did you mean 'mean'\?"),
        ("label: CE", "label: GCE", r"paper/mine\.yaml: rows: GCE: block 0 of table 'mine' has no such row"),
        ("seeds: [1, 2]", "seeds: []", "A block: scales.tiny.seeds: give at least one seed"),
        (
            "row: NTL,",
            "row: WAS,",
            r"mine\.yaml: primary at scale 'tiny'\.row: table 'mine' has no row 'WAS' that runs",
        ),
        ("title: A table", "title: A table\ntitle: B", r"mine\.yaml: while constructing .* duplicate key title"),
        ("metric: test/mae, named", "metric: test/r2, named", "primary at scale 'tiny': 'test/r2' is no column"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(load, old: str, new: str, message: str) -> None:
    """In the table, or in the numbers of the paper."""
    given = [GOOD, PAPER.replace(old, new, 1)] if message.startswith("paper/") else [GOOD.replace(old, new, 1), PAPER]
    assert given != [GOOD, PAPER]
    with pytest.raises(UserError, match=message) as caught:
        load(*given)
    assert "\n" not in str(caught.value)


def test_every_comparison_has_its_control() -> None:
    tables = [load_table_spec(name) for name in table_names()]
    assert len(tables) > 10
    for block in (block for table in tables for block in table.blocks):
        for group in {row.group for row in block.rows if row.role is Role.ntl}:
            rows = [row for row in block.rows if row.group == group]
            words = {role: [row.overrides for row in rows if row.role is role] for role in (Role.control, Role.ntl)}
            (control,) = words[Role.control]
            assert [row.role for row in rows].count(Role.baseline) == 1
            weights = {word for row in words[Role.ntl] for word in row if word.startswith("loss.weight=")}
            assert [word for word in control if word.startswith("loss=")] == ["loss=ce_digits"]
            assert (weights | {"loss.weight=0.3"}) & set(control)


NAMES = [*(f"table{number}" for number in range(1, 10)), "figure3"]
# Every number of the folder. Each was held against the paper when it was typed.
SHA256 = "9993f00717a3b792bd7d7ec620350efac1a90b843eacac737451b2a35e6b493b"


def test_no_number_has_changed() -> None:
    assert {path.stem for path in PAPER_FOLDER.glob("*.yaml")} == set(NAMES)
    rows = {name: [] for name in NAMES}
    for name in NAMES:
        numbers = yaml.safe_load((PAPER_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        assert re.search(r"Zausinger et al\., .* ICML 2025, arXiv 2411\.02083, (Table|Figure) \d$", numbers["source"])
        for row in [*numbers["rows"], *numbers.get("cited", [])]:
            values = {metric: list(map(float, each)) for metric, each in row["values"].items()}
            rows[name].append([row.get("block", 0), row.get("group", ""), row["label"], values])
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest() == SHA256


# ---- which records belong to a row, and which runs it lacks

CE = RowSpec(label="CE", overrides=["loss=ce"])
WAS = RowSpec(label="WAS", overrides=["loss=ntl_was", "loss.weight=0.3"])


def block(*rows: RowSpec, **changes) -> BlockSpec:
    scales = {"tiny": ScaleSpec(seeds=[1, 2])}
    given = {"scales": scales, "columns": [], "overrides": ["model=gpt2_tiny", "tokenizer=digit"], **changes}
    return BlockSpec(title="b", dataset="noisy_numbers", rows=list(rows), **given)


def plan(row: RowSpec, **changes):
    return plan_block(block(row, **changes), "tiny")[0]


def test_a_record_belongs_to_the_row_with_its_overrides_whatever_its_name(make_record) -> None:
    records = [make_record("ntl_was", 1, {}), make_record("ntl_was", 2, {}, weight=0.8), make_record("ce", 1, {})]
    assert row_records(plan(WAS), records) == {1: records[0]}
    assert row_records(plan(CE), records) == {1: records[2]}
    # In any order, and with what changes no result.
    words = ["probe_steps=50", "trainer.gradient_checkpointing=true", *reversed(records[0].overrides)]
    renamed = replace(records[0], id=f"{records[0].id[:-1]}x", overrides=words)
    assert row_records(plan(WAS), [renamed]) == {1: renamed}
    assert row_records(plan(replace(WAS, overrides=[*WAS.overrides, "trainer.lr=1"])), records) == {}
    assert row_records(plan(WAS), [replace(renamed, overrides=[*words, "trainer.lr=1"])]) == {}
    with pytest.raises(UserError, match=r"two records, .* remove one"):
        row_records(plan(WAS), [records[0], renamed])


def test_a_record_is_decoded_as_its_row_says(make_record) -> None:
    record, columns = make_record("ce", 1, {}), [ColumnSpec("test/mae"), ColumnSpec("test/mae@expectation")]
    asks = RowSpec(label="CE", overrides=["loss=ce", "extra_decodings=expectation"])
    assert row_records(plan(asks, columns=columns), [record]) == {1: record}
    record.config["extra_decodings"] = {}
    assert row_records(plan(asks, columns=columns), [record]) == {}
    assert row_records(plan(asks, columns=columns[:1]), [record]) == {1: record}
    assert row_records(plan(RowSpec(label="CE", overrides=["loss=ce", "decoding=beam"])), [record]) == {}


def test_scales_replace_add_and_select(make_record) -> None:
    rows = [RowSpec(label=name, group=name, overrides=[f"model={name}", "loss=ce"]) for name in ("big", "huge")]
    tiny = ScaleSpec(seeds=[5], overrides=["trainer.lr=0.1"], replace={"model=big": "model=small"}, groups=["big"])
    primary = PrimarySpec("WAS", "CE", "test/mae", named="2026-11-22")
    spec = TableSpec("t", [block(*rows, scales={"tiny": tiny}, overrides=["tokenizer=digit"])], primary, name="t")
    head = ["dataset=noisy_numbers", "scale=tiny", "tokenizer=digit", "trainer.lr=0.1"]
    assert table_runs(spec, "tiny") == [[*head, "model=small", "loss=ce", "seed=5"]]
    with pytest.raises(UserError, match="table 't' has no scale 'paper': choose from tiny"):
        table_runs(spec, "paper")
    # Seeds vary slowest, and what has a record is left out.
    spec = TableSpec("t", [block(CE, WAS)], primary)
    runs = table_runs(spec, "tiny")
    assert [run[-1] for run in runs] == ["seed=1", "seed=1", "seed=2", "seed=2"]
    assert table_runs(spec, "tiny", [make_record("ce", 1, {}), make_record("ntl_was", 2, {})]) == runs[1:3]


def test_a_reading_that_a_record_has_and_one_that_it_lacks() -> None:
    """A setting that is younger than the record had its default in it, or was off."""
    config = {"extra_decodings": {"expectation": {"trim": 0.005, "name": "expectation"}}}
    now = {"trim": 0.005, "name": "expectation", "splits": [], "interval_scale": "linear"}
    assert missing_decodings(config, {"expectation": now}) == []
    changed = {**now, "splits": ["test"]}, {**now, "trim": 0.1}, {**now, "interval_scale": "log"}
    for other in (*changed, {"name": "expectation"}):
        assert missing_decodings(config, {"expectation": other}) == ["expectation"]
    assert missing_decodings(config, {"median": now}) == ["median"]
    assert missing_decodings({}, {"median": now}) == ["median"]
