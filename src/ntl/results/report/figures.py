"""The figures of the page: the PNG files of ``make figures`` with the captions of their README."""

import re
import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ntl.results.report.markup import Html, element
from ntl.system.errors import UserError

# As ntl.results.figures.make_figures.page writes them; the links to the files end the caption.
_FIGURE = re.compile(
    r"^!\[(?P<title>[^\]]*)\]\((?P<name>[\w-]+)\.png\)\n\n(?P<caption>.*?)(?: \[\w+\]\([^)]*\))+$", re.M
)
HEADLINE = "tiny_losses"  # stands open; the others unfold


@dataclass(frozen=True)
class Picture:
    """A PNG file with its title and what stands under it."""

    name: str
    title: str
    caption: str
    png: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, which the file's first chunk holds."""
        width, height = struct.unpack(">II", self.png[16:24])
        return width, height


def read_pictures(folder: Path) -> list[Picture]:
    """The pictures that the folder's README shows, in its order. UserError where one of them cannot be read."""
    try:
        page = (folder / "README.md").read_text(encoding="utf-8")
        return [
            Picture(found["name"], found["title"], found["caption"], (folder / f"{found['name']}.png").read_bytes())
            for found in _FIGURE.finditer(page)
        ]
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror}): `make figures` draws it") from error


def _figure(picture: Picture) -> Html:
    width, height = picture.size
    source = f"data:image/png;base64,{b64encode(picture.png).decode()}"
    image = element("img", src=source, alt=picture.title, width=width, height=height)
    box = element("div", image, class_="scroll", tabindex=0, role="region", aria_label=picture.title)
    figure = element("figure", box, element("figcaption", picture.caption), id=picture.name)
    return element("details", element("summary", element("h3", picture.title)), figure, open=picture.name == HEADLINE)


def section(pictures: Sequence[Picture]) -> Html:
    """Each picture in the page itself, with its caption; the headline first."""
    return element(
        "section",
        element("h2", "Figures", id="figures-title"),
        *map(_figure, sorted(pictures, key=lambda picture: picture.name != HEADLINE)),
        id="figures",
        aria_labelledby="figures-title",
    )
