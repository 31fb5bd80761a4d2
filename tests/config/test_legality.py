"""Ranges and combinations that types cannot hold."""

import pytest
from omegaconf import OmegaConf

from ntl.config import UserError, compose, validate


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.weight=-1", "loss.weight=-1.0: must be at least 0"),
        ("loss.weight=nan", "must be a number"),
        ("trainer.lr=0", "must be above 0"),
        ("trainer.factor=1.5", "must be at most 1"),
        ("seed=4294967296", "must be at most 4294967295"),
        ("device=cud", "Did you mean 'cuda'?"),
        ("resume=maybe", "choose auto, never"),
        ("model.path=not-a-folder", "neither an existing folder nor a hub id"),
        (f"model.path={__file__}", "a file; give its folder"),
        ("tokenizer.path=/nowhere", "neither an existing folder nor a hub id"),
        ("model.pretrained=true", "no published weights"),
    ],
)
def test_one_line_for_each(override: str, message: str, composed) -> None:
    # Merged instead of composed anew: it is validate() that is tested.
    config = OmegaConf.merge(OmegaConf.structured(composed()), OmegaConf.from_dotlist([override]))
    with pytest.raises(UserError) as caught:
        validate(OmegaConf.to_object(config))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


WEIGHTS = "model=granite_3_2_2b model.path=owner/name"
READS_NUMBERS = "and this decoding reads an answer that is one number"
# Overrides -> what the error says, in parts.
MISFITS = {
    "tokenizer=xval": ("model=gpt2_tiny tokenizer=xval: this model reads default or digit; use tokenizer=digit.",),
    "model=xval_tiny loss=ce": ("model=xval_tiny loss=ce: this model has a number head",),
    "model=xval_tiny dataset=gsm8k": ("model=xval_tiny dataset=gsm8k: its answer is worked out in text", "one number"),
    "model=xval_tiny probe_steps=2": ("probe_steps=2: a probe is the relative error", "model=xval_tiny"),
    "model=t5_tiny model.lora.rank=2": ("model.lora.rank=2 model.pretrained=false: an adapter changes",),
    # A reading beside the run's own fits, too.
    "beside=expectation dataset=gsm8k": ("beside=expectation dataset=gsm8k: its answer is worked", "leave it out"),
    "beside=expectation model=rt_tiny": ("beside=expectation tokenizer=rt", "leave it out"),
    "beside=expectation beside.expectation.num_beams=0": ("beside.expectation.num_beams=0: must be at least 1",),
    # Heads draft, or are needed.
    "decoding=speculative": ("decoding=speculative objective=next_token: the model has no heads", "objective=mtp"),
    "objective=mtp model=gpt2_tiny decoding=speculative decoding.heads=3": ("decoding.heads=3 objective.heads=2",),
    # A decoding by number wants numbers in text.
    **{
        f"decoding={decoding} {override}": (message,)
        for decoding in ("expectation", "median")
        for override, message in {
            "dataset=gsm8k": f"its answer is worked out in text, {READS_NUMBERS}",
            "dataset=multirc": f"its answer is text, {READS_NUMBERS}",
            "model=rt_tiny": "tokenizer=rt: it writes numbers in tokens of their own",
            "model=xval_tiny": f"decoding={decoding}: this model has a number head",
        }.items()
    },
    # A setting that would change the run's id alone.
    "model=t5_base model.num_layers=2": ("model.num_layers=2: loaded weights have their own; leave it out",),
    f"{WEIGHTS} model.settings.hidden_size=8": ("model.settings.hidden_size=8: loaded weights have their own",),
    "model=gpt2_small model.vocab_size=60000": ("set model.pretrained=false to train from scratch",),
    "model=gpt2_small scale=tiny model.pretrained=false model.path=owner/name": (
        "model.path=owner/name: the weights in it are not read with model.pretrained=false",
    ),
    "model.lora.alpha=8": ("model.lora.alpha=8.0: has no effect with model.lora.rank=0; set the rank",),
    "model=t5_base model.hub_id=a/b model.path=c/d": ("model.hub_id=a/b: nothing is read from there",),
    "model=t5_base model.requires=nothing": ("model.requires=nothing: describes config/model/t5_base.yaml",),
    "trainer.schedule=plateau trainer.eval_steps=5 trainer.warmup_steps=8": (
        "trainer.warmup_steps=8 trainer.schedule=plateau: it has no warm-up",
    ),
    # A validation metric fits the answers.
    "dataset=star_graph trainer.best=accuracy": ("trainer.best=accuracy dataset=star_graph", "loss, bleu"),
    "dataset=text dataset.path=a.txt trainer.best=accuracy": (
        "trainer.best=accuracy dataset=text",
        "choose one of loss.",
    ),
    "dataset=text dataset.path=a.txt trainer.eval_decoded=true": ("plain text has no answers to decode",),
    "model=t5_base model.name=mine": ("model.name=mine: there is no config/model/mine.yaml",),
}


@pytest.mark.parametrize("overrides", MISFITS)
def test_one_line_for_what_does_not_fit(overrides: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(overrides.split())
    assert all(part in str(caught.value) for part in MISFITS[overrides])
    assert "\n" not in str(caught.value)
