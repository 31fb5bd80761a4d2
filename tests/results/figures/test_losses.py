"""Figures 1b and 2 show the committed numbers at their places; Figure 3 and that of drafts what was measured."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ntl.config import UserError
from ntl.results.spec import PAPER_FOLDER


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def test_curves_by_digit(draw, points) -> None:
    (axes,) = draw("figure1b").figure.axes
    ce, mse, was = (np.array(y) for _, y in points(axes)[:3])
    assert was == pytest.approx(
        [3.90381, 2.96794, 2.03206, 1.09619, 0.16032, 1.09619, 2.03206, 2.96794, 3.90381, 4.83968], abs=5e-6
    )
    assert np.ptp(np.delete(ce, 4)) == 0
    # Half of the squared distance of the mean: all but a little of the mass is on the digit.
    assert mse[0] == pytest.approx(0.5 * 13.7746)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["CE", "NTL-MSE × 0.5", "NTL-WAS"]


def test_a_cell_of_the_heat_maps_is_row_p5_column_p3(draw, tmp_path: Path) -> None:
    cells = [(a, b) for a in range(3) for b in range(3 - a)]
    rows = [f"{a / 2},{b / 2},{a},{b},{10 * a + b},0" for a, b in cells]
    write(tmp_path / "figures" / "losses_by_mass.csv", "p3,p5,ce,ntl_mse,ntl_was,ce_original", *rows)
    panels = [axes for axes in draw("figure2", results=tmp_path).figure.axes if axes.images]
    shown = [np.ma.filled(axes.images[0].get_array(), np.nan) for axes in panels]
    nan = np.nan
    np.testing.assert_array_equal(shown[0], [[0, 1, 2], [0, 1, nan], [0, nan, nan]])
    np.testing.assert_array_equal(shown[1], [[0, 0, 0], [1, 1, nan], [2, nan, nan]])
    np.testing.assert_array_equal(shown[2], [[0, 10, 20], [1, 11, nan], [2, nan, nan]])


def test_ratios_memory_and_the_paper(draw, points, tmp_path: Path) -> None:
    header = "device,dtype,batch,length,vocab,share,threads,part,rounds,loss,ratio,ratio_low,ratio_high,peak_mib"
    rows = [
        f"cpu,float32,2,4,8192,{share},1,{part},5,{loss},{ratio + (share == 0.1)},{ratio},{ratio},{memory}"
        for share in (0.8, 0.1)
        for part in ("forward", "forward+backward", "number term", "training step")
        for loss, ratio, memory in (("ce", 1.0, 3), ("ntl_was", 2.0, 6), ("ntl_mse", 7.0, 5), ("ntl_was_cdf", 2.5, 4))
    ]
    write(tmp_path / "benchmarks" / "losses.csv", "# versions", header, *rows)
    (tmp_path / "paper").mkdir()
    shutil.copy(PAPER_FOLDER / "figure3.yaml", tmp_path / "paper")
    drawing = draw("figure3", results=tmp_path)
    forward, _, step, memory = drawing.figure.axes
    assert points(forward)[:2] == [[[1, 2, 7, 2.5], [0, 1, 2, 3]], [[1.01, 1.029, 2.86], [1, 2, 3]]]
    assert points(step)[1][0] == [1.044]
    assert [bar.get_width() for bar in memory.patches] == [3, 6, 5, 4]
    assert [label.get_text() for label in forward.get_yticklabels()] == ["CE", "NTL-WAS", "NTL-MSE", "NTL-WAS-CDF"]
    assert "CPU, 1 thread, logits 2 × 4 × 8,192 in float32 (0 MiB)" in drawing.caption
    assert "quartiles of 5 turns" in drawing.caption


def test_drafts_by_head_and_batch(draw, points, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*speculative\.csv"):
        draw("speculative", results=tmp_path)
    header = (
        "device,width,layers,rounds,batch,heads,tokens_per_forward,accepted_head2,accepted_head3,speedup,"
        "speedup_low,speedup_high"
    )
    rows = [
        f"cpu,64,4,5,{batch},{heads},{heads - 0.5},{0.75 if heads > 1 else ''},{0.25 if heads == 3 else ''},"
        f"{heads / batch},{heads / batch - 0.1},{heads / batch + 0.1}"
        for batch in (1, 2)
        for heads in (1, 3)
    ]
    write(tmp_path / "benchmarks" / "speculative.csv", "# versions", header, *rows)
    drawing = draw("speculative", results=tmp_path)

    def heights(axes) -> Sequence[Sequence[float]]:
        return [y for _, y in points(axes)][:2]

    tokens, kept, speed = drawing.figure.axes
    assert heights(tokens) == [[0.5, 2.5]] * 2
    assert heights(kept) == [[0.75, 0.25]] * 2
    assert heights(speed) == [[1, 3], [0.5, 1.5]]
    assert "a Llama of 4 blocks 64 wide" in drawing.caption
    assert "on a CPU, one thread" in drawing.caption
