"""The looks of all figures, and that the same figure is the same file."""

from pathlib import Path

import matplotlib
import pytest

from ntl.results.figures.spec import FIGURE_FOLDER
from ntl.results.figures.style import COLOURS, LINES, LOSSES, MARKERS, Drawing, panels, style, write


def drawing(value: float = 1.0) -> Drawing:
    figure, (left, right) = panels(3.25, 2.0, 2)
    left.plot([0, value], label="a")
    right.imshow([[0, value]])
    figure.legend()
    return Drawing("a", "Title", figure, "Caption.", ("pdf", "png", "svg"))


@pytest.mark.slow
def test_the_same_figure_is_the_same_file_whatever_the_user_has_set(tmp_path: Path, monkeypatch) -> None:
    with style():
        first = [path.read_bytes() for path in write(drawing(), tmp_path / "first")]
    # matplotlib writes the time of this variable, or of the clock, unless it is told not to.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    with matplotlib.rc_context({"font.size": 20, "savefig.dpi": 30, "pdf.compression": 6}), style():
        assert [path.read_bytes() for path in write(drawing(), tmp_path / "again")] == first
        other = [path.read_bytes() for path in write(drawing(2.0), tmp_path / "other")]
        assert matplotlib.rcParams["font.size"] == 8
    assert all(one != another for one, another in zip(first, other, strict=True))
    for written in first:
        assert b"matplotlib.org" not in written
        assert b"Date" not in written
        assert b"/Subtype /Type3" not in written


def test_every_loss_has_a_name_and_a_marker_of_its_own() -> None:
    there = {path.stem for path in (FIGURE_FOLDER.parent / "loss").glob("*.yaml")}
    assert there == LOSSES.keys() == COLOURS.keys() == MARKERS.keys() == LINES.keys()
    assert len(set(LOSSES.values())) == len(set(MARKERS.values())) == len(there)
    # There are fewer colours that the colour-blind tell apart than losses: those that share one differ in the line.
    assert len({(COLOURS[loss], LINES[loss]) for loss in there}) == len(there)
