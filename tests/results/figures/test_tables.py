"""The CSV files that figures are drawn from."""

from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results.figures.runs import read_rows


def test_rows_by_name_without_remarks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# versions, with a comma\nloss,ratio\nce,1.0\nntl_was,1.1\n")
    assert read_rows(tmp_path / "a.csv") == [{"loss": "ce", "ratio": "1.0"}, {"loss": "ntl_was", "ratio": "1.1"}]


@pytest.mark.parametrize("text", ["", "# nothing else\n", "a,b\n1\n", "a,b\n1,2,3\n"])
def test_a_broken_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=r"a\.csv: not a table"):
        read_rows(tmp_path / "a.csv")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.csv: cannot be read"):
        read_rows(tmp_path / "a.csv")
