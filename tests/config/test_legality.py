"""Ranges and combinations that types cannot hold."""

from dataclasses import fields

import pytest

from ntl.config import UserError, compose
from ntl.config.legality import nearest


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.weight=-1", "loss.weight=-1.0: must be at least 0"),
        ("loss.weight=nan", "must be a number"),
        ("trainer.lr=0", "must be above 0"),
        ("trainer.factor=1.5", "must be at most 1"),
        ("trainer.batch_size=0", "must be at least 1"),
        ("seed=-1", "seed=-1: must be at least 0"),
        ("seed=4294967296", "must be at most 4294967295"),
        ("dataset.test_share=0.6", "must be at most 0.3"),
        ("device=tpu", "choose one of auto, cpu, cuda"),
        ("device=cud", "Did you mean 'cuda'?"),
        ("resume=maybe", "choose auto, never"),
        ("model.path=not-a-folder", "neither an existing folder nor a hub id"),
        ("tokenizer.path=/nowhere", "neither an existing folder nor a hub id"),
        ("model.pretrained=true", "no published weights"),
    ],
)
def test_one_line_for_each(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        compose([override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_that_the_model_cannot_read() -> None:
    config = compose()
    config.tokenizer.kind = config.tokenizer.name = "xval"
    from ntl.config import validate

    with pytest.raises(UserError, match="model=gpt2_tiny tokenizer=xval: this model reads default or digit"):
        validate(config)


def test_a_pretrained_model_without_weights_gets_them_from_a_path(tmp_path) -> None:
    config = compose(["model.pretrained=true", f"model.path={tmp_path}"])
    assert config.model.pretrained


def test_nearest() -> None:
    assert nearest("ntl_wsa", ["ce", "ntl_was"]) == " Did you mean 'ntl_was'?"
    assert nearest("zzz", ["ce", "ntl_was"]) == ""


def test_every_limit_is_one_that_is_checked() -> None:
    known = {"min", "max", "above"}
    config = compose()
    for group in fields(config):
        value = getattr(config, group.name)
        if hasattr(value, "__dataclass_fields__"):
            assert all(set(field.metadata) <= known for field in fields(value))
