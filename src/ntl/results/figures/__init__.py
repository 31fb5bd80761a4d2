"""All figures, and the page that shows them."""

import re
from collections.abc import Sequence
from pathlib import Path

from ntl.config.folders import CONFIG_DIR
from ntl.results.figures.draw import NoRuns, Source, style, write
from ntl.results.figures.functions import FIGURES
from ntl.results.record import RunRecord
from ntl.system.errors import one_line_errors
from ntl.system.files import write_text

TEMPLATE = CONFIG_DIR / "figures.md"  # README.md of the folder: a section for each figure, its name that of its files


def draw_all(records: Sequence[RunRecord], results: Path, folder: Path) -> list[Path]:
    """Draw what can be drawn into a folder, with its page; the files of figures."""
    page, *sections = TEMPLATE.read_text(encoding="utf-8").split("## ")
    source, paths, missing = Source(records, results), list[Path](), ""
    for section in sections:
        title, files = section.partition("\n")[0], re.findall(r"\[(?:pdf|png)\]\((.+?)\)", section)
        try:
            with style(), one_line_errors("draw into", folder):
                figure, words = FIGURES[files[0].partition(".")[0]](source)
                page += f"## {section.format(**words)}"
                paths += [write(figure, folder / name) for name in files]
        except NoRuns:
            missing += f"- {title}\n"
    if missing:
        page += f"Not drawn, as no record has what they are drawn from:\n\n{missing}"
    write_text(folder / "README.md", page)
    return paths
