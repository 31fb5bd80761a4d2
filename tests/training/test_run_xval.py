"""xVal from the file to the record, interrupted or not, and decoded again."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ntl.config import Config, UserError, compose, run_id
from ntl.decoding import decode
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.training import run
from ntl.training.decode import check_lengths, restore
from ntl.training.parts import RunParts
from ntl.training.predictor import predict

SHAPE = ["model=xval_tiny", "model.d_model=16", "model.d_ff=32", "model.num_layers=1"]
STEPS = ["trainer.batch_size=16", "trainer.max_steps=8", "trainer.save_steps=4", "trainer.logging_steps=2"]


@pytest.fixture
def xval(small: Callable[..., Config]) -> Callable[..., Config]:
    """``small`` for xVal: its settings of a decoder are not xVal's."""

    def make(*overrides: str, rows: tuple[int, int, int] = (48, 8, 12), shape: Sequence[str] = SHAPE) -> Config:
        base = small()
        names = ("train_rows", "validation_rows", "test_rows")
        data = ["dataset=noisy_numbers", *(f"dataset.{name}={n}" for name, n in zip(names, rows, strict=True))]
        places = [f"data_dir={base.data_dir}", f"output_dir={base.output_dir}", "tracking=none", "device=cpu"]
        return compose([*data, *shape, *STEPS, *places, *overrides])

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
def test_an_interrupted_run_ends_as_an_uninterrupted_one(xval, run_interrupted, tmp_path: Path) -> None:
    settings = ["model.dropout=0.1"]
    expected = read_record(run(xval(*settings)))
    broken = xval(*settings, f"output_dir={tmp_path / 'broken'}")
    run_interrupted(broken, 5)
    record = read_record(run(broken))
    assert record.metrics == expected.metrics
    assert record.curves == expected.curves
    assert record.predictions_sha256 == expected.predictions_sha256


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
