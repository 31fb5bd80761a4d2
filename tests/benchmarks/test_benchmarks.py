"""Each benchmark runs at its smallest size, and both sides of a comparison do the same work."""

import csv
import json
import os
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ntl.benchmarks import timing
from ntl.benchmarks.losses import Setting, benchmark, totals, vocabulary_and_labels
from ntl.benchmarks.timing import launched, measure, peak_bytes, ratios
from ntl.benchmarks.training import BARE, trainer_of
from ntl.config import UserError, compose
from ntl.objectives.next_token import loss_of
from ntl.system.machine import available_cores

SMALL = Setting(batch=2, length=8, vocab=100)
TINY = ["dataset=noisy_numbers", "dataset.train_rows=64", "trainer.batch_size=8", "model.n_embd=8"]
ARGUMENTS = ["--batch", "2", "--length", "8", "--vocab", "100", "--rounds", "2"]


def script(name: str) -> Any:
    return runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / f"{name}.py"))["main"]


def rows_of(path: Path) -> list[dict[str, str]]:
    remark, *lines = path.read_text().splitlines()
    assert remark.startswith("# Python 3")
    assert f", {available_cores()} cores, " in remark
    assert os.uname().nodename not in remark.split(", ")
    return list(csv.DictReader(lines))


# ---- time and memory


def test_launched_operators_by_hand() -> None:
    values = torch.ones(3)
    assert launched(lambda: values.add_(values).mul_(values), "cpu") == {"operators": 2}


def test_peak_memory_by_hand() -> None:
    # 1,000 floats and then 500 doubles; the floats are freed before the last 250 floats are allocated.
    def call() -> None:
        first = torch.empty(1000)
        second = torch.empty(500, dtype=torch.float64)
        del first
        torch.empty(250)
        del second

    assert peak_bytes(call, "cpu") == pytest.approx(8000, abs=128)


def test_ratios_are_taken_within_a_turn() -> None:
    # The ratios are 2, 2 and 2.5: a turn that is ten times as slow for both is no outlier.
    found = ratios([2.0, 20.0, 5.0], [1.0, 10.0, 2.0])
    assert found == {"ratio": 2.0, "ratio_low": 2.0, "ratio_high": 2.25}
    (ce, row), (was, _) = measure({"ce": lambda: None, "ntl_was": lambda: None}, "cpu", 2)
    assert (ce, was, row["ratio"]) == ("ce", "ntl_was", 1.0)


def test_what_takes_long_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ticks = iter([0.0, 2.0, 2.0, 2.5])
    monkeypatch.setattr(timing, "clock", lambda device: lambda: next(ticks))
    seconds, results = timing.in_turns({"slow": lambda: "a", "fast": lambda: "b"}, "cpu", 1)
    assert (seconds, results) == ({"slow": [2.0], "fast": [0.5]}, {"slow": ["a"], "fast": ["b"]})
    assert capsys.readouterr() == ("", "turn 1/1, slow: 2.0 s\n")


# ---- losses


@pytest.mark.parametrize(("share", "count"), [(0.8, 13), (0.0, 0)])
def test_the_share_of_number_labels_is_exact(share: float, count: int) -> None:
    vocab, labels = vocabulary_and_labels(Setting(batch=2, length=8, vocab=100, share=share))
    assert labels.shape == (2, 8)
    assert int((~vocab.values[labels].isnan()).sum()) == count


def test_losses_as_table_csv_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script("benchmark_losses")(
        [*ARGUMENTS, "--shares", "0.8", "--losses", "ntl_was", "--json", "--out", str(tmp_path / "a.csv")]
    )
    rows = json.loads(capsys.readouterr().out)
    parts = ["forward", "forward+backward", "training step"]
    assert [(row["part"], row["loss"]) for row in rows] == [
        (part, loss) for part in parts for loss in ("ce", "ntl_was")
    ]
    assert [row["ratio"] for row in rows if row["loss"] == "ce"] == [1.0] * 3
    assert [row["loss"] for row in rows_of(tmp_path / "a.csv")] == [row["loss"] for row in rows]
    script("benchmark_losses")([*ARGUMENTS, "--shares", "0.8", "--losses", "ntl_was"])
    title, common, header, *lines = capsys.readouterr().out.splitlines()
    assert title == "Ratios to CE of the same turn, with quartiles"
    assert "device=cpu, dtype=float32, batch=2, length=8" in common
    assert header.split()[:4] == ["part", "loss", "seconds", "ratio"]
    assert [line.split()[-6] for line in lines] == ["ce", "ntl_was"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--losses", "nlt_was"], "--losses nlt_was: choose from ce, "),
        (["--rounds", "1"], "--rounds 1"),
        (["--ignored", "1"], "--ignored 1.0: at least 20, and shares between 0 and 1"),
        (["--hidden", "16", "--implementations", "inplace"], "--implementations inplace: writes over logits"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        script("benchmark_losses")([*ARGUMENTS, *arguments])


# ---- implementations


def totals_of(setting: Setting, losses: Sequence[str]) -> dict[str, float]:
    torch.manual_seed(0)
    vocab, labels = vocabulary_and_labels(setting)
    chosen = {
        f"{loss} {how}": (how, loss_of(compose([f"loss={loss}"]).loss, vocab, {}))
        for loss in losses
        for how in ("reference", "fused")
    }
    return {name: total().item() for name, total in totals(setting, chosen, vocab, labels)[1].items()}


@pytest.mark.parametrize("setting", [SMALL, replace(SMALL, hidden=16, ignored=0.5)])
def test_implementations_agree_and_cross_entropy_is_torch_s(setting: Setting) -> None:
    found = totals_of(setting, ["ce", "ntl_was", "ntl_crps"])
    for loss in ("ce", "ntl_was", "ntl_crps"):
        assert found[f"{loss} fused"] == pytest.approx(found[f"{loss} reference"], rel=1e-5)
    assert found["ce reference"] == pytest.approx(found["ce"], rel=1e-5)
    assert found["ntl_was reference"] > found["ce"]


def test_a_loss_without_a_fused_form_has_its_reference_alone() -> None:
    rows = list(benchmark(SMALL, ["ntl_was", "emo"], ["reference", "fused", "inplace"], 2))
    losses = ["ce", "ntl_was", "emo", "ntl_was fused", "ntl_was inplace"]
    parts = {"forward": losses, "forward+backward": losses, "training step": losses[:-1]}
    assert [(row["part"], row["loss"]) for row in rows] == [(part, loss) for part in parts for loss in parts[part]]
    assert all(row["peak_mib"] >= 0 for row in rows)
    from_hidden = benchmark(replace(SMALL, hidden=16), ["ntl_was"], ["fused"], 2)
    assert [row["loss"] for row in from_hidden if not row["loss"].startswith("torch")] == ["ce", "ntl_was fused"] * 2


# ---- training


def test_both_sides_train_the_same_batches_to_the_same_loss(tmp_path: Path) -> None:
    fixed = [*TINY, "trainer.max_steps=3", "trainer.save_steps=0", "scale=tiny"]
    fixed += [f"output_dir={tmp_path}", f"data_dir={tmp_path}"]
    trainers = [trainer_of(row, fixed, tmp_path, max_steps=3) for row in ("loss=ce", BARE)]
    for trainer in trainers:
        trainer.train()
    ours, bare = (trainer.state.log_history[-1]["train_loss"] for trainer in trainers)
    assert ours == pytest.approx(bare, rel=1e-4)


@pytest.mark.slow
def test_rows_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["loss=ce", "loss=ce objective=mtp objective.heads=2", "loss=ce objective.mask.fraction=0.15"]
    assert script("benchmark_training")([*rows, "--steps", "6", "--rounds", "2", "--json", "--all", *TINY]) is None
    found = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in found] == rows
    assert 50 < found[0]["operators"] < found[1]["operators"]  # of one step
    assert (found[0]["ratio"], found[0]["peak_ratio"]) == (1.0, 1.0)
    assert all(0.05 < row["ratio"] < 20 and row["peak_mib"] > 0 for row in found)
