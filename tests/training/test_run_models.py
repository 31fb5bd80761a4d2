"""Whole runs of every kind of model: interrupted, resumed, decoded again, and trained until they know 32 examples."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ntl.config import Config, UserError, compose, run_id
from ntl.data.collate import token_collator
from ntl.decoding import decode
from ntl.evaluation import extract_answer, read_predictions
from ntl.results import RunRecord, read_record
from ntl.training import run
from ntl.training.decode import check_lengths, decode_splits, restore
from ntl.training.parts import RunParts
from ntl.training.predictor import predict
from ntl.training.trainer import ObjectiveTrainer

SMALL_MODELS = {
    "t5_tiny_regression": ["model.d_model=16", "model.num_layers=1"],
    "gpt2_tiny_regression": ["model.n_embd=16", "model.n_layer=1"],
    "granite_moe_tiny": ["model.settings.hidden_size=16", "model.settings.num_hidden_layers=1"],
    "xval_tiny": ["model.d_model=16", "model.d_ff=32", "model.num_layers=1", "model.dropout=0.1"],
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
    records = [_record(config) for config in (straight, broken)]
    assert records[0].metrics == records[1].metrics
    assert records[0].curves == records[1].curves
    assert records[0].predictions_sha256 == records[1].predictions_sha256
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


RT = ["model=rt_tiny", "model.d_model=16", "model.d_kv=8", "model.d_ff=32", "model.num_layers=1", "loss=ntl_was"]
RT_STEPS = ["trainer.max_steps=6", "trainer.save_steps=3", "dataset.test_rows_per_cell=1", "decoding=greedy"]


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = [line for line in settings(dataset="multiplication") if not line.startswith("model.")]
    straight = read_record(run(compose([*shared, *RT, *RT_STEPS])))
    assert {"interpolate/malformed", "extrapolate/malformed"} <= set(straight.metrics)

    config = compose([*shared, *RT, *RT_STEPS, f"output_dir={tmp_path / 'killed'}"])
    original = ObjectiveTrainer.training_step

    def killed(self, *args, **kwargs):
        if self.state.global_step == 4:
            raise RuntimeError("killed")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ObjectiveTrainer, "training_step", killed)
    with pytest.raises(RuntimeError, match="killed"):
        run(config)
    monkeypatch.setattr(ObjectiveTrainer, "training_step", original)
    continued = read_record(run(config))
    assert continued.metrics == straight.metrics
    assert continued.predictions_sha256 == straight.predictions_sha256

    folder = Path(config.output_dir) / run_id(config)
    rows = read_predictions(folder / "predictions.jsonl")[1]
    assert all(row["malformed"] >= 0 for row in rows)
    session, checkpoint = restore(folder)
    assert checkpoint.name == "checkpoint-6"
    decode_splits(session, session.dataset.test_splits, tmp_path / "again.jsonl")
    assert read_predictions(tmp_path / "again.jsonl")[1] == rows


XVAL = ["model=xval_tiny", "model.d_model=16", "model.d_ff=32", "model.num_layers=1"]
XVAL_STEPS = ["trainer.batch_size=16", "trainer.max_steps=8", "trainer.save_steps=4", "trainer.logging_steps=2"]


@pytest.fixture
def xval(small: Callable[..., Config]) -> Callable[..., Config]:
    """``small`` for xVal: its settings of a decoder are not xVal's."""

    def make(*overrides: str, rows: tuple[int, int, int] = (48, 8, 12), shape: Sequence[str] = XVAL) -> Config:
        base = small()
        names = ("train_rows", "validation_rows", "test_rows")
        data = ["dataset=noisy_numbers", *(f"dataset.{name}={n}" for name, n in zip(names, rows, strict=True))]
        places = [f"data_dir={base.data_dir}", f"output_dir={base.output_dir}", "tracking=none", "device=cpu"]
        return compose([*data, *shape, *XVAL_STEPS, *places, *overrides])

    return make


@pytest.mark.parametrize("paper_compat", [pytest.param("false", marks=pytest.mark.slow), "true"])
def test_a_run_and_its_predictions_again(paper_compat: str, xval) -> None:
    config = xval(f"paper_compat={paper_compat}")
    path = run(config)
    record = read_record(path)
    assert (record.id, record.steps, record.examples_seen) == (run_id(config), 8, 8 * 16)
    assert {"test/accuracy", "test/mae", "validation/ce", "validation/ntl"} <= set(record.metrics)
    assert record.metrics["test/unparsable"] == 0
    assert len(record.curves["ntl"]) == 4
    header, rows = read_predictions(path.parent / "predictions.jsonl")
    assert header["decoding"]["decimals"] == 2
    assert all(len(row["prediction"].partition(".")[2]) <= 2 for row in rows)

    before = (path.parent / "predictions.jsonl").read_bytes()
    assert predict(path.parent, [f"data_dir={config.data_dir}"], say=[].append).name == "predictions.jsonl"
    assert (path.parent / "predictions.jsonl").read_bytes() == before
    finer = predict(path.parent, [f"data_dir={config.data_dir}", "decoding.decimals=6"], say=[].append)
    more = read_predictions(finer)[1]
    pairs = [(float(row["prediction"]), float(fine["prediction"])) for row, fine in zip(rows, more, strict=True)]
    assert all(abs(coarse - fine) <= 0.005 + 1e-9 for coarse, fine in pairs)
    assert any(coarse != fine for coarse, fine in pairs)
    parts, _ = restore(path.parent)
    tokenizer, model = parts.tokenizer, parts.model
    assert (tokenizer.paper_compat, model.config.paper_compat) == (paper_compat == "true",) * 2


@pytest.mark.slow
def test_a_checkpoint_is_a_start(xval) -> None:
    checkpoint = run(xval()).parent / "checkpoints" / "checkpoint-8"
    weights = [f"model.path={checkpoint}", "model.pretrained=true"]
    again = xval(*weights, "trainer.max_steps=2", "trainer.logging_steps=1", shape=["model=xval_tiny"])
    record = read_record(run(again))
    assert record.steps == 2
    assert (record.model["shape"]["hidden_size"], record.model["shape"]["num_hidden_layers"]) == (16, 1)


def test_every_position_is_counted(xval) -> None:
    """The answer's end token is read, too: one position less is one line, and not an error of an index."""
    parts = RunParts(xval(), say=[].append)
    longest = max(parts.encoded(split).about["longest_example"] for split in ("train", "validation", "test"))
    check_lengths(RunParts(xval(f"model.max_positions={longest}"), say=[].append))
    with pytest.raises(UserError, match=f"it reads {longest - 1} tokens, and noisy_numbers .* needs {longest}"):
        check_lengths(RunParts(xval(f"model.max_positions={longest - 1}"), say=[].append))


def test_weights_that_nobody_published_are_one_line() -> None:
    with pytest.raises(UserError, match=r"model=xval model.pretrained=true: no published weights; give a folder"):
        compose(["model=xval", "model.pretrained=true"])


def test_its_tokenizer_is_looked_for_by_its_own_name(
    xval, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="no tokenizer files for 'google-t5/t5-base'") as caught:
        run(xval("model=xval"))
    assert "\n" not in str(caught.value)
    assert "xval is a published size" in capsys.readouterr().out


@pytest.mark.slow
def test_thirty_two_examples_are_learnt_by_heart(xval) -> None:
    """Every answer exact after rounding to whole numbers, which two-digit answers are."""
    config = xval(
        *("model.d_model=64", "model.d_ff=256", "model.num_layers=2", "decoding.decimals=0"),
        *(
            "trainer.max_steps=1200",
            "trainer.batch_size=32",
            "trainer.lr=2e-3",
            "trainer.weight_decay=0",
            "trainer.save_steps=1200",
        ),
        rows=(32, 8, 12),
    )
    parts = RunParts(config, say=[].append)
    parts.trainer(Path(parts.config.output_dir) / "run" / "checkpoints").train()
    answers = decode(
        config.decoding,
        model=parts.model,
        tokenizer=parts.tokenizer,
        examples=parts.encoded("train"),
        collate=parts.collator.prompts,
        max_new_tokens=0,
    )
    assert [int(answer.text) for answer in answers] == [int(row["answer"]) for row in parts.rows("train")]


FEW_ROWS = ["dataset=noisy_numbers", "dataset.train_rows=32", "dataset.validation_rows=8", "dataset.test_rows=8"]
LEARN_BY_HEART = [
    "trainer.batch_size=32",
    "trainer.schedule=linear",
    "trainer.warmup_steps=20",
    "trainer.weight_decay=0",
    "trainer.logging_steps=20",
    "trainer.save_steps=0",
    "trainer.eval_rows=8",
    "tracking=none",
    "device=cpu",
]
# Model -> steps, rate, and how near to zero the last losses are: of the values of a number head, squared, 0..99.
RUNS = {
    "gpt2_tiny": (400, 5e-3, 0.02),
    "t5_tiny": (1000, 5e-3, 0.02),
    "granite_tiny": (800, 5e-3, 0.02),
    "granite_moe_tiny": (800, 5e-3, 0.02),
    "t5_tiny_regression": (1000, 5e-3, 0.05),
    "gpt2_tiny_regression": (1500, 5e-3, 0.05),
}
NUMBER_HEADS = ("t5_tiny_regression", "gpt2_tiny_regression")


@pytest.mark.slow
@pytest.mark.parametrize("model", RUNS)
def test_32_examples(model: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    steps, rate, near_zero = RUNS[model]
    decoding = ["decoding.decimals=0"] if model in NUMBER_HEADS else []
    places = [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}"]
    settings = [*FEW_ROWS, *LEARN_BY_HEART, *places, f"model={model}", *decoding]
    config = compose([*settings, f"trainer.max_steps={steps}", f"trainer.lr={rate}"])
    parts = RunParts(config, say=lambda line: None)
    trainer = parts.trainer(Path(parts.config.output_dir) / "run" / "checkpoints")
    trainer.train()
    losses = [entry for entry in trainer.state.log_history if "loss" in entry]
    # A mixture of experts has a router loss as well, which is never zero.
    assert losses[-1].get("ce", 0.0) + config.loss.weight * losses[-1]["ntl"] < near_zero

    path = tmp_path / "predictions.jsonl"
    decode_splits(parts, ["train"], path)
    _, rows = read_predictions(path)
    assert len(rows) == 32
    wrong = [row for row in rows if extract_answer(row["prediction"]) != extract_answer(row["answer"])]
    assert wrong == []
