"""The captions of the figures' own page, and the pictures within the report."""

import struct
from base64 import b64encode
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ntl.config import UserError
from ntl.results.figures.make_figures import RESULTS, page
from ntl.results.figures.style import Drawing
from ntl.results.report.figures import Picture, read_pictures, section

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 1080, 416) + b"rest"


def test_pictures_are_those_of_the_page_that_make_figures_writes(tmp_path: Path) -> None:
    drawings = [
        Drawing("figure1b", "Figure 1b: a < b", Figure(), "One [unit], 5 %.", ("pdf", "png")),
        Drawing("other", "Other", Figure(), "Two. Sentences.", ("pdf", "png", "svg")),
    ]
    (tmp_path / "README.md").write_text(page(drawings), encoding="utf-8")
    for drawing in drawings:
        (tmp_path / f"{drawing.name}.png").write_bytes(PNG)
    expected = [Picture(drawing.name, drawing.title, drawing.caption, PNG) for drawing in drawings]
    assert read_pictures(tmp_path) == expected


def test_every_committed_picture_is_found() -> None:
    names = {picture.name for picture in read_pictures(RESULTS / "figures")}
    assert names == {path.stem for path in (RESULTS / "figures").glob("*.png")}


def test_a_missing_picture_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"README\.md: cannot be read .*make figures"):
        read_pictures(tmp_path)
    (tmp_path / "README.md").write_text(page([Drawing("a", "A", Figure(), "B.")]), encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.png: cannot be read"):
        read_pictures(tmp_path)


def test_a_picture_is_in_the_page_with_its_size_and_escaped_words() -> None:
    text = section([Picture("a", "A < B", "C & <script>", PNG)])
    assert f'src="data:image/png;base64,{b64encode(PNG).decode()}" alt="A &lt; B" width="1080" height="416"' in text
    assert "<figcaption>C &amp; &lt;script&gt;</figcaption>" in text
