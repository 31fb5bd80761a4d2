"""``make figures``: every figure that the published records and two benchmarks can give, and a page that shows them."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from ntl.results.figures.curves import draw_curves
from ntl.results.figures.digits import draw_digits
from ntl.results.figures.groups import draw_modules, draw_pairs
from ntl.results.figures.losses import draw_by_digit, draw_by_mass
from ntl.results.figures.runtime import draw_runtime
from ntl.results.figures.seeds import draw_seeds
from ntl.results.figures.style import Drawing, style, write
from ntl.results.load import load_records
from ntl.results.publish import write_text
from ntl.results.record import RunRecord

RESULTS = Path(__file__).resolve().parents[4] / "results"
FROM_RECORDS: tuple[Callable[[Sequence[RunRecord]], Drawing | None], ...] = (
    draw_modules,
    draw_pairs,
    draw_digits,
    draw_curves,
    draw_seeds,
)


def draw_all(records: Sequence[RunRecord], results: Path) -> list[Drawing]:
    """The figures of the losses, that of their cost, and those for which there are records."""
    losses = [draw_by_digit(results / "figures"), draw_by_mass(results / "figures")]
    runtime = draw_runtime(results / "benchmarks" / "losses.csv")
    return [*losses, runtime, *(drawing for draw in FROM_RECORDS if (drawing := draw(records)) is not None)]


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
        drawings = draw_all(load_records(chosen.records), RESULTS)
        for drawing in drawings:
            print(*write(drawing, chosen.out))
    write_text(chosen.out / "README.md", page(drawings))
