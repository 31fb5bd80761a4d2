"""``make figures``: every figure of config/figure that the published results can give, and a page that shows them."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ntl.config.figure import figure_names, load_figure_spec
from ntl.config.target import locate
from ntl.results.figures.runs import Source
from ntl.results.figures.style import Drawing, style, write
from ntl.results.load import load_records
from ntl.results.publish import write_text

RESULTS = Path(__file__).resolve().parents[4] / "results"


def draw_all(source: Source) -> list[Drawing]:
    """Every figure of ``config/figure`` for which there is something to draw."""
    specs = [load_figure_spec(name) for name in figure_names()]
    return [drawing for spec in specs if (drawing := locate(spec.draw)(spec, source)) is not None]


def page(drawings: Sequence[Drawing]) -> str:
    """``README.md`` of the folder: each figure with what stands under it, and its files."""
    lines = ["# Figures", "", "Drawn by `make figures`; never edited by hand.", ""]
    for drawing in drawings:
        files = " ".join(f"[{kind}]({drawing.name}.{kind})" for kind in drawing.formats)
        lines += [
            f"## {drawing.title}",
            "",
            f"![{drawing.title}]({drawing.name}.png)",
            "",
            f"{drawing.caption} {files}",
            "",
        ]
    return "\n".join(
        [
            *lines,
            "Figure 4 of the paper, the epochs until the relative error is below 0.5 %, is not here: it needs answers "
            "that are decoded during training, and a record has those of the end alone.",
            "",
        ]
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Rebuild the figures from records and committed benchmarks alone."""
    parser = argparse.ArgumentParser(prog="make_figures.py", description=__doc__)
    parser.add_argument("--records", type=Path, nargs="+", default=[RESULTS / "runs"], metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS / "figures", metavar="DIR")
    chosen = parser.parse_args(argv)
    with style():
        drawings = draw_all(Source(load_records(chosen.records), RESULTS))
        for drawing in drawings:
            print(*write(drawing, chosen.out))
    write_text(chosen.out / "README.md", page(drawings))
