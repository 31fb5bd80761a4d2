from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.targets import locate
from ntl.results.figures.runs import panel_plans
from ntl.results.figures.spec import FigureSpec, figure_names, load_figure_spec

GOOD = """
title: A figure
caption: >-
  Of {seeds}
  seeds.
draw: ntl.results.figures.training.draw_curves
panels: [{table: evidence, scale: tiny, rows: [CE]}]
"""


def load(folder: Path, text: str) -> FigureSpec:
    (folder / "mine.yaml").write_text(text)
    return load_figure_spec("mine", folder)


def test_a_spec_is_typed(tmp_path: Path) -> None:
    spec = load(tmp_path, GOOD)
    assert (spec.name, spec.caption, spec.formats) == ("mine", "Of {seeds} seeds.", ["pdf", "png"])
    assert (spec.panels[0].table, spec.panels[0].block, spec.panels[0].rows) == ("evidence", 0, ["CE"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: A figure\n", "", r"mine\.yaml: title: "),
        ("rows: [CE]", "row: [CE]", r"mine\.yaml: panels\[0\]\.row: Key 'row' not in 'PanelSpec'"),
        ("panels: [{table: evidence, scale: tiny, rows: [CE]}]", "", "drawn from panels, from files, or from both"),
        ("draw:", "formats: [pdf, gif]\ndraw:", r"mine\.yaml: formats: 'gif' is none of pdf, png, svg"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message):
        load(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize("name", figure_names())
def test_every_figure_has_its_function_and_its_rows(name: str) -> None:
    spec = load_figure_spec(name)
    assert callable(locate(spec.draw))
    assert all(panel_plans(spec, panel) for panel in spec.panels)
