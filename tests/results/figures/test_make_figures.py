"""`make figures`: what it draws, without torch, and the page that shows it."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ntl.config import UserError
from ntl.config.folders import RESULTS
from ntl.results.figures.make_figures import draw_all, page
from ntl.results.figures.spec import FigureSpec, Source, figure_names, load_figure_spec
from ntl.results.figures.style import Drawing, style
from ntl.results.load import load_records

main = runpy.run_path(str(Path(__file__).resolve().parents[3] / "scripts" / "make_figures.py"))["main"]
ROOT = RESULTS.parent


@pytest.fixture(scope="module")
def published() -> tuple[list[Drawing], list[FigureSpec]]:
    with style():
        return draw_all(Source(load_records([RESULTS / "runs"]), RESULTS))


def values_in_pixels(axes: Axes) -> list[tuple[np.ndarray, float]]:
    """(N, 2) of each line, range and set of dots that is drawn, and the half width of its markers where they are cut
    at the end of an axis."""
    point = axes.figure.dpi / 72
    found = []
    for line in axes.lines:
        size = line.get_markersize() if line.get_marker() not in ("None", "none", None, "") else 0.0
        found.append((line.get_transform().transform(line.get_xydata()), line.get_clip_on() * size / 2 * point))
    for each in axes.collections:
        # Of dots the places are offsets; of ranges and areas they are the paths themselves.
        offsets = each.get_offsets()
        if len(each.get_paths()) == 1 and len(offsets) and np.any(offsets):
            sizes = np.sqrt(each.get_sizes()).max() / 2 * point  # type: ignore[attr-defined]
            found.append((each.get_offset_transform().transform(offsets), each.get_clip_on() * sizes))
        else:
            found += [(each.get_transform().transform(path.vertices), 0.0) for path in each.get_paths()]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", figure_names())
def test_whatever_is_drawn_of_the_published_records_lies_within_its_axes(published, name: str) -> None:
    drawings, missing = published
    assert missing == []
    (drawing,) = [drawing for drawing in drawings if drawing.name == name]
    with style():
        drawing.figure.draw_without_rendering()
    drawn = 0
    for axes in drawing.figure.axes:
        if axes.get_label() == "<colorbar>":
            continue
        low, high = axes.get_window_extent().get_points()
        for points, margin in values_in_pixels(axes):
            points = points[np.isfinite(points).all(axis=1)]
            drawn += len(points)
            assert (points - margin >= low - 1e-3).all(), (axes.get_title("left"), points, low)
            assert (points + margin <= high + 1e-3).all(), (axes.get_title("left"), points, high)
        drawn += len(axes.images)
    assert drawn


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


def test_committed_images_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (RESULTS / "figures").glob("*.png")}
    assert sizes
    assert {name: size for name, size in sizes.items() if size > 150_000} == {}
