import shutil
from pathlib import Path

import numpy as np
import pytest

from ntl.config import UserError
from ntl.results.figures.costs import paper_ratios
from ntl.results.spec import PAPER_FOLDER

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
