"""Figures of attention: a line for each way of training, by layer, for each data set."""

from pathlib import Path

ROWS = """run,split,examples,dataset,trained,layer,masked,answer
a-s1,validation,256,needle,no masks,0,1.0,4.0
a-s1,validation,256,needle,no masks,1,0.8,2.0
a-s1,validation,256,needle,no masks,2,1.2,6.0
a-s2,validation,256,needle,no masks,0,2.0,6.0
a-s2,validation,256,needle,no masks,1,1.2,4.0
a-s2,validation,256,needle,no masks,2,2.8,8.0
b-s1,validation,256,needle,"15% masked, paper",0,0.5,9.0
b-s1,validation,256,needle,"15% masked, paper",1,0.5,
b-s1,validation,256,needle,"15% masked, paper",2,0.5,9.0
"""


def test_means_and_ranges_by_layer(draw, tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "attention.csv").write_text(ROWS)
    drawing = draw("attention", results=tmp_path)
    masked, answer = drawing.figure.axes
    assert [(line.get_label(), list(line.get_ydata())) for line in masked.lines[:2]] == [
        ("no masks", [1.0, 2.0]),
        ("15% masked, paper", [0.5, 0.5]),
    ]
    assert [list(line.get_ydata()) for line in answer.lines[:2]] == [[3.0, 7.0], [9.0]]
    assert [segment.tolist() for segment in masked.collections[0].get_segments()] == [
        [[1, 0.8], [1, 1.2]],
        [[2, 1.2], [2, 2.8]],
    ]
    assert "needle, no masks: 1.50 and 5.00; needle, 15% masked, paper: 0.50 and 9.00" in drawing.caption
    assert "over 1 to 2 seeds" in drawing.caption
