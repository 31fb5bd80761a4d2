"""The figure of the implementations shows the rows of its setting, in one order, by shape."""

from pathlib import Path

import numpy as np
import pytest

from ntl.config import UserError

HEADER = (
    "device,dtype,batch,length,vocab,share,threads,heap,part,rounds,loss,ratio,ratio_low,ratio_high,peak_mib,logits_mib"
)


def table(folder: Path) -> Path:
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
    (folder / "benchmarks" / "implementations.csv").write_text("\n".join(["# versions", HEADER, *rows]) + "\n")
    return folder


def test_its_setting_alone(draw, tmp_path: Path) -> None:
    drawing = draw("implementations", results=table(tmp_path))
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
