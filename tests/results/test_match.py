from dataclasses import replace
from pathlib import Path

import pytest

from ntl.config import UserError, compose, run_id
from ntl.config.identity import recorded
from ntl.results import lacking_readings, table_runs
from ntl.results.match import plan_block, row_records
from ntl.results.spec import BlockSpec, PrimarySpec, RowSpec, ScaleSpec, TableSpec

CE = RowSpec(label="CE", overrides=["loss=ce"])
WAS = RowSpec(label="WAS", overrides=["loss=ntl_was", "loss.weight=0.3"])


def block(*rows: RowSpec, **changes) -> BlockSpec:
    scales = {"tiny": ScaleSpec(seeds=[1, 2])}
    return BlockSpec(title="b", dataset="noisy_numbers", columns=[], rows=list(rows), **{"scales": scales, **changes})


def plan(row: RowSpec, **changes):
    return plan_block(block(row, **changes), "tiny", "here")[0]


def test_a_record_belongs_to_the_row_with_its_settings_whatever_its_name(make_record) -> None:
    records = [make_record("ntl_was", 1, {}), make_record("ntl_was", 2, {}, weight=0.8), make_record("ce", 1, {})]
    assert row_records(plan(WAS), records) == {1: records[0]}
    assert row_records(plan(CE), records) == {1: records[2]}
    # What changes no id, or repeats what the config says, makes no other row.
    row = replace(WAS, overrides=["loss=ntl_was", "loss.weight=3e-1", "probe_steps=50", "model=gpt2_tiny"])
    assert row_records(plan(row), records) == {1: records[0]}
    renamed = replace(records[0], id=f"{records[0].id[:-1]}x")
    assert row_records(plan(WAS), [renamed]) == {1: renamed}
    with pytest.raises(UserError, match=r"two records, .* remove one"):
        row_records(plan(WAS), [records[0], renamed])
    # A setting that is younger than a record had its default then.
    for name in ("num_workers", "lr"):
        config = renamed.config | {"trainer": {k: v for k, v in renamed.config["trainer"].items() if k != name}}
        assert bool(row_records(plan(WAS), [replace(renamed, config=config)])) is (name == "num_workers")


def test_a_record_is_decoded_as_its_row_says(make_record) -> None:
    record = make_record("ce", 1, {})
    asks = RowSpec(label="CE", overrides=["loss=ce", "beside=expectation"])
    assert row_records(plan(asks), [record]) == {1: record}
    record.config["beside"] = {}
    assert row_records(plan(asks), [record]) == {}
    assert row_records(plan(RowSpec(label="CE", overrides=["loss=ce", "decoding=beam"])), [record]) == {}


@pytest.mark.parametrize("words", [["model=gpt2_small", "loss=ce"], ["model=smollm2_135m_regression"]])
def test_a_row_of_published_weights_is_found_with_and_without_them(
    words: list[str], make_record, tmp_path: Path
) -> None:
    """Composition names the local folder of the weights, if there is one, and their content is part of the id."""
    row = RowSpec(label="GPT-2", overrides=words)
    (gpt2,) = plan_block(block(row, scales={"finetune": ScaleSpec(seeds=[1])}), "finetune", "here")
    words = [*gpt2.overrides, "seed=1"]
    folder = tmp_path / "gpt2"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_bytes(b"weights")
    config = compose(words)
    config.model.path = str(folder)
    made = make_record("ce", 1, {}, id=run_id(config), config=recorded(config), overrides=words)
    assert made.id != run_id(compose(words))
    assert row_records(gpt2, [made]) == {1: made}
    # Weights that somebody chose are a run of their own.
    assert row_records(gpt2, [replace(made, overrides=[*words, f"model.path={folder}"])]) == {}


def test_an_override_is_a_key_and_a_value() -> None:
    for word, message in (("~decoding", "not 'key=value'"), ("+a=1", "not 'key=value'"), ("loss=ce", "set twice")):
        with pytest.raises(UserError, match=rf"^here: X: .*{message}"):
            plan(RowSpec(label="X", overrides=["loss=ce", word]))


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
    config = {"beside": {"expectation": {"trim": 0.005, "name": "expectation"}}}
    now = {"trim": 0.005, "name": "expectation", "splits": [], "interval_scale": "linear"}
    assert lacking_readings(config, {"expectation": now}) == []
    changed = {**now, "splits": ["test"]}, {**now, "trim": 0.1}, {**now, "interval_scale": "log"}
    for other in (*changed, {"name": "expectation"}):
        assert lacking_readings(config, {"expectation": other}) == ["expectation"]
    assert lacking_readings(config, {"median": now}) == ["median"]
    assert lacking_readings({}, {"median": now}) == ["median"]
