"""`make figures`: what it draws, without torch, and the page that shows it."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ntl.config import UserError
from ntl.config.folders import RESULTS
from ntl.results.figures import page
from ntl.results.figures.spec import load_figure_spec
from ntl.results.figures.style import Drawing

main = runpy.run_path(str(Path(__file__).resolve().parents[3] / "scripts" / "make_figures.py"))["main"]
ROOT = RESULTS.parent


def test_the_probabilities_are_of_published_runs_and_name_no_folder() -> None:
    known = json.loads((RESULTS / "benchmarks" / "calibration_tiny.json").read_text())
    assert known.keys() <= {path.stem for path in (RESULTS / "runs").glob("*.json")}
    assert all("digits" in scores for splits in known.values() for scores in splits.values())


@pytest.mark.slow
def test_without_records_the_figures_of_the_losses_are_left_and_torch_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    words = ["make_figures.py", "--records", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    code = (
        "import runpy, sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
        f"sys.argv = {words!r}; runpy.run_path({str(ROOT / 'scripts' / 'make_figures.py')!r}, run_name='__main__')"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (tmp_path / "out").iterdir()}
    without_runs = ("figure1b", "figure2", "figure3", "speculative")
    assert written == {"README.md"} | {f"{name}.{kind}" for name in without_runs for kind in ("pdf", "png")}
    # Whether the bytes are the committed ones is for .ci/run, which has the pinned matplotlib.
    assert written <= {path.name for path in (RESULTS / "figures").iterdir()}


def test_a_folder_of_records_that_is_not_there_is_no_folder_without_records(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none: no such folder"):
        main(["--records", str(tmp_path / "none"), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_the_page_shows_each_figure_with_its_caption() -> None:
    text = page([Drawing("a", "A title", Figure(), "A caption.", ("pdf", "svg"))], [load_figure_spec("figure4")])
    assert "## A title\n\n![A title](a.png)\n\nA caption. [pdf](a.pdf) [svg](a.svg)\n" in text
    assert "Not drawn" in text
    assert text.endswith("\n- Figure 4: epochs until the relative error is small, by digits of the two factors\n")
    assert "Not drawn" not in page([])
