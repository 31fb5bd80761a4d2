import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from ntl.config import UserError
from ntl.results.spec import PAPER_FOLDER, PaperNumbers, Role, load_table_spec, read_paper, table_names

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


def load(folder: Path, text: str, paper: str = PAPER):
    (folder / "mine.yaml").write_text(text)
    (folder / "paper").mkdir(exist_ok=True)
    (folder / "paper" / "mine.yaml").write_text(paper)
    return load_table_spec("mine", folder, folder / "paper")


def test_a_spec_is_typed(tmp_path: Path) -> None:
    spec = load(tmp_path, GOOD)
    row = spec.blocks[0].rows[0]
    assert (spec.name, spec.scales, row.role, row.paper) == ("mine", ["tiny"], Role.baseline, {"test/mae": [1.5, 0.1]})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: A table", "title: A table\nseed: 1", r"mine\.yaml: seed: Key 'seed' not in 'TableSpec'"),
        ("label: CE,", "lable: CE,", r"mine\.yaml: lable: Key 'lable' not in 'RowSpec'"),
        ("    dataset: noisy_numbers\n", "", r"mine\.yaml: blocks\[0\]\.dataset: "),
        (
            "{metric: test/mae}",
            "{metric: test/accurcy}",
            r"mine\.yaml: unknown metric 'accurcy' \(did you mean 'accuracy'\?\); to add it, "
            r"say in src/ntl/evaluation/metrics\.py which values of it are better",
        ),
        ("[loss=ce]", "[loss=ce], paper: {test/mae: [1.0]}", r"CE: paper: the paper's numbers belong in results/paper"),
        ("{metric: test/mae", "{metric: test/mae, format: wide", r"test/mae: format 'wide' is no format"),
        (
            "{metric: test/mae}",
            ", ".join(f"{{metric: {split}/mae}}" for split in "tuvwxyz"),
            r"blocks\[0\]\.columns: more than 6 to show: mark the others details: true",
        ),
        ("row: NTL,", "row: WAS,", r"mine\.yaml: primary\.row: table 'mine' has no row 'WAS' that runs"),
        (
            "metric: test/mae, named",
            "metric: test/r2, named",
            r"primary\.metric: 'test/r2' is no shown column .*test/mae",
        ),
        ("{metric: test/mae}", "{metric: test/mae}, {metric: test/mae, header: x}", "a metric is listed twice"),
        ("seeds: [1, 2]", "seeds: [1, 1]", "give at least one seed and none twice"),
        ("seeds: [1, 2]", "seeds: [1], groups: [T5]", "no row has the group 'T5'"),
        ("constant: mean}", "constant: mean, overrides: [loss=ce]}", "a constant row has role constant"),
        ("rows:", "rows: []\n    others:", r"mine\.yaml: others: Key 'others' not in 'BlockSpec'"),
        ("{tiny: {seeds: [1, 2]}}", "{tiny: 3}", r"scales\.tiny: Invalid type assigned"),
        (
            "[loss=ce]",
            "[loss=ce, data_dir=/a]",
            r"mine\.yaml: blocks\[0\]\.rows: CE: data_dir=/a: where files lie is no part of a table; leave it out",
        ),
        (
            "title: A table",
            "title: A table\nadded: [trainer.bf16=true]",
            r"mine\.yaml: added: an override of all rows of a block goes into its overrides",
        ),
        (
            "title: A table",
            "title: A table\ntitle: B",
            r"mine\.yaml: while constructing a mapping.* duplicate key title",
        ),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("test/mae", "test/mea", r"paper/mine\.yaml: rows: CE: test/mea has no column in table 'mine'"),
        ("label: CE", "label: GCE", r"paper/mine\.yaml: rows: GCE: block 0 of table 'mine' has no such row"),
    ],
)
def test_a_number_of_the_paper_that_has_no_cell_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in PAPER
    with pytest.raises(UserError, match=message):
        load(tmp_path, GOOD, PAPER.replace(old, new, 1))


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(UserError, match="no table 'tabel2': did you mean 'table2'"):
        load_table_spec("tabel2")
    with pytest.raises(UserError, match=r"no table 'x': choose from evidence, .*quickstart, table1, table2, table3"):
        load_table_spec("x")


spec_of = cache(load_table_spec)  # only read here


def test_the_paper_s_numbers_stand_in_their_rows() -> None:
    for table, label, metric, printed in (
        ("table2", "NTL-WAS, λ = 0.3", "extrapolate/accuracy", [0.10, 0.01]),
        ("table3", "GCE, σ = 1, + NTL-WAS-CDF, λ = 0.3", "extrapolate/mae", [66.67]),
        ("table5", "Granite 3.1 1B (MoE) NTL-WAS, λ = 0.3", "extrapolate/mape", [0.23]),
    ):
        rows = {f"{row.group} {row.label}".strip(): row for row in spec_of(table).blocks[0].rows}
        assert rows[label].paper[metric] == printed


def test_the_primary_rows_run_at_every_scale(tmp_path: Path) -> None:
    grouped = GOOD.replace("label: CE,", "label: CE, group: T5,").replace("label: NTL,", "label: NTL, group: T5,")
    grouped = grouped.replace("row: NTL,", "group: T5, row: NTL,")
    other = "rows:\n      - {label: CE, group: B, overrides: [loss=ce]}"
    text = grouped.replace("rows:", other).replace(
        "{seeds: [1, 2]}", "{seeds: [1, 2]}, small: {seeds: [1], groups: [B]}"
    )
    with pytest.raises(UserError, match=r"mine\.yaml: primary: its rows are not run at scale 'small'"):
        load(tmp_path, text, PAPER.replace("label: CE", "label: CE, group: B"))


@pytest.mark.parametrize("name", table_names())
def test_every_comparison_has_its_control(name: str) -> None:
    for block in spec_of(name).blocks:
        for group in {row.group for row in block.rows if row.role is Role.ntl}:
            roles = [row.role for row in block.rows if row.group == group]
            assert roles.count(Role.baseline) == roles.count(Role.control) == 1
            (control,) = [row.overrides for row in block.rows if row.group == group and row.role is Role.control]
            rows = [row.overrides for row in block.rows if row.group == group and row.role is Role.ntl]
            weights = {word for row in rows for word in row if word.startswith("loss.weight=")} | {"loss.weight=0.3"}
            assert [word for word in control if word.startswith("loss=")] == ["loss=ce_digits"]
            assert weights & set(control)


NAMES = [*(f"table{number}" for number in range(1, 10)), "figure3"]
GOOD_PAPER = """
source: A paper
title: A table
rows:
  - {label: CE, values: {test/mae: [1.5, 0.1]}}
"""
CITED = "cited_from: Someone\ncited: [{label: BERT, values: {test/mae: [2.0]}}]\n"
# Every number of the folder. Each was held against the paper when it was typed; see the test below on tables.yaml.
SHA256 = "9993f00717a3b792bd7d7ec620350efac1a90b843eacac737451b2a35e6b493b"

Values = dict[str, list[float]]


def read(folder: Path, text: str) -> PaperNumbers:
    (folder / "mine.yaml").write_text(text)
    return read_paper(folder / "mine.yaml")


def test_numbers_are_typed(tmp_path: Path) -> None:
    numbers = read(tmp_path, GOOD_PAPER + CITED)
    assert [(row.block, row.group, row.label) for row in numbers.rows] == [(0, "", "CE")]
    assert numbers.rows[0].values == {"test/mae": [1.5, 0.1]}
    assert numbers.cited[0].values == {"test/mae": [2.0]}


def test_every_file_names_its_source() -> None:
    assert {path.stem for path in PAPER_FOLDER.glob("*.yaml")} == set(NAMES)
    for name in NAMES:
        place = f"{name[:-1].capitalize()} {name[-1]}"
        assert re.search(rf"Zausinger et al\., .* ICML 2025, arXiv 2411\.02083, {place}$", paper(name).source)


def paper(name: str) -> PaperNumbers:
    return read_paper(PAPER_FOLDER / f"{name}.yaml")


def test_no_number_has_changed() -> None:
    rows = {
        name: [[row.block, row.group, row.label, row.values] for row in [*paper(name).rows, *paper(name).cited]]
        for name in NAMES
    }
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest() == SHA256


# Where tables.yaml says no more than the metric: the split of its numbers here.
SPLITS = {"table4": "test", "table6": "test", "table7": "extrapolate", "table8": "validation", "table9": "test"}


def as_list(printed: float | list[float]) -> list[float]:
    return printed if isinstance(printed, list) else [printed]


def printed_rows(name: str, table: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Values]]:
    """Each row that tables.yaml has for a table: what identifies it there, and its numbers by our metric."""
    if name == "table5":  # one row for two of ours
        for row in table["rows"]:
            for loss, suffix in (("ce", "ce"), ("ntl_was", "ntl")):
                splits = ("interpolate", "extrapolate")
                values = {f"{split}/mape": as_list(row[f"{split}_{suffix}"]) for split in splits}
                yield {"model": row["model"], "loss": loss}, values
        return
    splits = ("interpolate", "extrapolate") if "interpolate" in table else (SPLITS[name],)
    for rows in zip(*(table.get(split) or table["rows"] for split in splits), strict=True):
        pairs = [(split, row, metric) for split, row in zip(splits, rows, strict=True) for metric in table["columns"]]
        keys = [{key: value for key, value in row.items() if key not in table["columns"]} for row in rows]
        assert all(key == keys[0] for key in keys)
        yield keys[0], {f"{split}/{metric}": as_list(row[metric]) for split, row, metric in pairs}


def pins(name: str, label: str, group: str) -> dict[str, str]:
    """The overrides of our row, as model, loss, weight and tokenizer."""
    block = load_table_spec(name).blocks[0]
    (row,) = [row for row in block.rows if (row.label, row.group) == (label, group)]
    return dict(override.split("=") for override in [*block.overrides, *row.overrides])


@cache
def read_tables(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture
def tables(data_root: Path) -> dict[str, Any]:
    path = data_root.parent / "paper" / "tables.yaml"
    if not path.is_file():
        pytest.skip("no paper/tables.yaml beside the folder of NTL_DATA_DIR")
    return read_tables(path)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", NAMES[:-1])
def test_numbers_are_those_of_the_paper_beside_the_row_they_belong_to(name: str, tables: dict[str, Any]) -> None:
    numbers = paper(name)
    printed = list(printed_rows(name, tables[name]))
    cited = [values for key, values in printed if key.get("cited")]
    run = [(key, values) for key, values in printed if not key.get("cited")]
    assert [row.values for row in numbers.cited] == cited
    assert [row.values for row in numbers.rows] == [values for _, values in run]
    for row, (key, _) in zip(numbers.rows, run, strict=True):
        ours = pins(name, row.label, row.group)
        head = ours["model"] in ("t5_small_regression", "xval")  # which bring loss and tokenizer
        assert ours["model"] == key.get("model", ours["model"])
        assert ours.get("loss") == (None if head else key["loss"])
        if key.get("weight") is not None:
            assert float(ours["loss.weight"]) == key["weight"]
        if "digit_tokenizer" in key and not head:
            assert ours["tokenizer"] == ("digit" if key["digit_tokenizer"] else "default")


@pytest.mark.data
def test_figure3_is_that_of_the_paper(tables: dict[str, Any]) -> None:
    parts = {"overhead_loss_only": "forward", "overhead_training_step": "training step"}
    rows = tables["figure3"]["rows"]
    printed = {(row["loss"], parts[key]): row[key] for row in rows for key in parts if row[key] is not None}
    ours = {
        (row.label, key.split("/")[0]): value for row in paper("figure3").rows for key, (value,) in row.values.items()
    }
    assert ours == printed
