import dataclasses

import pytest

from ntl.config import UserError, compose, run_id
from ntl.config.identity import plain, recorded
from ntl.results import build_table, lacking_readings, missing_runs, table_runs
from ntl.results.match import parse_value, plan_block, plan_table, row_records
from ntl.results.spec import BlockSpec, RowSpec, ScaleSpec, TableSpec, load_table_spec

CE = RowSpec(label="CE", overrides=["loss=ce"])
WAS = RowSpec(label="WAS", overrides=["loss=ntl_was", "loss.weight=0.3"])


def block(*rows: RowSpec, **changes) -> BlockSpec:
    scales = {"tiny": ScaleSpec(seeds=[1, 2])}
    return BlockSpec(title="b", dataset="noisy_numbers", columns=[], rows=list(rows), **{"scales": scales, **changes})


def plan(row: RowSpec, **changes):
    return plan_block(block(row, **changes), "tiny", "here")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1e-4", 1e-4),
        ("true", True),
        ("False", False),
        ("ntl_was", "ntl_was"),
        ("[1, 2]", [1, 2]),
        ("'1'", "1"),
    ],
)
def test_values_are_typed(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_an_override_whose_value_cannot_be_read_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^here: X: trainer\.lr: .*'\[a' is no value: while parsing a flow sequence"):
        plan(RowSpec(label="X", overrides=["trainer.lr=[a"]))


def test_a_record_matches_by_its_resolved_values(make_record) -> None:
    records = [make_record("ntl_was", 1, {}), make_record("ntl_was", 2, {}, weight=0.8), make_record("ce", 1, {})]
    assert {s: r.id for s, r in row_records(plan(WAS), records).items()} == {1: "ntl_was-0.3-s1"}
    assert {s: r.id for s, r in row_records(plan(CE), records).items()} == {1: "ce-0.3-s1"}


@pytest.mark.parametrize(
    ("override", "matches"),
    [
        ("loss.weight=0.8", True),
        ("loss.weight=true", False),
        ("loss.weight='0.8'", False),
        ("model.pretrained=0", False),
        ("trainer.max_steps=500.0", True),
        ("trainer.none=1", False),
        ("trainer=other", False),
    ],
)
def test_types_matter_but_not_the_kind_of_number(make_record, override: str, matches: bool) -> None:
    row = RowSpec(label="x", overrides=["loss=ntl_was", override])
    assert bool(row_records(plan(row), [make_record("ntl_was", 1, {}, weight=0.8, overrides=[])])) is matches


def test_a_run_that_set_something_else_is_not_the_rows(make_record) -> None:
    places = ["output_dir=x", "tracking=none", "tracking.tags=[a]", "hydra/launcher=slurm", "resume=never", "seed=1"]
    assert row_records(plan(CE), [make_record("ce", 1, {}, overrides=["loss=ce", *places])])
    for other in ("trainer.max_steps=500", "experiment=mine", "+trainer.x=1", "~decoding", "paper_compat=true"):
        assert not row_records(plan(CE), [make_record("ce", 1, {}, overrides=["loss=ce", other])]), other


def test_a_setting_that_repeats_the_config_is_recognised_by_the_id(make_record) -> None:
    repeated = ["dataset=noisy_numbers", "loss=ce", "trainer.max_steps=500"]
    ours, other = compose([*repeated, "seed=1"]), compose([*repeated[:2], "trainer.max_steps=501", "seed=1"])
    for config, expected in ((ours, 1), (other, 0)):
        record = make_record("ce", 1, {}, overrides=repeated, config=plain(config), id=run_id(config))
        assert len(row_records(plan(CE), [record])) == expected


def test_two_records_for_one_seed(make_record) -> None:
    first = make_record("ce", 1, {})
    config = {**first.config, "trainer": {"name": "default", "max_steps": 400}}
    with pytest.raises(UserError, match=r"row 'CE', seed 1: two records, .* differ in trainer\.max_steps: remove one"):
        row_records(plan(CE), [first, dataclasses.replace(first, id="later", config=config)])


def test_rows_that_could_claim_one_run() -> None:
    loose = RowSpec(label="loose", overrides=["loss=ntl_was"])
    with pytest.raises(UserError, match="both rows 'T5: loose' and 'WAS'"):
        plan_block(block(dataclasses.replace(loose, group="T5"), WAS), "tiny", "here")
    assert len(plan_block(block(CE, WAS), "tiny", "here")) == 2


def test_scales_replace_add_and_select() -> None:
    rows = [RowSpec(label=name, group=name, overrides=[f"model={name}", "loss=ce"]) for name in ("big", "huge")]
    tiny = ScaleSpec(seeds=[5], overrides=["trainer.lr=0.1"], replace={"model=big": "model=small"}, groups=["big"])
    spec = TableSpec(title="t", name="t", blocks=[block(*rows, scales={"tiny": tiny}, overrides=["tokenizer=digit"])])
    head = ["dataset=noisy_numbers", "scale=tiny", "tokenizer=digit", "trainer.lr=0.1"]
    assert table_runs(spec, "tiny") == [[*head, "model=small", "loss=ce", "seed=5"]]
    with pytest.raises(UserError, match="table 't' has no scale 'paper': choose from tiny"):
        table_runs(spec, "paper")


def test_missing_runs(make_record) -> None:
    spec = TableSpec(title="t", name="t", blocks=[block(CE, WAS)])
    runs = table_runs(spec, "tiny")
    assert [run[-1] for run in runs] == ["seed=1", "seed=1", "seed=2", "seed=2"]
    assert missing_runs(spec, "tiny", []) == runs
    assert missing_runs(spec, "tiny", [make_record("ce", 1, {}), make_record("ntl_was", 2, {})]) == runs[1:3]


def test_number_of_runs() -> None:
    counts = {("quickstart", "tiny"): 15, ("table2", "paper"): 48, ("table5", "small"): 18, ("xval", "tiny"): 12}
    assert {place: len(table_runs(load_table_spec(place[0]), place[1])) for place in counts} == counts


def test_the_table_of_xval_has_the_settings_of_its_experiment() -> None:
    (overrides, *_) = [run for run in table_runs(load_table_spec("xval"), "paper") if "model=xval" in run]
    assert run_id(compose(overrides)) == run_id(compose(["experiment=xval_multiplication", "seed=1"]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), [("table2", "tiny"), ("table3", "paper"), ("xval", "tiny")])
def test_every_run_of_a_table_composes_and_finds_its_own_row(make_record, name: str, scale: str) -> None:
    spec = load_table_spec(name)
    records = []
    for _, plans in plan_table(spec, scale):
        for item in (item for item in plans if item.overrides):
            run = item.run(item.seeds[0])
            config = compose(run)
            records.append(make_record("x", config.seed, {}, id=run_id(config), overrides=run, config=recorded(config)))
    assert len({record.id for record in records}) == len(records)
    rows = [row for block in build_table(spec, records, scale).blocks for row in block.rows if not row.spec.constant]
    assert [list(row.records.values()) for row in rows] == [[record] for record in records]


def test_a_reading_that_a_record_has_and_one_that_it_lacks() -> None:
    """A setting that is younger than the record was off in it."""
    config = {"beside": {"expectation": {"trim": 0.005, "name": "expectation"}}}
    now = {"trim": 0.005, "name": "expectation", "splits": []}
    assert lacking_readings(config, {"expectation": now}) == []
    for other in ({**now, "splits": ["test"]}, {**now, "trim": 0.1}, {"name": "expectation"}):
        assert lacking_readings(config, {"expectation": other}) == ["expectation"]
    assert lacking_readings(config, {"median": now}) == ["median"]
    assert lacking_readings({}, {"median": now}) == ["median"]
