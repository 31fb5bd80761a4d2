"""Figures 1b and 2 show the committed numbers at their places; Figure 3 the costs that were measured."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from ntl.config import UserError
from ntl.results.figures.losses import paper_ratios
from ntl.results.spec import PAPER_FOLDER


def test_curves_by_digit(draw) -> None:
    (axes,) = draw("figure1b").figure.axes
    ce, mse, was = (np.asarray(line.get_ydata(), dtype=float) for line in axes.lines[:3])
    assert was == pytest.approx(
        [3.90381, 2.96794, 2.03206, 1.09619, 0.16032, 1.09619, 2.03206, 2.96794, 3.90381, 4.83968], abs=5e-6
    )
    assert np.ptp(np.delete(ce, 4)) == 0
    # Half of the squared distance of the mean: all but a little of the mass is on the digit.
    assert mse[0] == pytest.approx(0.5 * 13.7746)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["CE", "NTL-MSE × 0.5", "NTL-WAS"]  # type: ignore[union-attr]


def test_a_cell_of_the_heat_maps_is_row_p5_column_p3(draw, tmp_path: Path) -> None:
    rows = ["p3,p5,ce,ntl_mse,ntl_was,ce_original"]
    cells = [(a, b) for a in range(3) for b in range(3 - a)]
    rows += [f"{a / 2},{b / 2},{a},{b},{10 * a + b},0" for a, b in cells]
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "losses_by_mass.csv").write_text("\n".join(rows) + "\n")
    panels = [axes for axes in draw("figure2", results=tmp_path).figure.axes if axes.images]
    shown = [np.ma.filled(axes.images[0].get_array(), np.nan) for axes in panels]
    nan = np.nan
    np.testing.assert_array_equal(shown[0], [[0, 1, 2], [0, 1, nan], [0, nan, nan]])
    np.testing.assert_array_equal(shown[1], [[0, 0, 0], [1, 1, nan], [2, nan, nan]])
    np.testing.assert_array_equal(shown[2], [[0, 10, 20], [1, 11, nan], [2, nan, nan]])


def test_the_grid_of_the_committed_file_is_a_triangle(draw) -> None:
    image = next(axes.images[0] for axes in draw("figure2").figure.axes if axes.images)
    there = ~np.isnan(np.ma.filled(image.get_array(), np.nan))
    assert there.shape == (51, 51)
    np.testing.assert_array_equal(there, np.add.outer(range(51), range(51)) <= 50)


HEADER = "device,dtype,batch,length,vocab,share,threads,part,rounds,loss,seconds,ratio,ratio_low,ratio_high,peak_mib"


def table(folder: Path, threads: str = "1") -> Path:
    rows = [
        f"cpu,float32,2,4,8192,{share},{threads},{part},5,{loss},0.1,{ratio + (share == 0.1)},{ratio},{ratio},{memory}"
        for share in (0.8, 0.1)
        for part in ("forward", "forward+backward", "number term", "training step")
        for loss, ratio, memory in (("ce", 1.0, 3), ("zzz", 7.0, 5), ("ntl_was_cdf", 2.5, 4))
    ]
    (folder / "benchmarks").mkdir(exist_ok=True)
    (folder / "benchmarks" / "losses.csv").write_text("\n".join(["# versions", HEADER, *rows]) + "\n")
    (folder / "paper").mkdir(exist_ok=True)
    shutil.copy(PAPER_FOLDER / "figure3.yaml", folder / "paper")
    return folder


def test_ratios_memory_and_the_paper(draw, tmp_path: Path) -> None:
    drawing = draw("figure3", results=table(tmp_path))
    forward, _, step, memory = drawing.figure.axes
    ours, paper = forward.lines[:2]
    assert dict(zip(np.asarray(ours.get_ydata()), np.asarray(ours.get_xdata()), strict=True)) == {0: 1, 2: 7, 1: 2.5}
    assert (list(paper.get_ydata()), list(paper.get_xdata())) == ([1], [2.86])  # type: ignore[arg-type]
    assert list(step.lines[1].get_xdata()) == [1.044]  # type: ignore[arg-type]
    assert [bar.get_width() for bar in memory.patches] == [3, 5, 4]  # type: ignore[attr-defined]
    assert [label.get_text() for label in forward.get_yticklabels()] == ["CE", "NTL-WAS-CDF", "zzz"]


def test_the_caption_says_what_was_measured(draw, tmp_path: Path) -> None:
    caption = draw("figure3", results=table(tmp_path)).caption
    assert "CPU, 1 thread, logits 2 × 4 × 8,192 in float32 (0 MiB)" in caption
    assert "quartiles of 5 turns" in caption
    assert "one CPU, logits" in draw("figure3", results=table(tmp_path, threads="")).caption


def test_an_overhead_is_a_ratio_above_one() -> None:
    # The paper prints 1 %, 2.9 % and 4.4 % of overhead; its 286 % is a ratio.
    assert paper_ratios(PAPER_FOLDER / "figure3.yaml") == {
        "forward": {"ntl_was": 1.01, "ntl_mse": 1.029, "ntl_was_cdf": 2.86},
        "training step": {"ntl_was_cdf": 1.044},
    }


IMPLEMENTATIONS_HEADER = (
    "device,dtype,batch,length,vocab,share,threads,heap,part,rounds,loss,ratio,ratio_low,ratio_high,peak_mib,logits_mib"
)


def implementations_table(folder: Path) -> Path:
    rows = []
    for vocab in (100, 200):
        for dtype in ("float32", "bfloat16"):
            half = dtype == "bfloat16"
            for loss, ratio in (("ce", 1.0), ("was fused", 0.4 + half), ("mse fused", 9.0), ("ntloss", vocab / 100)):
                rows.append(f"cpu,{dtype},2,4,{vocab},0.8,1,cold,loss,7,{loss},{ratio},{ratio},{ratio},{ratio * 10},10")
    rows.append("cpu,float32,2,4,100,0.8,2,cold,loss,7,ce,5,5,5,5,5")
    rows.append("cpu,float32,2,4,100,0.8,1,warm,loss,7,ce,6,6,6,6,6")
    rows.append("cpu,float32,2,4,100,0.015,1,cold,loss,7,ce,7,7,7,7,7")
    rows.append("cpu,float32,2,4,100,0.8,1,cold,linear,7,ce,8,8,8,8,8")
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "implementations.csv").write_text(
        "\n".join(["# versions", IMPLEMENTATIONS_HEADER, *rows]) + "\n"
    )
    return folder


def test_its_setting_alone(draw, tmp_path: Path) -> None:
    drawing = draw("implementations", results=implementations_table(tmp_path))
    single, half, memory = drawing.figure.axes
    labels = [label.get_text() for label in single.get_yticklabels()]
    assert labels == ["torch CE alone", "fused", "ntloss"]
    for axes, fused in ((single, 0.4), (half, 1.4), (memory, 0.4)):
        shown = [(np.round(line.get_ydata()), line.get_xdata(), line.get_label()) for line in axes.lines[:2]]
        assert [list(values) for _, values, _ in shown] == [[1.0, fused, 1.0], [1.0, fused, 2.0]]
        assert [list(places) for places, _, _ in shown] == [[0, 1, 2]] * 2
        assert [name for _, _, name in shown] == ["2 × 4 × 100", "2 × 4 × 200"]
    assert "up to 7 turns, CPU, one thread, a cold heap" in drawing.caption


def test_without_the_benchmark(draw, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"implementations\.csv: cannot be read"):
        draw("implementations", results=tmp_path)


def test_drafts_by_head_and_batch(draw, tmp_path: Path) -> None:
    header = "device,width,layers,rounds,batch,heads,tokens_per_forward,accepted_head2,accepted_head3,speedup,"
    rows = [
        f"cpu,64,4,5,{batch},{heads},{heads - 0.5},{0.75 if heads > 1 else ''},{0.25 if heads == 3 else ''},"
        f"{heads / batch},{heads / batch - 0.1},{heads / batch + 0.1}"
        for batch in (1, 2)
        for heads in (1, 3)
    ]
    (tmp_path / "benchmarks").mkdir()
    lines = ["# versions", f"{header}speedup_low,speedup_high", *rows]
    (tmp_path / "benchmarks" / "speculative.csv").write_text("\n".join(lines) + "\n")
    drawing = draw("speculative", results=tmp_path)
    tokens, kept, speed = drawing.figure.axes
    assert [list(line.get_ydata()) for line in tokens.lines] == [[0.5, 2.5]] * 2
    assert [list(line.get_ydata()) for line in kept.lines] == [[0.75, 0.25]] * 2
    assert [list(line.get_ydata()) for line in speed.lines[:2]] == [[1, 3], [0.5, 1.5]]
    assert "a Llama of 4 blocks 64 wide" in drawing.caption
    assert "on a CPU, one thread" in drawing.caption


def test_steps_by_heads_and_form(draw, tmp_path: Path) -> None:
    header = "device,vocab,width,layers,rounds,implementation,form,heads,ratio,ratio_low,ratio_high,peak_ratio"
    rows = [
        f"cpu,8192,64,4,5,linear,{form},{heads},{heads / 2},{heads / 4},{heads},{slope * heads}"
        for form, slope in (("next token", 9), ("one at a time", 0.5), ("together", 2))
        for heads in (1, 3)
    ]
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "mtp.csv").write_text("\n".join(["# versions", header, *rows]) + "\n")
    drawing = draw("heads", results=tmp_path)
    time, memory = drawing.figure.axes
    assert [list(line.get_ydata()) for line in time.lines[:2]] == [[0.5, 1.5]] * 2
    assert [list(line.get_ydata()) for line in memory.lines[:2]] == [[0.5, 1.5], [2, 6]]
    assert [line.get_label() for line in time.lines[:2]] == ["linear, one at a time", "linear, together"]
    assert "a Llama of 4 blocks 64 wide with 8,192 tokens" in drawing.caption
