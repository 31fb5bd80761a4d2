"""Figure 3 shows the ratios at the share it names, beside the paper's."""

import shutil
from pathlib import Path

import numpy as np

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
