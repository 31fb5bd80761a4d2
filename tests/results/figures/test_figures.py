"""All figures: their rows, their looks, their page and files."""

import json
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from ntl.config.folders import CONFIG_DIR, RESULTS
from ntl.results import load_records
from ntl.results.figures.draw import LOOKS, NoRuns, Source, panels, style, write
from ntl.results.figures.functions import FIGURES, draw_all


def test_every_loss_has_a_look_of_its_own() -> None:
    assert {path.stem for path in (CONFIG_DIR / "loss").glob("*.yaml")} == LOOKS.keys()
    for each in ("name", "marker"):
        assert len({getattr(look, each) for look in LOOKS.values()}) == len(LOOKS)
    # There are fewer colours that the colour-blind tell apart than losses: those that share one differ in the line.
    assert len({(look.colour, look.line) for look in LOOKS.values()}) == len(LOOKS)


def test_every_figure_has_its_place_on_both_pages_and_rows_that_exist() -> None:
    page, results = ((CONFIG_DIR / name).read_text() for name in ("figures.md", "results.md"))
    source = Source([], RESULTS)
    for name, draw in FIGURES.items():
        assert f"]({name}.png)\n" in page
        assert f"](figures/{name}.png)" in results
        assert (RESULTS / "figures" / f"{name}.png").is_file()
        try:  # without records, those that need none
            draw(source)
        except NoRuns:
            continue
        assert name in {"figure1b", "figure2", "figure3", "speculative"}


def test_the_page_names_what_was_not_drawn(tmp_path: Path) -> None:
    paths = draw_all([], RESULTS, tmp_path)
    drawn = ("figure1b", "figure2", "figure3", "speculative")
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in drawn for kind in ("pdf", "png")]
    assert all(path.stat().st_size for path in paths)
    page, _, missing = (tmp_path / "README.md").read_text().partition("Not drawn, ")
    assert page.count("\n## ") == page.count("\n![") == 4
    assert "logits 8 × 64 × 32,128 in float32 (63 MiB)" in page
    assert "\n- Figure 4\n" in missing
    assert missing.count("\n- ") == 8


def test_only_the_runs_of_the_rows(tiny_record) -> None:
    """In the order of the labels, by seed; which runs are a row's is tested in test_spec.py."""
    records = [tiny_record("ntl_was", 2), tiny_record("ntl_was", 1), tiny_record("ce", 5), tiny_record("gce", 1)]
    source = Source(records, RESULTS)
    found = source.runs("evidence", "tiny", block=1)
    assert [(loss, list(have)) for loss, have in found.items()] == [("ce", [5]), ("ntl_was", [1, 2])]
    assert list(source.runs("evidence", "tiny", ["NTL-WAS, λ = 0.3"], block=1)) == ["ntl_was"]
    with pytest.raises(KeyError, match="GCE"):
        source.runs("evidence", "tiny", ["GCE"], block=1)


def drawing(value: float = 1.0) -> Figure:
    figure, (left, right) = panels(3.25, 2.0, 2)
    left.plot([0, value], label="a")
    right.imshow([[0, value]])
    figure.legend()
    return figure


@pytest.mark.slow
def test_the_same_figure_is_the_same_file_whatever_the_user_has_set(tmp_path: Path, monkeypatch) -> None:
    def files(value: float = 1.0) -> list[bytes]:
        return [write(drawing(value), tmp_path / f"a.{kind}").read_bytes() for kind in ("pdf", "png")]

    with style():
        first = files()
    # matplotlib writes the time of this variable, or of the clock, unless it is told not to.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    with matplotlib.rc_context({"font.size": 20, "savefig.dpi": 30, "pdf.compression": 6}), style():
        assert files() == first
        other = files(2.0)
        assert matplotlib.rcParams["font.size"] == 8
    assert all(one != another for one, another in zip(first, other, strict=True))
    for written in first:
        assert b"matplotlib.org" not in written
        assert b"Date" not in written
        assert b"/Subtype /Type3" not in written


def test_the_probabilities_are_of_published_runs_and_name_no_folder() -> None:
    known = json.loads((RESULTS / "benchmarks" / "calibration_tiny.json").read_text())
    assert known.keys() <= {record.id for record in load_records([RESULTS / "runs"])}
    assert all("digits" in scores for splits in known.values() for scores in splits.values())
