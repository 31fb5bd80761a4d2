"""What is general about reading a YAML file into a schema; tests/config/test_table.py goes through the mistakes."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from omegaconf import MISSING

from ntl.config import UserError
from ntl.results.spec import read_typed


@dataclass
class Inner:
    number: float = MISSING


@dataclass
class Outer:
    name: str = MISSING
    one: list[Inner] = MISSING
    more: dict[str, Inner] = field(default_factory=dict)


def read(folder: Path, text: str) -> Outer:
    (folder / "a.yaml").write_text(text)
    return read_typed(Outer, folder / "a.yaml")


def test_schemas_within_lists_and_mappings(tmp_path: Path) -> None:
    assert read(tmp_path, "name: x\none: [{number: 1}]") == Outer("x", [Inner(1.0)])
    assert read(tmp_path, "name: x\none: [{number: 1}]\nmore: {3: {number: 2}}").more == {"3": Inner(2.0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\none: [{number: 1}, {number: a}]", r"a\.yaml: one\[1\]\.number: Value 'a'"),
        ("name: x\none: [{}]", r"a\.yaml: one\[0\]\.number: "),
        ("name: x\none: [{number: 1}]\nmore: {b: {size: 2}}", r"a\.yaml: more\.b\.size: Key 'size' not in 'Inner'"),
        ("name: x\none: []", r"a\.yaml: one: a list with something in it is expected"),
        ("[1]", r"a\.yaml: a mapping is expected, not '\[1\]'"),
        ("one: [", r"a\.yaml: while parsing"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"b\.yaml: "):
        read_typed(Outer, tmp_path / "b.yaml")
