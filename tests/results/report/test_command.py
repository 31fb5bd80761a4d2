"""`make report` from the published records."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results.report.command import RESULTS, main

ROOT = RESULTS.parent


@pytest.mark.slow
def test_the_report_of_the_published_records_without_torch(tmp_path: Path) -> None:
    words = ["make_report.py", "--out", str(tmp_path / "report.html")]
    code = (
        "import runpy, sys; sys.modules['torch'] = sys.modules['transformers'] = sys.modules['matplotlib'] = None; "
        f"sys.argv = {words!r}; runpy.run_path({str(ROOT / 'scripts' / 'make_report.py')!r}, run_name='__main__')"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    records = list((RESULTS / "runs").rglob("*.json"))
    assert text.count('<tbody class="run"') == len(records)
    assert len(text) < 5_000_000
    assert re.findall(r"[\s\"'=]/(?:home|root|tmp|opt|var|mnt|work|Users)/[^\s\"<]*", text) == []
    assert str(ROOT) not in text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--records .*no such folder"):
        main(["--records", str(tmp_path / "none"), "--out", str(tmp_path / "report.html")])
    assert not (tmp_path / "report.html").exists()


def test_without_records_the_explorer_and_the_figures_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    out = tmp_path / "report.html"
    main(["--records", str(tmp_path / "runs"), "--out", str(out)])
    assert capsys.readouterr().out.split() == [str(out)]
    text = out.read_text(encoding="utf-8")
    assert "Computed from 0 run records" in text
    assert 'id="weight-0"' in text
    assert 'id="figure1b"' in text
