"""Runs resume from a checkpoint of their own, or start from the weights of another run."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ntl.config import Config, UserError, compose, run_id
from ntl.launch.publish import publish_weights
from ntl.results import read_record
from ntl.training import resume, run
from ntl.training.checkpoints import RUN, checkpoint_at, read_run, write_manifest
from ntl.training.resume import checkpoint_for, describe
from ntl.training.tracking import METRICS, read_metrics


def _folder(config: Config) -> Path:
    return Path(config.output_dir) / run_id(config)


def _refused(config: Config) -> str:
    with pytest.raises(UserError) as caught:
        run(config)
    assert "\n" not in str(caught.value)
    assert not list(_folder(config).glob("*.*"))
    return str(caught.value)


def test_a_checkpoint_says_of_which_run_it_is(finished: Path, small) -> None:
    said = read_run(finished / "checkpoints" / "checkpoint-6")
    assert said["made_of"].keys() == {"tokenizer"}
    assert {key: said[key] for key in ("id", "config", "processes")} == describe(small(), finished.name)
    assert (said["id"], said["processes"], said["config"]["trainer"]["max_steps"]) == (finished.name, 1, 12)
    assert RUN in json.loads((finished / "checkpoints" / "checkpoint-6" / "manifest.json").read_text())


def test_another_config_s_checkpoint_is_refused_with_what_differs(finished: Path, small) -> None:
    checkpoint = finished / "checkpoints" / "checkpoint-6"
    message = _refused(small(f"resume={checkpoint}", "loss=ntl_mse", "seed=2", "loss.weight=0.5"))
    assert message.startswith(f"{checkpoint}: a checkpoint of another run, {finished.name}: ")
    assert "loss.name is ntl_was there and ntl_mse here" in message
    assert "loss.weight is its default there and 0.5 here" in message
    assert "seed is 1 there and 2 here; " in message
    assert message.endswith("; give one of this run by resume=, or start over with resume=never.")


def test_one_line_has_room_for_a_few_settings(finished: Path, small) -> None:
    names = ["batch_size", "eval_steps", "save_steps", "logging_steps", "eval_rows", "eval_batch_size"]
    names += ["warmup_steps", "accumulation_steps", "keep_checkpoints", "keep_checkpoints_after"]
    others = [f"trainer.{name}=7" for name in names]
    message = _refused(small(f"resume={finished / 'checkpoints' / 'checkpoint-6'}", *others))
    assert message.count(" there and 7 here") == 8
    assert ", 2 more; give one of this run" in message


def test_exit_code_2_and_one_line_before_torch(finished: Path, settings, command, tmp_path: Path) -> None:
    words = settings(f"resume={finished / 'checkpoints' / 'checkpoint-12'}", "loss=ce", f"output_dir={tmp_path / 'o'}")
    done = command("train.py", *words, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    told = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert (done.returncode, len(told)) == (2, 1), done.stderr[-2000:]
    assert "a checkpoint of another run" in told[0]
    assert not re.search(r"\| +(?:torch|transformers)$", done.stderr, re.MULTILINE)
    assert list(tmp_path.glob("o/*/*")) == []


@pytest.mark.parametrize(
    "schedule",
    [
        [
            "trainer.schedule=plateau",
            "trainer.warmup_steps=0",
            "trainer.patience=1",
            "trainer.eval_steps=4",
            "trainer.lr=0.3",
        ],
        pytest.param(["trainer.schedule=constant", "trainer.length_bucketing=true"], marks=pytest.mark.slow),
    ],
)
def test_a_longer_run_from_the_end_of_a_shorter_one(schedule: list[str], small, without_times, tmp_path: Path) -> None:
    """Bit for bit what it would have been at once; the shorter one ends between two log lines."""
    shared = ["model.dropout=0.1", "trainer.batch_size=30", "trainer.logging_steps=3", *schedule]
    first = run(small(*shared, "trainer.max_steps=8")).parent
    resume = f"resume={first / 'checkpoints' / 'checkpoint-8'}"
    paths = [
        run(small(*shared, "trainer.max_steps=14", how)) for how in (resume, f"output_dir={tmp_path / 'straight'}")
    ]
    assert without_times(paths[0]) == without_times(paths[1])
    assert read_metrics(paths[0].with_name(METRICS)) == read_metrics(paths[1].with_name(METRICS))
    weights = [(path.parent / "checkpoints" / "checkpoint-14" / "model.safetensors").read_bytes() for path in paths]
    assert weights[0] == weights[1]


def test_the_evaluation_at_the_end_of_a_shorter_run_is_none_of_a_longer_one_s(small) -> None:
    shared = ["trainer.schedule=constant", "trainer.eval_steps=4", "trainer.logging_steps=4", "trainer.save_steps=5"]
    checkpoints = run(small(*shared, "trainer.max_steps=6")).parent / "checkpoints"
    message = _refused(small(*shared, "trainer.max_steps=8", f"resume={checkpoints / 'checkpoint-6'}"))
    assert "trainer.max_steps is 6 there and 8 here (a run of 8 steps never has this state); " in message
    # The one before its end is a state of both.
    assert run(small(*shared, "trainer.max_steps=8", f"resume={checkpoints / 'checkpoint-5'}")).is_file()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_that_ends_with_the_steps_is_another_run(schedule: str, finished: Path, small) -> None:
    checkpoint = finished / "checkpoints" / "checkpoint-6"
    config = read_run(checkpoint)["config"]
    _rewritten(checkpoint, config={**config, "trainer": {**config["trainer"], "schedule": schedule}})
    message = _refused(small(f"resume={checkpoint}", f"trainer.schedule={schedule}", "trainer.max_steps=20"))
    assert "another run" in message
    assert "trainer.max_steps is 12 there and 20 here (a run of 20 steps never has this state); " in message


def test_a_warm_up_that_grows_with_the_steps_is_another_run(settings) -> None:
    def made(*words: str) -> Config:
        typed = [word for word in settings() if not word.startswith(("trainer.warmup", "trainer.max_steps"))]
        return compose([*typed, "trainer.schedule=constant", "trainer.warmup_ratio=0.5", *words])

    checkpoint = run(made("trainer.max_steps=6")).parent / "checkpoints" / "checkpoint-6"
    message = _refused(made("trainer.max_steps=8", f"resume={checkpoint}"))
    assert "trainer.max_steps is 6 there and 8 here" in message


def _rewritten(checkpoint: Path, **said: object) -> Path:
    """What it says of its run is changed; without anything said, it is as before a checkpoint said so."""
    if said:
        (checkpoint / RUN).write_text(json.dumps({**read_run(checkpoint), **said}))
    else:
        (checkpoint / RUN).unlink()
    write_manifest(checkpoint)
    return checkpoint


def test_an_older_checkpoint_is_taken_from_the_run_s_own_folder_alone(finished: Path, small, tmp_path: Path) -> None:
    checkpoint, said = _rewritten(finished / "checkpoints" / "checkpoint-12"), []
    for config in (small(), small(f"resume={checkpoint}")):
        assert checkpoint_for(config, finished, said.append) == checkpoint
    line = f"{checkpoint}: does not say which run it belongs to; assuming this run, because it is in its folder."
    assert said == [line, line]
    config = small(f"resume={checkpoint}", f"output_dir={tmp_path / 'other'}")
    assert f"move it into {_folder(config) / 'checkpoints'}" in _refused(config)


def test_a_checkpoint_that_was_put_into_another_run_s_folder(finished: Path, small) -> None:
    config = small("seed=2")
    shutil.copytree(finished / "checkpoints", _folder(config) / "checkpoints")
    assert "seed is 1 there and 2 here" in _refused(config)


@pytest.mark.parametrize("resume", ["auto", "PATH"])
def test_another_number_of_processes_is_refused(resume: str, finished: Path, small) -> None:
    (finished / "record.json").unlink()
    checkpoint = _rewritten(finished / "checkpoints" / "checkpoint-12", processes=2)
    with pytest.raises(UserError) as caught:
        run(small(f"resume={checkpoint if resume == 'PATH' else 'auto'}"))
    assert str(caught.value) == (
        f"{checkpoint}: written by 2 processes, but this run has 1, so that its batches would differ; start 2 "
        "(torchrun --nproc-per-node), or start over with resume=never."
    )


def test_a_tokenizer_that_changed_is_refused(small, run_interrupted, tmp_path: Path) -> None:
    config = small(f"data_dir={tmp_path / 'data'}")
    run_interrupted(config, 5)
    (file,) = (tmp_path / "data" / ".tokenizers").glob("*/tokenizer.json")
    before = file.read_text()
    tokenizer = json.loads(before)
    pieces = tokenizer["model"]["vocab"]
    pieces[-1], pieces[-2] = pieces[-2], pieces[-1]
    file.write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match=r"checkpoint-5: tokenizer had sha256 \w{64} and has \w{64}; restore what"):
        run(config)
    file.write_text(before)
    assert read_record(run(config)).steps == 12


@pytest.fixture
def adapted(finished: Path, settings, tmp_path: Path):
    """``adapted(name, *overrides)``: LoRA on the weights in the folder of that name, a copy of a checkpoint's."""
    base = tmp_path / "base"
    shutil.copytree(finished / "checkpoints" / "checkpoint-12", base)
    others = [word for word in settings() if not word.startswith("model.")]
    lora = ["model.pretrained=true", "model.lora.rank=2", f"output_dir={tmp_path / 'adapted'}"]
    return lambda path, *overrides: compose([*others, *lora, f"model.path={path}", *overrides])


def _other_weights(folder: Path, finished: Path) -> None:
    (folder / "model.safetensors").unlink()
    shutil.copy(finished / "checkpoints" / "checkpoint-6" / "model.safetensors", folder)


@pytest.mark.slow
def test_adapters_on_other_weights_of_the_same_folder_are_another_run(
    adapted, finished: Path, run_interrupted, tmp_path: Path
) -> None:
    config = adapted(tmp_path / "base")
    run_interrupted(config, 5)
    begun = _folder(config)
    _other_weights(tmp_path / "base", finished)
    assert _folder(config) != begun
    resumed = replace(config, resume=str(begun / "checkpoints" / "checkpoint-5"))
    assert re.search(r"another run.*: model\.path is sha256:\w{64} there and sha256:\w{64} here; ", _refused(resumed))


@pytest.mark.slow
def test_adapters_on_a_hub_s_weights_that_changed_are_refused(
    adapted, finished: Path, run_interrupted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new commit of the same name: the run's id stays what it was."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path), raising=False)
    home = tmp_path / "models--owner--name"
    for commit in "ab":
        shutil.copytree(tmp_path / "base", home / "snapshots" / (40 * commit))
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(40 * "a")
    config = adapted("owner/name")
    run_interrupted(config, 5)
    _other_weights(home / "snapshots" / (40 * "b"), finished)
    (home / "refs" / "main").write_text(40 * "b")
    with pytest.raises(UserError, match=r"checkpoint-5: weights had sha256 \w{64} and has \w{64}; restore what"):
        run(config)
    (home / "refs" / "main").write_text(40 * "a")
    record = read_record(run(config))
    assert record.steps == 12
    assert record.model["weights"]["commit"] == 40 * "a"


SHORT = ["trainer.max_steps=9", "trainer.save_steps=4"]


@pytest.fixture
def arm(small: Callable[..., Config]) -> Callable[..., Config]:
    def make(*words: str) -> Config:
        return small("loss=ntl_was", f"base={run_id(small('loss=ce', *SHORT))}@5", *words)

    return make


@pytest.fixture
def kept(copy_of: Callable[..., Path]) -> Path:
    return copy_of("loss=ce", *SHORT, "keep_steps=[5]")


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
    with pytest.raises(UserError, match=r"keep_steps=.5.: .* has no complete checkpoint at that step; remove"):
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


def test_published_weights_serve_where_its_run_is_not_there(
    kept: Path, arm: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_its_base = read_record(run(arm()))
    (published,) = publish_weights([kept.name], kept.parent, tmp_path / "bases")
    assert sorted(path.name for path in published.iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
        "run.json",
    ]
    monkeypatch.setattr(resume, "BASES", tmp_path / "bases")
    elsewhere = read_record(run(arm(f"output_dir={tmp_path / 'elsewhere'}")))
    assert (elsewhere.metrics, elsewhere.curves) == (beside_its_base.metrics, beside_its_base.curves)
    assert elsewhere.model["base"] == beside_its_base.model["base"]
    (published / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"no complete .*checkpoint-5; train that run first"):
        run(arm(f"output_dir={tmp_path / 'third'}"))


def test_weights_that_no_run_starts_from_are_not_published(copy_of: Callable[..., Path], tmp_path: Path) -> None:
    folder = copy_of("loss=ce", *SHORT)
    with pytest.raises(UserError, match=r"has no weights that other runs start from; train it with keep_steps="):
        publish_weights([folder.name], folder.parent, tmp_path / "bases")
    assert not (tmp_path / "bases").exists()


def test_a_base_that_is_not_there(arm: Callable[..., Config]) -> None:
    with pytest.raises(UserError, match=r"no complete .*checkpoint-5; train that run first, with keep_steps=.5."):
        run(arm())


def test_a_base_whose_weights_do_not_fit(kept: Path, arm: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"its run has another model: model\.n_embd is 16 there and 32 here"):
        run(arm("model.n_embd=32"))
    with pytest.raises(UserError, match=r"another tokenizer: tokenizer\.vocab_size is .* there and 300 here"):
        run(arm("tokenizer.vocab_size=300"))
    message = (
        r"its run has no heads .*, this one objective=mtp; .* or leave base= out and set model.path=.*checkpoint-5"
    )
    with pytest.raises(UserError, match=message):
        run(arm("objective=mtp"))
    with pytest.raises(UserError, match="trained with another tokenizer, sha256"):
        run(arm("dataset.train_rows=95", "dataset.seed=5", f"data_dir={tmp_path / 'data'}"))
