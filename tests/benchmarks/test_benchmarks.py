"""Each benchmark runs at its smallest size, and both sides of a comparison do the same work; curves of losses."""

import csv
import json
import math
import os
import re
import runpy
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ntl import NumberTokenLoss, losses
from ntl.benchmarks import timing
from ntl.benchmarks.losses import Setting, benchmark, token_losses, totals, vocabulary_and_labels
from ntl.benchmarks.timing import launched, measure, peak_bytes, ratios
from ntl.benchmarks.training import BARE, trainer_of
from ntl.config import UserError, compose, folders
from ntl.config.loss import MTPConfig
from ntl.losses import ce_ntl, registry
from ntl.models.mtp import add_heads
from ntl.numbers import NumberVocabulary
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


def test_what_takes_long_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    ticks = iter([0.0, 2.0, 2.0, 2.5])
    monkeypatch.setattr(timing, "clock", lambda device: lambda: next(ticks))
    seconds, results = timing.in_turns({"slow": lambda: "a", "fast": lambda: "b"}, "cpu", 1)
    assert (seconds, results) == ({"slow": [2.0], "fast": [0.5]}, {"slow": ["a"], "fast": ["b"]})
    assert caplog.messages == ["turn 1/1, slow: 2.0 s"]


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


# ---- scripts/benchmark_decoding.py

decode = script("benchmark_decoding")


@pytest.mark.parametrize("settings", [{"variant": "causal"}, {"kind": "sequential"}])
@pytest.mark.slow
def test_decoding_with_drafts(settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts and answers of a small model with random heads; the times are those of one machine."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 8}
    model = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2, eos_token_id=1, pad_token_id=0)).double()
    add_heads(model, MTPConfig(heads=3, keep_depth=True, **settings))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    words = {name: index for index, name in enumerate(["<pad>", "</s>", *"abcdef"])}
    backend = Tokenizer(WordLevel(words, unk_token="a"))
    backend.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", pad_token="<pad>").save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    (asked := tmp_path / "asked.jsonl").write_text(
        "".join(f'{{"question": "{each}"}}\n' for each in ("a b c", "d", "e f"))
    )
    command = [str(tmp_path), "--questions", str(asked), "--heads", "1", "3", "--batches", "1", "2"]
    command += ["--tokens", "9", "--rounds", "2", "--dtype", "float64", "--json", "--out", str(tmp_path / "drafts.csv")]
    assert decode([*command, "--variant", settings.get("variant", "independent")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["batch"], row["heads"]) for row in rows] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for row in rows:
        assert row["answers"] == row["same_answers"] == 3
        assert (row["tokens_per_forward"] == 1.0) == (row["heads"] == 1)
    assert rows[0]["accepted_head2"] is None
    assert rows[1]["accepted_head2"] >= rows[1]["accepted_head3"] >= 0
    with pytest.raises(UserError, match="--heads 4: choose from 1 to the number of heads, 3"):
        decode([*command, "--heads", "4"])


def test_decoding_without_heads(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=8)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="no heads are stored there"):
        decode([str(tmp_path)])


# ---- a loss that is a function and a YAML, those of docs/extending.md, and the values of Figures 1b and 2

ROOT = Path(__file__).resolve().parents[2]
CURVES = runpy.run_path(str(ROOT / "scripts" / "loss_curves.py"))
DIGITS = NumberVocabulary.from_values([float("nan"), *range(10)])


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``relative.py`` and ``ntl_relative.yaml`` of the recipe, added to the tree."""
    registry.kinds()  # registers all existing losses first
    recipes = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", recipes, re.M | re.S))
    shutil.copytree(folders.CONFIG_DIR, tmp_path / "config")
    (tmp_path / "relative.py").write_text(found["src/ntl/losses/relative.py"])
    (tmp_path / "config" / "loss" / "ntl_relative.yaml").write_text(found["config/loss/ntl_relative.yaml"])
    monkeypatch.setattr(folders, "CONFIG_DIR", tmp_path / "config")
    monkeypatch.setattr(losses, "__path__", [*losses.__path__, str(tmp_path)])
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    yield
    sys.modules.pop("ntl.losses.relative", None)
    if hasattr(losses, "relative"):
        del losses.relative


def by_hand(logits: torch.Tensor, label: int) -> float:
    q = logits[1:].softmax(-1).tolist()
    return sum(mass * abs(value - label) / (label + 1) for value, mass in enumerate(q))


@pytest.mark.usefixtures("added")
def test_a_function_and_a_yaml_are_enough(tmp_path: Path) -> None:
    logits = torch.linspace(-1, 1, 11, dtype=torch.float64).sin()
    expected = by_hand(logits, 6)
    labels = torch.tensor(7)

    joint = ce_ntl(logits, labels, DIGITS, kind="relative")
    assert float(joint.number.sum) == pytest.approx(expected)
    module = NumberTokenLoss(DIGITS, shift=False, kind="gce+relative", sigma=1.5)
    assert float(module.parts(logits, labels).number.sum) == pytest.approx(expected)
    terms = loss_of(compose(["loss=relative"]).loss, DIGITS, {}).terms
    assert float(terms.number(logits, labels, DIGITS)) == pytest.approx(expected)
    assert terms.weight == 0.3

    assert "ntl_relative" in token_losses()
    rows = list(benchmark(Setting(batch=1, length=4, vocab=20), ["ntl_relative"], ["reference"], 2))
    assert {row["loss"] for row in rows} == {"ce", "ntl_relative"}
    CURVES["main"](["--losses", "ce", "ntl_relative", "--out", str(tmp_path)])
    with open(tmp_path / "losses_by_digit.csv", encoding="utf-8") as stream:
        curve = [float(row["ntl_relative"]) for row in csv.DictReader(stream)]
    drawn = torch.full((11,), 0.01, dtype=torch.float64)
    drawn[1 + 9] = 5.0
    assert curve[9] == pytest.approx(by_hand(drawn, CURVES["LABEL"]), rel=1e-5)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="kind 'was' is ntl_was already"):
        registry.register("was", losses.ntl_mse)


# ---- the values of Figures 1b and 2: those of the authors, and the committed files

WAS = [3.90381, 2.96794, 2.03206, 1.09619, 0.16032, 1.09619, 2.03206, 2.96794, 3.90381, 4.83968]


def test_by_digit_is_the_authors_curve() -> None:
    rows = CURVES["by_digit"]()
    assert [row["ntl_was"] for row in rows] == pytest.approx(WAS, abs=5e-6)
    rest = 9 * math.exp(0.01)
    for row in rows:
        logit = 5.0 if row["predicted"] == 4 else 0.01
        assert row["ce"] == pytest.approx(math.log(math.exp(5) + rest) - logit, rel=1e-5)
        mean = (math.exp(5) * row["predicted"] + math.exp(0.01) * (45 - row["predicted"])) / (math.exp(5) + rest)
        assert row["ntl_mse"] == pytest.approx((mean - 4) ** 2, rel=1e-5)


def test_by_mass_by_hand() -> None:
    rows = {(row["p3"], row["p5"]): row for row in CURVES["by_mass"](4)}
    assert len(rows) == 15
    for (p3, p5), row in rows.items():
        p4 = 1 - p3 - p5
        assert row["ce"] == (pytest.approx(-math.log(p4), abs=1e-5) if p4 else math.inf)
        assert row["ntl_mse"] == pytest.approx((p5 - p3) ** 2, abs=1e-6)
        assert row["ntl_was"] == pytest.approx(p3 + p5, abs=1e-6)
        original = math.log(sum(math.exp(5 * p) for p in (p3, p4, p5))) - 5 * p4
        assert row["ce_original"] == pytest.approx(original, abs=1e-5)


def test_the_committed_files_are_what_the_losses_give(tmp_path: Path) -> None:
    CURVES["main"](["--out", str(tmp_path)])
    for name in ("losses_by_digit.csv", "losses_by_mass.csv"):
        ours, committed = (
            list(csv.reader((folder / name).open(encoding="utf-8"))) for folder in (tmp_path, CURVES["FOLDER"])
        )
        assert ours[0] == committed[0]
        values = [[float(value) for row in rows[1:] for value in row] for rows in (ours, committed)]
        assert values[0] == pytest.approx(values[1], rel=1e-5)
