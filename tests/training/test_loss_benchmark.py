"""The benchmark of the losses: real number labels, and what is timed is what is named."""

import csv
import json
import math
from pathlib import Path

import pytest
import torch

from ntl.config import UserError
from ntl.config.target import locate
from ntl.training import loss_benchmark as module
from ntl.training.loss_benchmark import (
    Setting,
    benchmark,
    draw_labels,
    loss_calls,
    main,
    number_vocabulary,
    step_calls,
    token_losses,
)
from ntl.training.objectives.terms import LossTerms
from ntl.training.turns import peak_bytes

SMALL = Setting(batch=2, length=8, vocab=100)
WAS = LossTerms(locate("ntl.losses.cross_entropy"), locate("ntl.losses.ntl_was"), 0.3)
CE = LossTerms(locate("ntl.losses.cross_entropy"), None, 0.3)


def test_every_loss_on_tokens_is_known_and_the_baseline_is_first() -> None:
    names = token_losses()
    assert names[0] == "ce"
    assert {"ntl_was", "ntl_was_cdf", "gce_ntl_was", "ce_digits"} <= set(names)
    assert "mse" not in names


@pytest.mark.parametrize(("share", "count"), [(0.8, 13), (0.1, 2), (0.0, 0), (1.0, 16)])
def test_the_share_of_number_labels_is_exact(share: float, count: int) -> None:
    vocab = number_vocabulary(100)
    assert vocab.token_values.tolist() == list(range(10))
    labels = draw_labels(Setting(batch=2, length=8, vocab=100, share=share), vocab)
    assert labels.shape == (2, 8)
    assert int((~vocab.values[labels].isnan()).sum()) == count


def test_parts_compute_what_they_are_named_after() -> None:
    terms = {"ce": CE, "ntl_was": WAS}
    losses = {}
    for part in ("forward", "number term"):
        torch.manual_seed(0)
        losses[part] = {name: call().item() for name, call in loss_calls(SMALL, terms, part).items()}
    assert losses["forward"]["ntl_was"] == pytest.approx(
        losses["forward"]["ce"] + 0.3 * losses["number term"]["ntl_was"], rel=1e-6
    )
    assert losses["number term"]["ce"] == losses["forward"]["ce"]
    gce = LossTerms(locate("ntl.losses.gaussian_cross_entropy"), None, 0.3)
    assert list(loss_calls(SMALL, {**terms, "gce": gce}, "number term")) == ["ce", "ntl_was"]


def test_a_step_moves_the_shared_model(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    kind = module.GPT2LMHeadModel
    monkeypatch.setattr(module, "GPT2LMHeadModel", lambda config: made.append(kind(config)) or made[-1])
    calls = step_calls(SMALL, {"ce": CE, "ntl_was": WAS})
    (model,) = made
    for call in calls.values():
        before = model.lm_head.weight.detach().clone()
        call()
        assert not torch.equal(model.lm_head.weight, before)
        assert all(parameter.grad is None for parameter in model.parameters())


def test_cross_entropy_holds_three_times_its_logits() -> None:
    setting = Setting(batch=4, length=16, vocab=2000)
    call = loss_calls(setting, {"ce": CE}, "forward+backward")["ce"]
    call()
    assert peak_bytes(call, "cpu") / (4 * 16 * 2000 * 4) == pytest.approx(3, abs=0.05)


def test_a_whole_benchmark_as_csv_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--batch", "2", "--length", "8", "--vocab", "100", "--rounds", "2", "--shares", "0.8"]
    main([*sizes, "--losses", "ntl_was", "--json", "--out", str(tmp_path / "a.csv")])
    rows = json.loads(capsys.readouterr().out)
    parts = ["forward", "forward+backward", "number term", "training step"]
    assert [(row["part"], row["loss"]) for row in rows] == [
        (part, loss) for part in parts for loss in ("ce", "ntl_was")
    ]
    assert all(row["ratio"] > 0 and math.isfinite(row["peak_mib"]) for row in rows)
    assert [row["ratio"] for row in rows if row["loss"] == "ce"] == [1.0] * 4
    remark, *lines = (tmp_path / "a.csv").read_text().splitlines()
    assert remark.startswith("# Python 3")
    assert [row["loss"] for row in csv.DictReader(lines)] == [row["loss"] for row in rows]
    main([*sizes, "--losses", "ce"])
    assert "1.000 x CE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "losses", "rounds", "message"),
    [
        (SMALL, ["nlt_was"], 2, "--losses nlt_was: choose from ce, "),
        (SMALL, ["ce"], 1, "--rounds 1"),
        (Setting(vocab=5), ["ce"], 2, "--vocab 5"),
        (Setting(share=1.5), ["ce"], 2, "--shares 1.5"),
    ],
)
def test_bad_input_is_one_line(setting: Setting, losses: list[str], rounds: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(benchmark(setting, losses, rounds))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_one_line() -> None:
    with pytest.raises(UserError, match="--device cuda"):
        list(benchmark(Setting(device="cuda"), ["ce"], 2))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu() -> None:
    rows = list(benchmark(Setting(device="cuda", batch=2, length=8, vocab=1000), ["ntl_was"], 2))
    assert all(row["seconds"] > 0 and row["peak_mib"] > 0 and row["threads"] is None for row in rows)
