"""Whole runs of every kind of model: interrupted, resumed, decoded again, and trained until they know 32 examples."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ntl.config import Config, compose, run_id
from ntl.data.collate import token_collator
from ntl.decoding.predictor import predict
from ntl.evaluation import extract_answer, read_predictions
from ntl.results import read_record
from ntl.runs.parts import RunParts
from ntl.system.errors import UserError
from ntl.training.objective import build_objective
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train

SMALL_MODELS = {
    "t5_tiny_regression": ["model.d_model=16", "model.num_layers=1"],
    "gpt2_tiny_regression": ["model.n_embd=16", "model.n_layer=1"],
    "granite_moe_tiny": ["model.settings.hidden_size=16", "model.settings.num_hidden_layers=1"],
    "xval_tiny": ["model.d_model=16", "model.d_ff=32", "model.num_layers=1", "model.dropout=0.1"],
    "qwen2_tiny": ["model.settings.hidden_size=16", "model.settings.num_hidden_layers=1"],
    "rt_tiny": ["model.d_model=16", "model.d_kv=8", "model.d_ff=32", "model.num_layers=1", "loss=ntl_was"],
}


def _folder(config: Config) -> Path:
    return Path(config.output_dir) / run_id(config)


def _losses(config: Config) -> list[tuple[float, ...]]:
    lines = read_metrics(_folder(config) / METRICS)
    return [(line["step"], line["loss"], line.get("ce", 0.0), line["ntl"]) for line in lines if "loss" in line]


@pytest.fixture
def make(settings: Callable[..., list[str]]) -> Callable[..., Config]:
    """A run of a second with the named model."""

    def compose_small(model: str, *overrides: str, dataset: str = "noisy_numbers") -> Config:
        common = [setting for setting in settings(dataset=dataset) if not setting.startswith("model.")]
        return compose([*common, f"model={model}", *SMALL_MODELS.get(model, []), *overrides])

    return compose_small


@pytest.mark.slow
@pytest.mark.parametrize("model", SMALL_MODELS)
def test_interrupted_resumed_and_decoded_again(model: str, make, run_interrupted, without_times, tmp_path) -> None:
    straight, broken = make(model), make(model, f"output_dir={tmp_path / 'broken'}")
    run_interrupted(broken, 5)
    paths = [train(config) for config in (straight, broken)]
    assert _losses(broken) == _losses(straight)
    records = [without_times(path) for path in paths]
    assert records[0] == records[1]
    decoded = predict(paths[0].parent)
    assert decoded.name == "predictions.jsonl"
    first, second = (read_predictions(path)[1] for path in (decoded, paths[1].with_name("predictions.jsonl")))
    # A number head's output is written to more digits than two ways to one sum have in common.
    values = [[float(extract_answer(row["prediction"]) or 0) for row in rows] for rows in (first, second)]
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    if model == "rt_tiny":
        assert "test/malformed" in records[0].metrics
        assert all(row["malformed"] >= 0 for row in first)


@pytest.mark.slow
def test_adapters_are_resumed_and_a_checkpoint_holds_the_merged_model(
    make, finished: Path, run_interrupted, tmp_path: Path
) -> None:
    base = finished / "checkpoints" / "checkpoint-12"
    lora = ["scale=tiny", "tokenizer=digit", f"model.path={base}", "model.lora.rank=2", "trainer.lr=0.05"]
    straight, broken = make("hf", *lora), make("hf", *lora, f"output_dir={tmp_path / 'broken'}")
    run_interrupted(broken, 5)
    records = [read_record(train(config)) for config in (straight, broken)]
    assert _losses(broken) == _losses(straight)
    assert _losses(straight)[-1][1] < _losses(straight)[0][1]
    assert records[0].predictions_sha256 == records[1].predictions_sha256

    checkpoint = _folder(straight) / "checkpoints" / "checkpoint-12"
    plain, before = (AutoModelForCausalLM.from_pretrained(folder) for folder in (checkpoint, base))
    weights = plain.state_dict()
    changed = [name for name, weight in before.state_dict().items() if not torch.equal(weight, weights[name])]
    assert changed
    assert all(".attn." in name or ".mlp." in name for name in changed)
    assert len(AutoTokenizer.from_pretrained(checkpoint)) == plain.get_input_embeddings().weight.shape[0]
    assert len(predict(_folder(straight)).read_bytes()) > 1000


@pytest.mark.slow
def test_activations_computed_twice_change_nothing(make) -> None:
    short = ["trainer.max_steps=4", "trainer.logging_steps=1"]
    plain, again = (make("gpt2_tiny", *short, f"trainer.gradient_checkpointing={twice}") for twice in ("false", "true"))
    assert train(plain) != train(again)
    for one, other in zip(_losses(again), _losses(plain), strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_the_router_loss_by_hand(make) -> None:
    parts = RunParts(make("granite_moe_tiny"))
    objective = build_objective(parts).train()
    batch = token_collator(parts.model.config, parts.tokenizer)([parts.encoded("train")[i] for i in range(4)])
    with torch.no_grad():
        found = objective(**batch)
        ids, mask = batch["input_ids"], batch["attention_mask"]
        aux = parts.model(input_ids=ids, attention_mask=mask, output_router_logits=True).aux_loss
    torch.testing.assert_close(found.aux_sum, 0.001 * aux * found.base.count)
    with torch.no_grad():
        assert objective.eval()(**batch).aux_sum.tolist() == [0] * 4


@pytest.mark.parametrize("model", [("gpt2_tiny", "model.n_embd=16"), ("t5_tiny", "model.d_model=16")])
@pytest.mark.slow
def test_the_expected_error_of_whole_answers_trains(model: tuple[str, str], make) -> None:
    often = ["trainer.max_steps=3", "trainer.logging_steps=1", "trainer.eval_steps=3"]
    config = make(*model, "loss=expected_error", *often)
    curves = read_record(train(config)).curves
    for _, loss, ce, error in _losses(config):
        assert loss == pytest.approx(ce + 0.1 * error, rel=1e-3)
        assert error > 1
    loss, ce, error = (curves[f"eval_{name}"][-1][1] for name in ("loss", "ce", "ntl"))
    assert loss == pytest.approx(ce + 0.1 * error, rel=1e-3)
    config = make(*model, "loss=expected_error", "objective.grid=[0.125]", "trainer.max_steps=1")
    with pytest.raises(UserError, match=r"objective.num_beams=16 objective.grid: an example has no number"):
        train(config)
