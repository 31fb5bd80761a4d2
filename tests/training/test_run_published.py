"""The whole line with the published tokenizers, T5's and GPT-2's, around weights too small to have learnt anything."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ntl.config import run_id
from ntl.config.composition import choices
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.tokenizers import load_tokenizer
from ntl.training import run
from ntl.training.tracking import METRICS, read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.data]
NAMES = {"t5": "t5_small", "gpt2": "gpt2_small"}
STEPS = ["trainer.max_steps=4", "trainer.save_steps=4", "trainer.logging_steps=2", "dataset.test_rows=10"]


def _weights(family: str) -> torch.nn.Module:
    import transformers

    torch.manual_seed(0)
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=50257, n_embd=16, n_layer=1, n_head=2, n_positions=128)
        )
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=32128, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
        )
    )


@pytest.fixture(scope="module", params=sorted(NAMES))
def published(
    request: pytest.FixtureRequest, data_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The name of a published model, and a folder as ``save_pretrained`` leaves it."""
    folder = tmp_path_factory.mktemp(request.param)
    _weights(request.param).save_pretrained(folder)
    load_tokenizer(data_root / "tokenizers" / request.param, kind="default").save_pretrained(folder)
    return NAMES[request.param], folder


def _overrides(published: tuple[str, Path], *more: str) -> list[str]:
    name, folder = published
    return [f"model={name}", f"model.path={folder}", *STEPS, *more]


@pytest.fixture
def config(small):
    """``small`` without its settings of the model, which are those of the decoder that stands in for GPT-2."""

    def make(*overrides: str):
        from ntl.config import compose

        base = small()
        places = [f"data_dir={base.data_dir}", f"output_dir={base.output_dir}", "tracking=none", "device=cpu"]
        data = ["dataset=noisy_numbers", "dataset.train_rows=96", "dataset.validation_rows=20", "trainer.batch_size=16"]
        return compose([*data, *places, *overrides])

    return make


@pytest.mark.parametrize("tokenizer", ["digit", "default"])
@pytest.mark.parametrize("loss", [name for name in choices("loss") if name != "mse"])
def test_from_the_file_to_the_record(loss: str, tokenizer: str, published, config) -> None:
    path = run(config(*_overrides(published, f"loss={loss}", f"tokenizer={tokenizer}")))
    record = read_record(path)
    assert record.steps == 4
    for name in ("loss", "ce", "ntl"):
        values = [line[name] for line in read_metrics(path.parent / METRICS) if name in line]
        assert len(values) == 2
        assert all(map(math.isfinite, values))
        assert all(value > 0 for value in values)
    assert math.isfinite(record.metrics["validation/ce"] or math.nan)
    assert record.metrics["test/count"] == len(read_predictions(path.parent / "predictions.jsonl")[1]) == 10


def test_training_begins_at_the_weights_of_the_folder(published, config, capsys: pytest.CaptureFixture[str]) -> None:
    """At a rate of nearly nothing every pretrained row is still what it was, whatever the tokenizer added."""
    settings = config(*_overrides(published, "trainer.lr=1e-30", "trainer.weight_decay=0"))
    checkpoint = run(settings).parent / "checkpoints" / "checkpoint-4"
    before, after = (load_file(folder / "model.safetensors") for folder in (published[1], checkpoint))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        # Zeros move by the rate, and nothing else does.
        torch.testing.assert_close(after[name][: len(tensor)], tensor, rtol=0, atol=1e-20, msg=name)
    grown = [name for name, tensor in before.items() if len(after[name]) != len(tensor)]
    assert len(grown) == (published[0] == "gpt2_small"), "GPT-2 alone has no pad token of its own"
    assert "scale=paper is what it is for" in capsys.readouterr().out


def test_tokenizers_are_different_runs(published, config) -> None:
    digit, default = (config(*_overrides(published, f"tokenizer={kind}")) for kind in ("digit", "default"))
    assert run_id(digit) != run_id(default)
