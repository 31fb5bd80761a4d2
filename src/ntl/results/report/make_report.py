"""``make report``: one HTML page of all published results, which opens from disk without a network."""

import gzip
import json
import math
import re
import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from ntl.config.cli import Parser
from ntl.config.folders import RESULTS
from ntl.results.claims import judge_claims, load_claims
from ntl.results.figures.spec import load_figure_spec
from ntl.results.load import check_folders, load_records
from ntl.results.record import RunRecord
from ntl.results.render.text import (
    DIFFERENCE_LEGEND,
    LEGEND,
    difference_text,
    not_in_records,
    not_learnt_legend,
    seeds_text,
    unbroken_header,
)
from ntl.results.report import runs, tables
from ntl.system.errors import UserError
from ntl.system.files import write_text

# One module: each script sees what those before it define.
SCRIPTS = ("losses.js", "charts.js", "explorer.js", "tables.js", "runs.js")
TITLE = "Number Token Loss: results"
DIGITS = 10
HEADLINE = "hour_losses"  # the figure that stands first and open; the page begins with the finding of its table
# As ntl.results.figures.make_figures.page writes them; the links to the files end the caption.
_FIGURE = re.compile(
    r"^!\[(?P<title>[^\]]*)\]\((?P<name>[\w-]+)\.png\)\n\n(?P<caption>.*?)(?: \[\w+\]\([^)]*\))+$", re.M
)


@dataclass(frozen=True)
class Example:
    """Of the loss explorer: ``weights`` of the ten digits in any unit, which the page divides by their sum."""

    name: str
    label: int
    weights: tuple[float, ...]


def _masses(weights: dict[int, float]) -> tuple[float, ...]:
    return tuple(weights.get(digit, 0.0) for digit in range(DIGITS))


# Figure 1b has one logit of 5 and nine of 0.01; its weights are scaled so that the largest is 100.
_FIGURE_1B = tuple(100.0 if digit == 8 else 100.0 * math.exp(0.01 - 5.0) for digit in range(DIGITS))

EXAMPLES = (
    # The page begins with it: every loss is finite there, and their gradients at the label differ.
    Example("2 % on 4, the rest half on 0, half on 8", 4, _masses({0: 49, 4: 2, 8: 49})),
    Example("The paper's: half on 0, half on 8", 4, _masses({0: 50, 8: 50})),
    Example("Half on 3, half on 5", 4, _masses({3: 50, 5: 50})),
    Example("All on the neighbour 5", 4, _masses({5: 100})),
    Example("All on 9", 4, _masses({9: 100})),
    Example("Figure 1b: logit 5 on 8", 4, _FIGURE_1B),
    Example("Right: all on 4", 4, _masses({4: 100})),
    Example("Uniform", 4, (50.0,) * DIGITS),
)


@dataclass(frozen=True)
class Picture:
    """A PNG file with its title and its caption."""

    name: str
    title: str
    caption: str
    png: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, which the file's first chunk holds."""
        width, height = struct.unpack(">II", self.png[16:24])
        return width, height

    @property
    def base64(self) -> str:
        return b64encode(self.png).decode()


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


def _static(name: str) -> str:
    return (files("ntl.results.report") / "static" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """What the browser may load and run: nothing from anywhere but the page's own script, style and images."""
    style_hash, script_hash = (b64encode(sha256(text.encode()).digest()).decode() for text in (style, script))
    return f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'"


def packed(value: object) -> str:
    """JSON, compressed, in base64: as it is, it would be half of the page. NaN, which JSON lacks, is a ValueError."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def environment() -> Environment:
    """Every value is escaped, and a name that a template lacks is an error."""
    made = Environment(
        loader=PackageLoader("ntl.results.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    for each in (packed, difference_text, not_in_records, not_learnt_legend, seeds_text, repr, zip):
        made.filters[each.__name__] = each
    made.filters["header"] = unbroken_header
    return made


def render(records: Sequence[RunRecord], pictures: Sequence[Picture], names: Sequence[str] = ()) -> str:
    """The page for these records and pictures; ``names`` chooses tables, none means all. Same input, same bytes.

    The claims of ``config/claims.yaml`` come first, where every table is there to judge them by.
    """
    style, script = _static("style.css"), "\n".join(map(_static, SCRIPTS))
    filled, empty = tables.compute(records, names)
    shown = [ruled.default for ruled in filled]
    every = [*shown, *empty]
    by_scale = {
        scale: [r for r in filled if r.default.scale == scale] for scale in dict.fromkeys(t.scale for t in shown)
    }
    first = load_figure_spec(HEADLINE).panels[0]
    opening = next((table for table in shown if (table.name, table.scale) == (first.table, first.scale)), None)
    settings = runs.other_settings(records)
    return (
        environment()
        .get_template("page.html")
        .render(
            title=TITLE,
            policy=_policy(style, script),
            style=style,
            script=script,
            data={"examples": [vars(example) for example in EXAMPLES], **runs.page_data(records)},
            records=records,
            claims=[] if names else judge_claims(load_claims(known=[table.spec for table in every]), every),
            tables=shown,
            groups=tables.grouped(shown),
            group_meanings=tables.GROUPS,
            group_of=tables.group_of,
            anchor=tables.anchor,
            by_scale=by_scale,
            empty=empty,
            open_tables=tables.open_tables(filled),
            ruled_rows=tables.ruled_rows,
            absent=tables.ABSENT,
            views=tables.VIEWS,
            rule_labels=tables.RULE_LABELS,
            table_legend=LEGEND,
            difference_legend=DIFFERENCE_LEGEND,
            opening=opening,
            pictures=sorted(pictures, key=lambda picture: picture.name != HEADLINE),
            headline=HEADLINE,
            examples=EXAMPLES,
            labels=[(digit, digit) for digit in range(DIGITS)],
            run_columns=runs.COLUMNS,
            runs=[runs.listed(each, settings[each.id]) for each in records],
        )
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Write the page. UserError: a folder that does not exist, a figure that was not drawn."""
    parser = Parser(description=__doc__)
    parser.add_argument("--records", type=Path, nargs="+", default=[RESULTS / "runs"], metavar="DIR")
    parser.add_argument("--figures", type=Path, default=RESULTS / "figures", metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS / "report.html", metavar="FILE")
    chosen = parser.parse_args(argv)
    write_text(chosen.out, render(load_records(check_folders(chosen.records)), read_pictures(chosen.figures)))
    print(chosen.out)
