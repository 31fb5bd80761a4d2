import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ntl.config import UserError
from ntl.results.spec import PAPER_FOLDER, Role, TableSpec, load_table_spec, table_names

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

    def make(text: str, paper: str = PAPER) -> TableSpec:
        (tmp_path / "mine.yaml").write_text(text)
        (tmp_path / "paper" / "mine.yaml").write_text(paper)
        return load_table_spec(str(tmp_path / "mine.yaml"))

    return make


def test_a_spec_is_typed(load) -> None:
    spec = load(GOOD)
    row = spec.blocks[0].rows[0]
    assert (spec.name, spec.scales, row.role, row.paper) == ("mine", ["tiny"], Role.baseline, {"test/mae": [1.5, 0.1]})


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
        ("seeds: [1, 2]", "seeds: []", "A block: scales.tiny.seeds: give at least one seed"),
        (
            "row: NTL,",
            "row: WAS,",
            r"mine\.yaml: primary at scale 'tiny'\.row: table 'mine' has no row 'WAS' that runs",
        ),
        ("title: A table", "title: A table\ntitle: B", r"mine\.yaml: while constructing .* duplicate key title"),
        (
            "metric: test/mae, named",
            "metric: test/r2, named",
            "primary at scale 'tiny': 'test/r2' is no column",
        ),
    ],
)
def test_a_mistake_is_named_with_file_and_key(load, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message) as caught:
        load(GOOD.replace(old, new, 1))
    assert "\n" not in str(caught.value)


def test_a_number_of_the_paper_that_has_no_cell_is_named(load) -> None:
    for old, new, message in (
        ("test/mae", "test/mea", r"paper/mine\.yaml: rows: CE: test/mea has no column in table 'mine'"),
        ("label: CE", "label: GCE", r"paper/mine\.yaml: rows: GCE: block 0 of table 'mine' has no such row"),
    ):
        with pytest.raises(UserError, match=message):
            load(GOOD, PAPER.replace(old, new, 1))


def test_every_comparison_has_its_control() -> None:
    for block in (block for name in table_names() for block in load_table_spec(name).blocks):
        for group in {row.group for row in block.rows if row.role is Role.ntl}:
            roles = [row.role for row in block.rows if row.group == group]
            assert roles.count(Role.baseline) == roles.count(Role.control) == 1
            (control,) = [row.overrides for row in block.rows if row.group == group and row.role is Role.control]
            rows = [row.overrides for row in block.rows if row.group == group and row.role is Role.ntl]
            weights = {word for row in rows for word in row if word.startswith("loss.weight=")} | {"loss.weight=0.3"}
            assert [word for word in control if word.startswith("loss=")] == ["loss=ce_digits"]
            assert weights & set(control)


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
