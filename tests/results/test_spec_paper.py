"""results/paper holds what the paper prints, each number beside the row that it belongs to."""

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
from ntl.results.spec import PAPER_FOLDER, PaperNumbers, load_table_spec, read_paper

NAMES = [*(f"table{number}" for number in range(1, 10)), "figure3"]
GOOD = """
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
    numbers = read(tmp_path, GOOD + CITED)
    assert [(row.block, row.group, row.label) for row in numbers.rows] == [(0, "", "CE")]
    assert numbers.rows[0].values == {"test/mae": [1.5, 0.1]}
    assert numbers.cited[0].values == {"test/mae": [2.0]}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source: A paper\n", "", r"mine\.yaml: source: "),
        ("[1.5, 0.1]", "[1.5, 0.1, 2.0]", r"rows: CE: test/mae must be \[value\] or \[mean, standard deviation\]"),
        ("[1.5, 0.1]", "[]", r"rows: CE: test/mae must be \[value\] or"),
        ("[1.5, 0.1]", "[about 1]", r"mine\.yaml: rows\[0\]\.values\.test/mae: Value 'about 1'"),
        ("{test/mae: [1.5, 0.1]}", "{}", "rows: CE: values: at least one number is expected"),
        ("rows:", "rows:\n  - {label: CE, values: {test/mae: [1.0]}}", "rows: CE: the row is listed twice"),
        ("rows:", "cited_from: Someone\nrows:", "cited_from: say where the cited rows are from"),
        ("rows:", CITED.splitlines()[1] + "\nrows:", "cited_from: say where the cited rows are from"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert "\n" not in str(caught.value)


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
