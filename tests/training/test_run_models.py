"""Whole runs of what is not a plain GPT-2: interrupted, resumed, decoded again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ntl.config import Config, compose, run_id
from ntl.data.collate import token_collator
from ntl.evaluation import extract_answer, read_predictions
from ntl.results import RunRecord, read_record
from ntl.training import run
from ntl.training.parts import RunParts
from ntl.training.predictor import predict

SMALL_MODELS = {
    "t5_tiny_regression": ["model.d_model=16", "model.num_layers=1"],
    "gpt2_tiny_regression": ["model.n_embd=16", "model.n_layer=1"],
    "granite_moe_tiny": ["model.settings.hidden_size=16", "model.settings.num_hidden_layers=1"],
    "qwen2_tiny": ["model.settings.hidden_size=16", "model.settings.num_hidden_layers=1"],
}


def _folder(config: Config) -> Path:
    return Path(config.output_dir) / run_id(config)


def _losses(config: Config) -> list[tuple[float, ...]]:
    lines = [json.loads(line) for line in (_folder(config) / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line.get("ce", 0.0), line["ntl"]) for line in lines if "loss" in line]


def _record(config: Config) -> RunRecord:
    return read_record(_folder(config) / "record.json")


@pytest.fixture
def make(settings: Callable[..., list[str]]) -> Callable[..., Config]:
    """A run of a second with the named model."""

    def compose_small(model: str, *overrides: str) -> Config:
        common = [setting for setting in settings() if not setting.startswith("model.")]
        return compose([*common, f"model={model}", *SMALL_MODELS.get(model, []), *overrides])

    return compose_small


@pytest.mark.slow
@pytest.mark.parametrize("model", SMALL_MODELS)
def test_interrupted_resumed_and_decoded_again(model: str, make, run_interrupted, tmp_path: Path) -> None:
    straight, broken = make(model), make(model, f"output_dir={tmp_path / 'broken'}")
    run(straight)
    run_interrupted(broken, 5)
    run(broken)
    assert _losses(broken) == _losses(straight)
    assert _record(broken).metrics == _record(straight).metrics
    decoded = predict(_folder(straight), say=lambda line: None)
    assert decoded.name == "predictions.jsonl"
    first, second = (read_predictions(path)[1] for path in (decoded, _folder(broken) / "predictions.jsonl"))
    # A number head's output is written to more digits than two ways to one sum have in common.
    values = [[float(extract_answer(row["prediction"]) or 0) for row in rows] for rows in (first, second)]
    assert values[0] == pytest.approx(values[1], rel=1e-4)


@pytest.mark.slow
def test_adapters_are_resumed_and_a_checkpoint_holds_the_merged_model(
    make, finished: Path, run_interrupted, tmp_path: Path
) -> None:
    base = finished / "checkpoints" / "checkpoint-12"
    lora = [f"model.path={base}", "model.pretrained=true", "model.lora.rank=2", "trainer.lr=0.05"]
    straight, broken = make("gpt2_tiny", *lora), make("gpt2_tiny", *lora, f"output_dir={tmp_path / 'broken'}")
    run(straight)
    run_interrupted(broken, 5)
    run(broken)
    assert _losses(broken) == _losses(straight)
    assert _losses(straight)[-1][1] < _losses(straight)[0][1]
    assert _record(broken).predictions_sha256 == _record(straight).predictions_sha256

    checkpoint = _folder(straight) / "checkpoints" / "checkpoint-12"
    plain, before = (AutoModelForCausalLM.from_pretrained(folder) for folder in (checkpoint, base))
    weights = plain.state_dict()
    changed = [name for name, weight in before.state_dict().items() if not torch.equal(weight, weights[name])]
    assert changed
    assert all(".attn." in name or ".mlp." in name for name in changed)
    assert len(AutoTokenizer.from_pretrained(checkpoint)) == plain.get_input_embeddings().weight.shape[0]
    assert len(predict(_folder(straight), say=lambda line: None).read_bytes()) > 1000


@pytest.mark.parametrize(
    "model", ["gpt2_tiny", *(pytest.param(name, marks=pytest.mark.slow) for name in ("t5_tiny", "granite_moe_tiny"))]
)
def test_activations_computed_twice_change_nothing(model: str, make, tmp_path: Path) -> None:
    plain = make(model, "trainer.max_steps=4", "trainer.logging_steps=1")
    again = make(model, "trainer.max_steps=4", "trainer.logging_steps=1", "trainer.gradient_checkpointing=true")
    run(plain)
    run(again)
    assert _folder(plain) != _folder(again)
    for one, other in zip(_losses(again), _losses(plain), strict=True):
        assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.slow
def test_the_router_loss_is_part_of_the_total(make) -> None:
    """total = CE + weight x NTL + coefficient x router loss, whatever the batch is divided into."""
    totals = []
    for batches in (1, 4):
        settings = [
            f"trainer.batch_size={16 // batches}",
            f"trainer.accumulation_steps={batches}",
            "trainer.logging_steps=1",
        ]
        config = make("granite_moe_tiny", *settings, "model.settings.router_aux_loss_coef=0.5", "trainer.max_steps=1")
        parts = RunParts(config, say=lambda line: None)
        trainer = parts.trainer(Path(parts.config.output_dir) / "run" / "checkpoints")
        trainer.train()
        entry = next(entry for entry in trainer.state.log_history if "loss" in entry)
        router = entry["loss"] - entry["ce"] - 0.3 * entry["ntl"]
        assert router > 0.4  # coefficient x 1 would be a perfect balance
        totals.append(router)
    # The router's own loss is not linear in the batch: nearly, not exactly, the same.
    assert totals[0] == pytest.approx(totals[1], rel=0.1)


def test_the_router_loss_by_hand(make) -> None:
    parts = RunParts(make("granite_moe_tiny"), say=lambda line: None)
    objective = parts.objective().train()
    batch = token_collator(parts.model.config, parts.tokenizer)([parts.encoded("train")[i] for i in range(4)])
    with torch.no_grad():
        found = objective(**batch)
        ids, mask = batch["input_ids"], batch["attention_mask"]
        aux = parts.model(input_ids=ids, attention_mask=mask, output_router_logits=True).aux_loss
    torch.testing.assert_close(found.aux_sum, 0.001 * aux * found.base.count)
    with torch.no_grad():
        assert objective.eval()(**batch).aux_sum.tolist() == [0] * 4
