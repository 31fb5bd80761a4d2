import io
from pathlib import Path

import pytest
from rich.console import Console

from ntl.config import UserError
from ntl.config.table import load_table_spec
from ntl.launch import Report, complete_table
from ntl.results import table_runs


def test_the_quickstart_table_is_completed_printed_and_written(target: str, tmp_path: Path) -> None:
    total = len(table_runs(load_table_spec("quickstart"), "tiny"))

    def complete(out: io.StringIO, terminal: bool) -> Report:
        console = Console(file=out, force_terminal=terminal, width=200)
        return complete_table(
            "quickstart", "tiny", records=[tmp_path], outputs=tmp_path, workers=2, target=target, console=console
        )

    lines = io.StringIO()
    report = complete(lines, terminal=False)
    assert len(report.done) == total == 15
    assert "[15/15]" in lines.getvalue()
    assert "15 runs trained in" in lines.getvalue()
    files = sorted(path.name for path in tmp_path.glob("quickstart*"))
    assert files == ["quickstart_tiny.csv", "quickstart_tiny.md", "quickstart_tiny.tex"]
    markdown = (tmp_path / "quickstart_tiny.md").read_text()
    assert "2.500" in markdown  # seeds 1 to 4, and the fake RMSE is the seed
    assert markdown in lines.getvalue()

    bars = io.StringIO()
    again = complete(bars, terminal=True)
    assert (again.done, again.failed) == ((), ())
    assert "2.500" in bars.getvalue()


def test_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="quickstart"):
        complete_table("quikstart", "tiny", records=[], outputs=tmp_path)
