"""A run that begins from the weights of another at a step."""

import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ntl.config import Config, UserError, run_id
from ntl.results import read_record
from ntl.training import run
from ntl.training.checkpoints import checkpoint_at

SHORT = ["trainer.max_steps=9", "trainer.save_steps=4"]


@pytest.fixture
def arm(small: Callable[..., Config]) -> Callable[..., Config]:
    def make(*words: str) -> Config:
        return small("loss=ntl_was", f"base={run_id(small('loss=ce', *SHORT))}@5", *words)

    return make


@pytest.fixture
def kept(small: Callable[..., Config]) -> Path:
    return run(small("loss=ce", *SHORT, "keep_steps=[5]")).parent


def test_it_begins_from_these_weights_and_its_record_says_so(kept: Path, arm: Callable[..., Config]) -> None:
    record = run(arm("trainer.lr=1e-30", "trainer.max_steps=2"))
    begun, ended = (load_file(checkpoint_at(*at) / "model.safetensors") for at in ((kept, 5), (record.parent, 2)))
    assert begun.keys() == ended.keys()
    assert all((begun[name] == ended[name]).all() for name in begun)
    digest = sha256((checkpoint_at(kept, 5) / "model.safetensors").read_bytes()).hexdigest()
    found = read_record(record)
    assert found.model["base"] == {"run": f"{kept.name}@5", "sha256": digest}
    assert found.config["base"] == f"{kept.name}@5"
    assert "base" not in read_record(kept / "record.json").config


def test_a_kept_checkpoint_outlives_the_others_and_changes_nothing(
    kept: Path, small: Callable[..., Config], tmp_path: Path, without_times: Callable[[Path], object]
) -> None:
    run(small("loss=ce", *SHORT))  # finished: what a kill has left behind is removed
    assert sorted(path.name[-2:] for path in (kept / "checkpoints").iterdir()) == ["-5", "-8", "-9"]
    other = run(small("loss=ce", *SHORT, f"output_dir={tmp_path / 'other'}"))
    assert without_times(other) == without_times(kept / "record.json")


def test_a_checkpoint_to_keep_that_is_gone(kept: Path, small: Callable[..., Config]) -> None:
    shutil.rmtree(checkpoint_at(kept, 5))
    with pytest.raises(UserError, match=r"keep_steps=.5.: .* without a whole checkpoint of that; remove"):
        run(small("loss=ce", *SHORT, "keep_steps=[5]"))


def test_one_that_was_interrupted_needs_its_base_no_more(
    kept: Path, arm: Callable[..., Config], tmp_path: Path, run_interrupted: Callable[[Config, int], None]
) -> None:
    straight = read_record(run(arm()))
    shutil.rmtree(kept.parent / straight.id)
    run_interrupted(arm(), 7)
    shutil.rmtree(kept)
    again = read_record(run(arm()))
    assert (again.metrics, again.curves, again.model) == (straight.metrics, straight.curves, straight.model)


def test_a_base_that_is_not_there(arm: Callable[..., Config]) -> None:
    with pytest.raises(UserError, match=r"no whole .*checkpoint-5; train that run first, with keep_steps=.5."):
        run(arm())


def test_a_base_whose_weights_do_not_fit(kept: Path, arm: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a run with another model: model\.n_embd is 16 there and 32 here"):
        run(arm("model.n_embd=32"))
    with pytest.raises(UserError, match=r"another tokenizer: tokenizer\.vocab_size is .* there and 300 here"):
        run(arm("tokenizer.vocab_size=300"))
    with pytest.raises(UserError, match="trained with another tokenizer, sha256"):
        run(arm("dataset.train_rows=95", "dataset.seed=5", f"data_dir={tmp_path / 'data'}"))
