"""What does not fit is one line: a value out of range, two settings that exclude each other, one without effect."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from ntl.config import TrainerConfig, UserError, compose, validate

OWN = f"dataset=file dataset.path={Path(__file__).parent / 'ids.json'} dataset.answers"
TEXT, FSDP, MTP = "dataset=text dataset.path=a.txt", "trainer.parallel=fsdp", "objective=mtp model=gpt2_tiny"
SPARES = "and that of this decoding is one number; use decoding=greedy or decoding=beam."
# Overrides -> what the line says, in parts.
MISFITS: dict[str, tuple[str, ...]] = {
    # Ranges.
    "loss.weight=nan": ("loss.weight=nan: must be",),
    "trainer.lr=0": ("trainer.lr=0: must be above 0.",),
    "trainer.factor=1.5": ("must be at most 1.",),
    "device=cud": ("device=cud: choose one of auto, cpu, cuda. Did you mean 'cuda'?",),
    # Places.
    "resume=maybe": ("resume=maybe: choose auto, never",),
    "model.path=not-a-folder": ("model.path=not-a-folder: neither an existing folder nor a hub id",),
    f"model.path={__file__}": ("a file; give its folder",),
    # The families of models.
    "tokenizer=xval": ("model=gpt2_tiny tokenizer=xval: this model reads default or digit; use tokenizer=digit.",),
    "model=xval_tiny loss=mse": ("model=xval_tiny loss=ntl_mse: this model has a number head", "loss=squared_error"),
    "loss=squared_error": ("model=gpt2_tiny loss=squared_error: it is the loss of a number head", "take loss=ntl_mse"),
    "loss.kind=ce+gce": ("loss.kind=ce+gce: more than one is a base",),
    "loss=ntl_mse loss.squash=3": ("loss.squash=3: loss.kind=mse has no costs",),
    "model=xval_tiny dataset=gsm8k": ("its answer is worked out in text, and that of this model is one number",),
    "model=xval_tiny probe_steps=2": ("probe_steps=2: a probe is the relative error",),
    "model.lora.rank=2 trainer=fsdp": ("model.lora.rank=2 trainer.parallel=fsdp: adapters of sharded weights",),
    "model=smollm2_135m scale=finetune model.lora.rank=2 objective.mask.fraction=0.1": (
        "model.lora.rank=2 objective.mask.fraction=0.1: a new mask token would stay untrained",
    ),
    "model.lora.rank=2": ("model.lora.rank=2 model.pretrained=false: an adapter changes",),
    "model.pretrained=true": ("model=gpt2_tiny model.pretrained=true: no published weights",),
    "model.dropout=null": ("random weights have none of their own",),
    "dataset=gsm8k dataset.format=chat model=t5_tiny": ("dataset.format=chat: a chat template is for decoder-only",),
    # Decodings, the run's own and further ones.
    "decoding=greedy model=xval_tiny": (
        "decoding=greedy: this model has a number head",
        "language-model head; leave it",
    ),
    "decoding=auto": ("decoding=auto beside: there is nothing to choose from", "or give one decoding."),
    "beside=expectation model=rt_tiny": ("beside=expectation tokenizer=rt: its numbers are", "leave it out."),
    "decoding=median dataset=gsm8k": (f"decoding=median dataset=gsm8k: its answer is worked out in text, {SPARES}",),
    f"{OWN}=sentence decoding=median": (f"its answer is a text with a number, {SPARES}",),
    f"{OWN}=numbers decoding=expectation": (f"its answer is several numbers, {SPARES}",),
    f"{OWN}=numbers decoding.interval_rows=9": ("dataset=file: an answer of one number alone has an interval",),
    f"{OWN}=numbers model=xval_tiny loss=squared_error": (
        "its answer is several numbers, and that of this model is one number",
    ),
    f"{OWN}=sentence model=rt_tiny": ("its answer is a text with a number, and that of this model is one number or",),
    f"{OWN}=numbers trainer.best=rmse trainer.eval_steps=5": ("no metric", "choose one of loss, accuracy, mae."),
    "decoding=median model=xval_tiny": ("model=xval_tiny decoding=median: this model has a number head",),
    "decoding=likelihood": ("decoding=likelihood dataset=multiplication: plain text has no answers to decode",),
    "dataset=multirc decoding.interval_rows=4": (
        "decoding.interval_rows=4 dataset=multirc: an answer of one number alone has an interval",
    ),
    "dataset=multirc decoding.interval_scale=log": (
        "decoding.interval_scale=log dataset=multirc: an answer of one number alone",
    ),
    f"{TEXT} decoding.digits_only=false": (
        "decoding.digits_only=false tokenizer.digits_only=true: it is the tokenizer's own setting",
    ),
    "decoding=speculative": ("decoding=speculative objective=next_token: the model has no heads", "objective=mtp"),
    f"{MTP} decoding=speculative decoding.heads=3": ("decoding.heads=3 objective.heads=2",),
    # Objectives.
    f"{MTP} objective.head_weights=[1]": ("objective.head_weights=[1] objective.heads=2: give one factor",),
    f"{MTP} objective.head_weights=[0,0]": (
        "objective.head_weights=[0,0]: each must be finite and at least 0, and one above 0",
    ),
    "objective=expected_error": ("loss=ntl_was objective=expected_error: the one is computed by the other",),
    "loss=expected_error loss.weight=1": ("loss=expected_error loss.weight=1: the factor of the expected error is",),
    "loss=expected_error dataset=gsm8k": ("objective=expected_error dataset=gsm8k: its answers are not one number",),
    "loss=expected_error model=rt_tiny": ("this objective is for models of the family decoder or t5",),
    "loss=expected_error dataset.exclude_numbers=7": ("objective=expected_error dataset.exclude_numbers=7:",),
    "loss=expected_error trainer.gradient_checkpointing=true": ("trainer.gradient_checkpointing=true: the expected",),
    f"loss=expected_error {FSDP}": ("objective=expected_error trainer.parallel=fsdp: take trainer=ddp",),
    # Weights and numbers that are labels.
    "dataset.exclude_numbers=[": ("dataset.exclude_numbers=[: no regular expression (unterminated character set",),
    "dataset.exclude_numbers=7 model=xval_tiny": (
        "dataset.exclude_numbers=7 model=xval_tiny: weights are of the tokens",
    ),
    "dataset.exclude_numbers=7 model=rt_tiny": ("dataset.exclude_numbers=7 tokenizer=rt: its numbers are tokens",),
    "dataset.exclude_numbers=7 loss=ntil": ("dataset.exclude_numbers=7 loss=ntil: it finds numbers by itself",),
    "loss=ntil tokenizer=default": ("loss=ntil tokenizer=default: it weighs digits by their places",),
    f"{FSDP} loss=emo": ("loss=emo trainer.parallel=fsdp: it compares with the whole output layer",),
    "dataset.exclude_numbers=7 loss=gce": ("dataset.exclude_numbers=7 loss=gce: it finds numbers by itself",),
    "dataset=file dataset.path=a.jsonl dataset.weight=w objective.mask.fraction=0.1 objective.mask.copy=separate": (
        "dataset.weight=w objective.mask.copy=separate: a copy of an answer has no weights",
    ),
    f"{MTP} objective.kind=sequential objective.variant=causal": ("objective.kind=sequential objective.variant",),
    f"{MTP} objective.variant=linear objective.keep_depth=true": ("objective.keep_depth=true: has no effect",),
    "objective.mask.variant=code": ("objective.mask.variant=code: has no effect with objective.mask.fraction=0",),
    # Training.
    "trainer.bf16=maybe": ("trainer.bf16=maybe: choose true, false, or auto",),
    "trainer.max_steps=0 keep_steps=[0]": ("keep_steps=[0]: choose steps of 1 to trainer.max_steps=0.",),
    "trainer.schedule=plateau": ("trainer.schedule=plateau trainer.eval_steps=0: the plateau is one of",),
    "trainer.best=accuracy": ("trainer.best=accuracy trainer.eval_steps=0: only evaluations say",),
    "trainer.best=accuracy trainer.eval_steps=5 dataset=multirc": (
        "trainer.best=accuracy dataset=multirc: no metric",
        "loss, bleu,",
    ),
    f"{TEXT} trainer.best=accuracy": ("trainer.best=accuracy dataset=text: no metric", "choose one of loss."),
    f"{TEXT} trainer.eval_decoded=true": (
        "trainer.eval_decoded=true dataset=text: plain text has no answers to decode",
    ),
    "trainer.early_stopping=2": ("set trainer.best=loss, or another validation metric",),
    f"{FSDP} trainer.optim=adafactor": ("trainer.optim=adafactor trainer.parallel=fsdp: sharded weights need one of",),
    f"{FSDP} trainer.max_tokens_per_batch=40": ("all processes need equally many passes",),
    f"{FSDP} trainer.max_steps=0": ("nothing is trained; use trainer=ddp",),
    f"{FSDP} trainer.eval_decoded=true": ("set trainer.eval_decoded=false trainer.best=loss, or trainer=ddp",),
    # What was typed and would change the run's id alone, or is not what nobody typed.
    "model=t5_base model.num_layers=2": ("model.num_layers=2: loaded weights have their own; leave it out",),
    "model=t5_base model.pretrained=false model.path=owner/name": ("model.path=owner/name: not read",),
    "model.lora.alpha=8": ("model.lora.alpha=8: has no effect with model.lora.rank=0; set the rank",),
    "model=t5_base model.tokenizer_hub_id=a/b": ("model.tokenizer_hub_id=a/b: nothing is read from there",),
    "model=t5_base model.requires=nothing": ("model.requires=nothing: describes the model's file",),
    "tracking=none tracking.project=mine": ("tracking=none: its other settings are those of W&B",),
    "trainer.schedule=plateau trainer.eval_steps=5 trainer.warmup_steps=8": (
        "trainer.warmup_steps=8 trainer.schedule=plateau: it has no warm-up",
    ),
    "trainer.epochs=inf": ("trainer.epochs=inf: must be at most 1000000.",),
    "trainer.epochs=2 trainer.max_steps=7": ("trainer.epochs=2 trainer.max_steps=7: trainer.max_steps follows from",),
}


@pytest.mark.parametrize("overrides", MISFITS)
def test_one_line_for_what_does_not_fit(overrides: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(overrides.split())
    assert all(part in str(caught.value) for part in MISFITS[overrides]), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_limit_is_checked_where_a_subclass_replaces_the_default(composed) -> None:
    @dataclass
    class Mine(TrainerConfig):
        batch_size: int = 7

    config = composed()
    config.trainer = Mine(**{**vars(config.trainer), "batch_size": 0})
    with pytest.raises(UserError, match=r"trainer\.batch_size=0: must be at least 1"):
        validate(config)
