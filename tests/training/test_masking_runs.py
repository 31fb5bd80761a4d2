"""`objective.mask` in whole runs: the mask token, validation, resumption, accumulation and ranks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from ntl.config import UserError, compose
from ntl.data.collate import COPIES
from ntl.training import run
from ntl.training.parts import RunParts
from ntl.training.tracking import METRICS, read_metrics
from ntl.training.trainer import ObjectiveTrainer

IGNORED = -100
ON = "objective.mask.fraction=0.15"


def test_a_mask_token_leaves_learned_rows_as_they_are(parts: Callable[..., Any], settings: Any, tmp_path: Path) -> None:
    checkpoint = run(compose(settings(f"output_dir={tmp_path / 'first'}"))).parent / "checkpoints" / "checkpoint-12"
    own = ["model=hf", "scale=tiny", "tokenizer=digit", f"model.path={checkpoint}", ON, "objective.mask.numbers=allow"]
    words = [word for word in settings(*own) if not word.startswith("model.n_")]
    folder = run(compose(words)).parent
    built = RunParts(compose(words), say=lambda line: None)
    learned = AutoModelForCausalLM.from_pretrained(checkpoint).transformer.wte.weight
    grown = built.model.transformer.wte.weight
    assert (len(grown), built.tokenizer.mask_token_id) == (len(learned) + 1, len(learned))
    assert torch.equal(grown[:-1], learned)
    assert built.model.lm_head.weight is grown  # tied as before
    # Another such run goes on with the same token.
    again = [word for word in words if "model.path" not in word]
    last = folder / "checkpoints" / "checkpoint-12"
    then = RunParts(compose([*again, f"model.path={last}"]), say=lambda line: None)
    assert then.tokenizer.mask_token_id == len(learned)
    assert len(then.model.transformer.wte.weight) == len(grown)


def test_validation_and_prompts_are_never_masked(parts: Callable[..., Any], tmp_path: Path) -> None:
    built = parts(ON, "objective.mask.numbers=allow", "objective.mask.copy=separate", "objective.mask.min_answer=1")
    trainer = ObjectiveTrainer(built, tmp_path / "checkpoints")
    token = built.tokenizer.mask_token_id
    seen = list(trainer.get_eval_dataloader())
    assert seen
    for batch in seen:
        assert not (batch["input_ids"] == token).any()
        assert COPIES not in batch
    prompts = built.collator.prompts([built.encoded("validation")[place] for place in range(4)])
    assert not (prompts["input_ids"] == token).any()
    batches, counts = trainer.get_batch_samples(iter(trainer.get_train_dataloader()), 2, torch.device("cpu"))
    assert all((batch["input_ids"] == token).any() for batch in batches)
    assert counts[0] == sum((batch["labels"] != IGNORED).sum() for batch in batches)


def test_nothing_to_mask_is_an_error(parts: Callable[..., Any], tmp_path: Path) -> None:
    rows = ["dataset.train_rows=96", "dataset.validation_rows=8", "dataset.test_rows=2"]
    stories = [f"data_dir={tmp_path}", "device=cpu", "dataset=induction", *rows, "objective.mask.numbers=only"]
    for build, line in (
        (lambda: parts(ON, "objective.mask.copy=concatenate"), "the longest training answer has 3 tokens, so nothing"),
        (lambda: RunParts(compose([ON, *stories])), "no token of the first 64 training examples may be masked"),
    ):
        with pytest.raises(UserError, match=line) as error:
            ObjectiveTrainer(build(), tmp_path)
        assert "\n" not in str(error.value)


def test_mtp_and_ntl_and_masks_are_logged_apart_and_resume(
    small: Callable[..., Any], run_interrupted: Callable[..., None], without_times: Callable[..., Any], tmp_path: Path
) -> None:
    """A run interrupted in step 8 of 12 and started again is the run, as are smaller batches."""
    found = {}
    own = [ON, "objective.mask.numbers=allow", "objective=mtp", "model.n_layer=2", "trainer.logging_steps=5"]
    for name, size in (("whole", 8), ("again", 8), ("small", 4)):
        batches = [f"trainer.batch_size={size}", f"trainer.accumulation_steps={16 // size}"]
        config = small(*own, *batches, f"output_dir={tmp_path / name}")
        if name == "again":
            run_interrupted(config, 8)
        path = run(config)
        found[name] = without_times(path), read_metrics(path.parent / METRICS)
    assert found["whole"] == found["again"]
    line = found["whole"][1][0]
    assert {"ce", "ntl", "ce/head2", "ntl/head2", "masked"} <= line.keys()
    assert 0.08 < line["masked"] < 0.22
    assert found["small"][1][0]["masked"] == line["masked"]
    assert found["small"][0].metrics["validation/ce"] == pytest.approx(
        found["whole"][0].metrics["validation/ce"], rel=1e-4
    )
