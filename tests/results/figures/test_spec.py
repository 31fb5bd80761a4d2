from dataclasses import replace
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.folders import RESULTS
from ntl.config.targets import locate
from ntl.results.figures.spec import (
    FigureSpec,
    PanelSpec,
    Source,
    constants,
    figure_names,
    load_figure_spec,
    models,
    panel_plans,
    runs_by_loss,
)
from ntl.results.figures.style import COLOURS
from ntl.results.load import read_rows

GOOD = """
title: A figure
caption: >-
  Of {seeds}
  seeds.
draw: ntl.results.figures.training.draw_epochs
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
        ("panels: [{table: evidence, scale: tiny, rows: [CE]}]", "", "drawn from panels, files or claims"),
        ("draw:", "formats: [pdf, gif]\ndraw:", r"mine\.yaml: formats: 'gif' is none of pdf, png, svg"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError, match=message):
        load(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize("name", figure_names())
def test_every_figure_has_its_function_its_rows_and_a_colour_for_each_loss(name: str) -> None:
    spec = load_figure_spec(name)
    draw = locate(spec.draw)
    for panel in spec.panels:
        losses = [str(plan.pins["loss"]) for plan in panel_plans(spec, panel)]
        assert len({COLOURS[loss] for loss in losses}) == len(losses) > 0
    if spec.panels:
        assert draw(spec, Source([], RESULTS)) is None


SPEC = load_figure_spec("hour_losses")
ROWS = ["CE", "CE + digit CE (control)", "NTL-WAS, λ = 0.3"]
PRODUCTS = PanelSpec("evidence", ROWS, "tiny", 1, metric="interpolate/mape_median")


def runs(records, panel=PRODUCTS):
    return runs_by_loss(SPEC, panel, Source(records, RESULTS))


def test_only_the_runs_of_the_rows(tiny_record) -> None:
    ours = [tiny_record("ntl_was", 2), tiny_record("ntl_was", 1), tiny_record("ce", 5)]
    others = [
        tiny_record("ntl_was", 3, weight=2.0),
        tiny_record("ntl_was", 4, scale="small"),
        tiny_record("ntl_was", 5, model="t5_tiny"),
        tiny_record("ntl_was", 6, "noisy_numbers"),
        tiny_record("ntl_was", 3, tokenizer="default"),
        tiny_record("ntl_was", 4, id="longer"),
        tiny_record("ntl_was", 7),
        tiny_record("gce", 1),
    ]
    found = runs(ours + others)
    assert list(found) == ["ce", "ntl_was"]
    assert {loss: list(have) for loss, have in found.items()} == {"ce": [5], "ntl_was": [1, 2]}
    assert found["ntl_was"][2] is ours[0]
    assert runs([]) == {}
    assert list(runs(ours, replace(PRODUCTS, rows=PRODUCTS.rows[2:]))) == ["ntl_was"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": "evidense"}, "no table 'evidense': did you mean 'evidence'"),
        ({"block": 2}, r"hour_losses\.yaml: table 'evidence' has no block 2 at scale 'tiny'"),
        ({"rows": ["CE", "GCE"]}, r"hour_losses\.yaml: table 'evidence' has no row 'GCE' there that runs"),
        ({"rows": ["CE", "CE"]}, "two rows of table 'evidence' have one loss"),
    ],
)
def test_a_panel_that_names_no_rows_is_one_line(changes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        runs([], replace(PRODUCTS, **changes))


def test_constant_answers_of_the_table_once_for_the_same_data(tiny_record) -> None:
    metric = "interpolate/mape_median"
    scored = [{f"{metric}:mean": 16.0, f"{metric}:mode": None}, {f"{metric}:mean": 16.0}, {f"{metric}:mean": 17.0}]
    found = runs([tiny_record("ce", seed, metrics=metrics) for seed, metrics in enumerate(scored, 1)])
    assert constants(SPEC, PRODUCTS, found) == {"constant: mean": [16.0, 17.0]}
    assert constants(SPEC, PRODUCTS, {}) == {}


def test_a_stand_in_and_the_model_whose_place_it_takes() -> None:
    panel = replace(PRODUCTS, table="table5", block=0, group="Granite 3.1 1B (MoE)", rows=["CE"])
    assert models(SPEC, panel) == ("a tiny Granite MoE", "Granite 3.1 1B (MoE)")
    assert models(SPEC, PRODUCTS) == ("a tiny GPT-2", "a tiny GPT-2")


def test_the_rows_of_a_csv_file_without_its_remarks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("# versions, with a comma\nloss,ratio\nce,1.0\nntl_was,1.1\n")
    assert read_rows(path) == [{"loss": "ce", "ratio": "1.0"}, {"loss": "ntl_was", "ratio": "1.1"}]
    path.write_text("a,b\n1,2,3\n")
    with pytest.raises(UserError, match=r"a\.csv: not a table"):
        read_rows(path)
    with pytest.raises(UserError, match=r"b\.csv: cannot be read"):
        read_rows(tmp_path / "b.csv")
