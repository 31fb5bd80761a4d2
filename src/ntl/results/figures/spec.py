"""Schema of ``config/figure``: what a figure shows, of which rows of which table or of which file, and its caption."""

from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from ntl.config.targets import check_target
from ntl.results.typed import read_typed
from ntl.system.errors import UserError

FIGURE_FOLDER = Path(__file__).resolve().parents[4] / "config" / "figure"


@dataclass
class PanelSpec:
    """Rows of a table, by label, in one of its blocks and groups at one scale: their runs are drawn.

    ``metric`` names an entry of a record's metrics, groups or curves; ``split`` is the test set, ``axis`` the label of
    the axis, ``threshold`` the value that the metric has to fall below.
    """

    table: str = MISSING
    rows: list[str] = MISSING
    scale: str = MISSING
    block: int = 0
    group: str = ""
    title: str = ""
    split: str = ""
    metric: str = ""
    axis: str = ""
    threshold: float = 0.0


@dataclass
class FigureSpec:
    """One file of ``config/figure``; its name is the figure's.

    ``draw`` is the function that draws it, from the runs of its panels, from ``files`` under results/, or from both.
    ``caption`` has fields in braces, as ``{seeds}``, which that function fills in.
    """

    title: str = MISSING
    caption: str = MISSING
    draw: str = MISSING
    panels: list[PanelSpec] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    formats: list[str] = field(default_factory=lambda: ["pdf", "png"])
    name: str = ""


def figure_names(folder: Path = FIGURE_FOLDER) -> list[str]:
    """The figures there are, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_figure_spec(name: str, folder: Path = FIGURE_FOLDER) -> FigureSpec:
    """Read and check ``<folder>/<name>.yaml``. A mistake in it is a UserError that names the file and the key."""
    path = folder / f"{name}.yaml"
    spec: FigureSpec = read_typed(FigureSpec, path)
    spec.name, spec.caption = name, " ".join(spec.caption.split())
    check_target(spec.draw, "ntl.results.figures", f"{path}: draw")
    if not spec.panels and not spec.files:
        raise UserError(f"{path}: a figure is drawn from panels, from files, or from both: give one of them")
    if wrong := sorted(set(spec.formats) - {"pdf", "png", "svg"}):
        raise UserError(f"{path}: formats: {wrong[0]!r} is none of pdf, png, svg")
    return spec
