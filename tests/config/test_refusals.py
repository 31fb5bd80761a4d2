"""What does not fit is one line that names the settings: out of range, excluding each other, or without effect."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from ntl.config import TrainerConfig, UserError, compose, validate
from ntl.config.composition import read_config, schemas
from ntl.config.settings import about
from ntl.config.targets import locate
from ntl.results.spec import load_table_spec

# Overrides -> what the line names. {llama}, {t5} and {bert} are folders of weights.
MISFITS = [
    # Ranges.
    ("loss.weight=nan", "loss.weight=nan"),
    ("loss.weight=inf", "loss.weight=inf: must be a finite number."),
    ("trainer.lr=inf", "trainer.lr=inf: must be a finite number."),
    ("trainer.lr=0", "trainer.lr=0"),
    ("trainer.factor=1.5", "must be at most 1."),
    ("device=cud", "device=cud"),
    # Places.
    ("resume=maybe", "resume=maybe"),
    ("model.path=not-a-folder", "model.path=not-a-folder"),
    ("model.path={here}", "a file; give its folder"),
    # The families of models.
    ("tokenizer=xval", "model=gpt2_tiny tokenizer=xval"),
    ("model=xval_tiny loss=mse", "loss=squared_error"),
    ("loss=squared_error", "is for a number head"),
    ("loss.kind=ce+gce", "loss.kind=ce+gce"),
    ("loss=ntl_mse loss.squash=3", "loss.squash=3"),
    ("model=xval_tiny dataset=gsm8k", "its answer is a number worked out in text, not one number"),
    ("model=xval_tiny probe_steps=2", "probe_steps=2"),
    ("model.lora.rank=2 trainer=fsdp", "model.lora.rank=2 trainer.parallel=fsdp"),
    ("model=smollm2_135m scale=finetune model.lora.rank=2 objective.mask.fraction=0.1", "model.lora.rank=2"),
    ("model.lora.rank=2", "model.lora.rank=2 model.pretrained=false"),
    ("model.pretrained=true", "model=gpt2_tiny model.pretrained=true"),
    ("model.dropout=null", "random weights have none of their own"),
    ("dataset=gsm8k dataset.format=chat model=t5_tiny", "dataset.format=chat"),
    # Decodings, the run's own and further ones.
    ("decoding=greedy model=xval_tiny", "decoding=greedy"),
    ("decoding=auto", "decoding=auto extra_decodings"),
    ("extra_decodings=expectation model=rt_tiny", "extra_decodings=expectation tokenizer=rt"),
    ("decoding=median dataset=gsm8k", "decoding=median dataset=gsm8k"),
    ("dataset=file dataset.path={ids} dataset.answers=sentence decoding=median", "its answer is a text with a"),
    ("dataset=file dataset.path={ids} dataset.answers=numbers decoding=expectation", "its answer is several numbers"),
    ("dataset=file dataset.path={ids} dataset.answers=numbers decoding.interval_rows=9", "dataset=file"),
    (
        "dataset=file dataset.path={ids} dataset.answers=numbers model=xval_tiny loss=squared_error",
        "its answer is several",
    ),
    ("dataset=file dataset.path={ids} dataset.answers=sentence model=rt_tiny", "its answer is a text with a number"),
    ("dataset=file dataset.path={ids} dataset.answers=numbers trainer.best=rmse trainer.eval_steps=5", "no metric"),
    ("decoding=median model=xval_tiny", "model=xval_tiny decoding=median"),
    ("decoding=likelihood", "decoding=likelihood dataset=multiplication"),
    ("dataset=multirc decoding.interval_rows=4", "decoding.interval_rows=4 dataset=multirc"),
    ("dataset=multirc decoding.interval_scale=log", "decoding.interval_scale=log dataset=multirc"),
    ("dataset=text dataset.path=a.txt decoding.digits_only=false", "decoding.digits_only=false"),
    ("decoding=speculative", "decoding=speculative objective=next_token"),
    ("objective=mtp model=gpt2_tiny decoding=speculative decoding.heads=3", "decoding.heads=3 objective.heads=2"),
    # Objectives.
    ("objective=mtp model=gpt2_tiny objective.head_weights=[1]", "objective.head_weights=[1] objective.heads=2"),
    ("objective=mtp model=gpt2_tiny objective.head_weights=[0,0]", "objective.head_weights=[0,0]"),
    ("objective=expected_error", "loss=ntl_was objective=expected_error"),
    ("loss=expected_error loss.weight=1", "loss=expected_error loss.weight=1"),
    ("loss=expected_error dataset=gsm8k", "objective=expected_error dataset=gsm8k"),
    ("loss=expected_error model=rt_tiny", "this objective is for models of the family decoder or t5"),
    ("loss=expected_error dataset.exclude_numbers=7", "objective=expected_error dataset.exclude_numbers=7"),
    ("loss=expected_error trainer.gradient_checkpointing=true", "trainer.gradient_checkpointing=true"),
    ("loss=expected_error trainer.parallel=fsdp", "objective=expected_error trainer.parallel=fsdp"),
    # Weights and numbers that are labels.
    ("dataset.exclude_numbers=[", "dataset.exclude_numbers=["),
    ("dataset.exclude_numbers=7 model=xval_tiny", "dataset.exclude_numbers=7 model=xval_tiny"),
    ("dataset.exclude_numbers=7 model=rt_tiny", "dataset.exclude_numbers=7 tokenizer=rt"),
    ("dataset.exclude_numbers=7 loss=ntil", "dataset.exclude_numbers=7 loss=ntil"),
    ("loss=ntil tokenizer=default", "loss=ntil tokenizer=default"),
    ("trainer.parallel=fsdp loss=emo", "loss=emo trainer.parallel=fsdp"),
    ("dataset.exclude_numbers=7 loss=gce", "dataset.exclude_numbers=7 loss=gce"),
    (
        "dataset=file dataset.path=a.jsonl dataset.weight=w objective.mask.fraction=0.1 objective.mask.copy=separate",
        "dataset.weight=w objective.mask.copy",
    ),
    ("objective=mtp model=gpt2_tiny objective.kind=sequential objective.variant=causal", "objective.kind=sequential"),
    ("objective=mtp model=gpt2_tiny objective.variant=linear objective.keep_depth=true", "objective.keep_depth=true"),
    ("objective.mask.variant=code", "objective.mask.variant=code"),
    # Training.
    ("trainer.bf16=maybe", "trainer.bf16=maybe"),
    ("trainer.max_steps=0 keep_steps=[0]", "keep_steps=[0]"),
    ("trainer.schedule=plateau", "trainer.schedule=plateau trainer.eval_steps=0"),
    ("trainer.best=accuracy", "trainer.best=accuracy trainer.eval_steps=0"),
    ("trainer.best=accuracy trainer.eval_steps=5 dataset=multirc", "trainer.best=accuracy dataset=multirc"),
    ("dataset=text dataset.path=a.txt trainer.best=accuracy", "trainer.best=accuracy dataset=text"),
    ("dataset=text dataset.path=a.txt trainer.eval_decoded=true", "trainer.eval_decoded=true dataset=text"),
    ("trainer.early_stopping=2", "set trainer.best=loss, or another validation metric"),
    ("trainer.parallel=fsdp trainer.optim=adafactor", "trainer.optim=adafactor trainer.parallel=fsdp"),
    ("trainer.parallel=fsdp trainer.max_tokens_per_batch=40", "set trainer.max_tokens_per_batch=0, or"),
    ("output_dir=", "empty; give a folder"),
    ("trainer.parallel=fsdp probe_steps=5", "set probe_steps=0, or trainer=ddp"),
    ("trainer.parallel=fsdp trainer.max_steps=0", "nothing is trained; use trainer=ddp"),
    ("trainer.parallel=fsdp trainer.eval_decoded=true", "set trainer.eval_decoded=false trainer.best=loss, or"),
    # What was typed and would change the run's id alone, or is not what nobody typed.
    ("model=t5_base model.num_layers=2", "model.num_layers=2"),
    ("model=t5_base model.pretrained=false model.path=owner/name", "model.path=owner/name"),
    ("model.lora.alpha=8", "model.lora.alpha=8"),
    ("model=t5_base model.tokenizer_hub_id=a/b", "model.tokenizer_hub_id=a/b"),
    ("model=t5_base model.requires=nothing", "model.requires=nothing"),
    ("tracking=none tracking.project=mine", "tracking=none"),
    ("trainer.schedule=plateau trainer.eval_steps=5 trainer.warmup_steps=8", "trainer.warmup_steps=8"),
    ("trainer.epochs=inf", "trainer.epochs=inf"),
    ("trainer.epochs=2 trainer.max_steps=7", "trainer.epochs=2 trainer.max_steps=7"),
    # Given weights.
    ("model=hf", "model=hf: give the weights by model.path=FOLDER"),
    ("model=hf model.path={llama} model.pretrained=false", "it has the shapes of the weights in model.path alone"),
    ("model=gpt2_tiny model.path={llama}", "use model=hf model.path={llama}, which takes these as they are"),
    ("model=llama_tiny model.hub_id=owner/name", "use model=hf model.path=owner/name"),
    ("model=gpt2_small model.path={llama}", "these weights are of a llama, and this model is a gpt2; use model=hf"),
    ("model=hf model.path={bert}", "BertForMaskedLM reads text and writes none; give the weights of a decoder"),
    ("model=hf model.path={llama} model.file=a.gguf", "no such file in this folder; its GGUF files: none"),
    ("model=hf model.path=owner/name model.file=a.gguf", "a GGUF file is read from a folder"),
    ("model=hf model.path={t5} dataset=text dataset.path=a.txt", "its answer is plain text, not one number"),
    ("model=rt_tiny model.path={t5} model.pretrained=true", "scale=tiny is meant for random weights; add"),
    ("model=hf model.path=owner/name", "model owner/name: not in the local cache, and "),
]


@pytest.mark.parametrize(("overrides", "named"), MISFITS)
def test_one_line_for_what_does_not_fit(overrides: str, named: str, save, tmp_path: Path) -> None:
    places = {"here": __file__, "ids": Path(__file__).parent / "ids.json"}
    if "{" in overrides:
        places["llama"] = save(tmp_path / "llama", model_type="llama", architectures=["LlamaForCausalLM"])
        places["t5"] = save(tmp_path / "t5", model_type="t5", is_encoder_decoder=True)
        places["bert"] = save(tmp_path / "bert", model_type="bert", architectures=["BertForMaskedLM"])
    with pytest.raises(UserError) as caught:
        compose([word.format(**places) for word in overrides.split()])
    assert named.format(**places) in str(caught.value)
    assert "\n" not in str(caught.value)


BASES = [
    (["base=some-id"], "base=some-id: give the id of a run in outputs and a step, as ID@8000"),
    (["base='loss=ce@'"], "give the overrides of a run and a step"),
    (["base='loss=ce trainer.max_steps=40@41'"], "that run ends at step 40; name a step up to it"),
    (["base='loss=ce model=llama_tiny@5'"], "that run has another model, so its weights do not fit"),
    (["base='loss=ce base=some-id@5'"], "a base has no base of its own"),
    (
        ["dataset=multiplication", "experiment=xval_multiplication", "base='loss=ce@5'"],
        "an experiment sets what both runs share; name the base by its id",
    ),
]


@pytest.mark.parametrize(("words", "named"), BASES)
def test_one_line_for_a_base_that_is_no_run(words: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        compose(["dataset=noisy_numbers", "loss=ntl_was", "loss.weight=2.0", "trainer.max_steps=20", *words])


def test_a_limit_is_checked_where_a_subclass_replaces_the_default(composed) -> None:
    @dataclass
    class Mine(TrainerConfig):
        batch_size: int = 7

    config = composed()
    config.trainer = Mine(**{**vars(config.trainer), "batch_size": 0})
    with pytest.raises(UserError, match=r"trainer\.batch_size=0: must be at least 1"):
        validate(config)


# ---- foreign code never runs, and no name is a path out of its folder

EXTRA = "extra_decodings.expectation."
# What reads the file config.yaml of a folder.
READERS = [read_config, lambda folder: load_table_spec(str(folder / "config.yaml"))]


# Setting -> the package that must define what it names.
ROOMS = {
    "model._target_": "ntl.models",
    "dataset._target_": "ntl.data",
    "objective._target_": "ntl.objectives",
    "objective.collator": "ntl.data",
    "decoding._target_": "ntl.decoding",
    f"{EXTRA}_target_": "ntl.decoding",
}


def test_every_schema_that_names_code_has_a_room() -> None:
    assert "dataset/file" in schemas()
    for path, schema in schemas().items():
        if hasattr(schema, "_target_"):
            assert about(schema)["_target_"]["room"] == ROOMS[f"{path.split('/')[0]}._target_"]


def _set(config: Any, path: str, value: object) -> None:
    parent, _, key = path.rpartition(".")
    for name in parent.split("."):
        config = config[name] if isinstance(config, dict) else getattr(config, name)
    setattr(config, key, value)


@pytest.mark.parametrize(
    ("path", "target"),
    [*((path, "os.system") for path in ROOMS), *(("model._target_", target) for target in ("ntl.modelsx.f", ""))],
)
def test_a_target_outside_its_room_is_refused(path: str, target: str, composed, tmp_path: Path) -> None:
    config = composed("extra_decodings=expectation", "dataset=noisy_numbers")
    _set(config, path, target)
    message = rf"^{path}={target}: not in {ROOMS[path]}, and code from elsewhere is never called; put it there\.$"
    with pytest.raises(UserError, match=message):
        validate(config)
    OmegaConf.save(OmegaConf.structured(config), tmp_path / "config.yaml")
    # A schema that has other keys than the target's is not found in the first place.
    with pytest.raises(UserError, match=rf"{message}|not in '\w+'; written by another version"):
        read_config(tmp_path)


NAMES = {"model.name": ["../x", "a/b", ".x", "", "a\nb"], "dataset.name": [""], f"{EXTRA}name": [""]}


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in NAMES.items() for name in names])
def test_a_name_is_never_a_path(path: str, name: str, composed) -> None:
    config = composed("extra_decodings=expectation", "dataset=noisy_numbers")
    _set(config, path, name)
    with pytest.raises(UserError, match="not a plain name of letters, digits") as caught:
        validate(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tracking: {group: '${oc.env:PLANTED}'}", r"it has an interpolation, \$\{\.\.\.\}, which is not resolved"),
        ("a: *b", "found undefined alias 'b'"),
        ("model: !!python/object/apply:pathlib.Path.touch [made]", "could not determine a constructor"),
    ],
)
def test_a_file_that_means_more_than_values_is_one_line(text: str, message: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED", "a secret")
    (tmp_path / "config.yaml").write_text(text)
    for read in READERS:
        with pytest.raises(UserError, match=rf"config\.yaml: {message}") as caught:
            read(tmp_path)
        assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


NOT_OURS = r"no class or function that ntl defines|cannot be imported"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ntl.losses.no_such", "cannot be imported"),
        # Not even imported.
        *((target, "not in ntl, and code from elsewhere") for target in ("os.system", "ntlx.losses.ce")),
        # What a module of this project imports, or what its objects have, is not part of it.
        ("ntl.training.train.subprocess.run", NOT_OURS),
        ("ntl.losses.ntl_was.__globals__", NOT_OURS),
        ("ntl.losses.rows", NOT_OURS),
        ("ntl.config.targets.NAME.fullmatch", NOT_OURS),
    ],
)
def test_what_cannot_be_located(target: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        locate(target)
