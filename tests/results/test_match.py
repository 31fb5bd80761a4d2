from dataclasses import replace

import pytest

from ntl.config import UserError
from ntl.results import missing_decodings, table_runs
from ntl.results.match import plan_block, row_records
from ntl.results.spec import BlockSpec, ColumnSpec, PrimarySpec, RowSpec, ScaleSpec, TableSpec

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
