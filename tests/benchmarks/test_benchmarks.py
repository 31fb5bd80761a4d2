"""Each benchmark runs at its smallest size, and both sides of a comparison do the same work."""

import csv
import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from ntl.benchmarks import data, training
from ntl.benchmarks.losses import Setting, losses_of, run_case, vocabulary_and_labels
from ntl.benchmarks.timing import measure, peak_bytes, ratios
from ntl.config import UserError, compose
from ntl.data.encoded import EncodedDataset
from ntl.system.machine import available_cores
from ntl.tokenizers import train_tokenizer

SMALL = Setting(batch=2, length=8, vocab=100)
TINY = ["dataset=noisy_numbers", "dataset.train_rows=64", "trainer.batch_size=8", "model.n_embd=8", "device=cpu"]
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
    [(["--losses", "nlt_was"], "--losses nlt_was: choose from ce, "), (["--rounds", "1"], "--rounds 1")],
)
def test_bad_input_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        script("benchmark_losses")([*ARGUMENTS, *arguments])


# ---- implementations


def test_implementations_of_one_loss_agree() -> None:
    torch.manual_seed(0)
    found = {name: loss().item() for name, loss in losses_of(SMALL, ("ce", "crps"))[1].items()}
    was = found["was reference"]
    assert found["was fused"] == found["was in place"] == pytest.approx(was, rel=1e-5)
    assert found["ce fused"] == pytest.approx(found["ce"], rel=1e-5)


def test_implementations_from_hidden_states_agree() -> None:
    torch.manual_seed(0)
    found = {name: loss().item() for name, loss in losses_of(SMALL, ignored=0.5)[1].items() if name != "was linear"}
    assert found == {name: pytest.approx(found["ce"], rel=1e-5) for name in found}


@pytest.mark.parametrize(("part", "ignored"), [("loss", None), ("linear", 0.5)])
def test_a_case(part: str, ignored: float | None) -> None:
    rows = list(run_case(SMALL, 3, ignored=ignored))
    assert (rows[0]["loss"], rows[0]["part"], rows[0]["ratio"]) == ("ce", part, 1)
    assert all(row["peak_mib"] >= 0 and row["rounds"] == 3 for row in rows)


# ---- training


def test_both_sides_train_the_same_batches_to_the_same_loss(tmp_path: Path) -> None:
    settings = [*TINY, "loss=ce", "trainer.max_steps=3", "trainer.save_steps=0", "scale=tiny"]
    config = compose([*settings, f"output_dir={tmp_path}", f"data_dir={tmp_path}"])
    found = []
    for side in (training.ours, training.bare):
        trainer = side(config, tmp_path, training.Clock())
        trainer.train()
        found.append(trainer.state.log_history[-1]["train_loss"])
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.slow
def test_training() -> None:
    result = training.compare(TINY, steps=6, rounds=2)
    assert (result["model"], result["loss"], result["steps"], result["rounds"]) == ("gpt2_tiny", "ntl_was", 6, 2)
    assert 0.05 < result["speed_ratio"] < 20


# ---- data


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    texts = [text for pair in data.made_up_pairs(2000) for text in pair.values()]
    train_tokenizer(texts, tmp_path / "tokenizer", kind="digit", vocab_size=200)
    return str(tmp_path / "tokenizer")


def test_the_same_ids_as_datasets_map(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import Dataset

    made: list[Dataset] = []
    original = Dataset.map

    def kept(self: Dataset, *args: object, **kwargs: object) -> Dataset:
        made.append(original(self, *args, **kwargs))
        return made[-1]

    monkeypatch.setattr(Dataset, "map", kept)
    data.map_datasets(6, tokenizer, str(tmp_path))
    data.tokenize(6, tokenizer, str(tmp_path / "ours"))
    (file,) = (tmp_path / "ours").rglob("ids.arrow")
    ours = EncodedDataset(file.parent)
    assert [row["question_ids"].tolist() for row in ours] == made[0]["input_ids"][:]
    assert [row["answer_ids"].tolist() for row in ours] == made[0]["labels"][:]


@pytest.mark.soak
def test_data(tmp_path: Path, tokenizer: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    table = tmp_path / "a.csv"
    assert (
        script("benchmark_data")(
            ["--pairs", "80", "--tokenizer", tokenizer, "--scratch", str(scratch), "--out", str(table)]
        )
        == 0
    )
    rows = rows_of(table)
    assert [row["stage"] for row in rows] == ["tokenize", "datasets.map, threads"]
    assert rows[0]["pairs"] == "80"
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert list(scratch.iterdir()) == []
