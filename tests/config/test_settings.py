"""Every setting says what it is, and ``--help`` prints it."""

from dataclasses import fields

import pytest

from ntl.config import UserError
from ntl.config.cli import help_asked
from ntl.config.composition import schemas
from ntl.config.folders import GROUPS, choices
from ntl.config.root import Config
from ntl.config.settings import describe


def test_every_setting_is_described_in_a_sentence() -> None:
    """Where this fails: `setting(default, "What it does.", ...)` (docs/extending.md, A data set)."""
    for path, schema in {"": Config, **schemas()}.items():
        rows = dict(describe(schema, path and f"{path}."))
        assert rows, path
        assert [name for name, lines in rows.items() if len(lines) < 2 or not lines[-1].endswith(".")] == []


def asked(line: str) -> str:
    text = help_asked(line.split())
    assert text is not None
    return text


def test_help_of_a_group_has_its_choices_and_each_of_its_settings() -> None:
    text = asked("--help trainer")
    assert text.splitlines()[:2] == [f"trainer: {GROUPS['trainer']}.", "trainer= ddp default fsdp"]
    for item in fields(schemas()["trainer/base"]):
        assert f"\n  trainer.{item.name}: " in text
        assert item.metadata["meaning"] in " ".join(text.split())
    for group in GROUPS:
        assert asked(f"--help {group}").splitlines()[1].split()[1:] == choices(group)


def test_help_has_the_values_that_hold() -> None:
    text = asked("--help dataset=gsm8k scale=paper")
    assert "\ndataset=gsm8k: Grade-school word problems, whose answer" in text
    assert "  dataset.test_rows: integer ≥ 0; value 0 rows\n" in text
    for line, told in (
        ("--help trainer.lr scale=paper", "value 0.0001\n      The highest learning rate. From: original code."),
        ("--help trainer.lr trainer.lr=2e-3", "value 0.002\n      The highest learning rate."),
    ):
        assert asked(line) == f"  trainer.lr: number > 0; {told}"
    assert asked("-h seed=3").startswith("  seed: integer ≥ 0, ≤ 4294967295; value 3\n")
    assert asked("--help model.lora").startswith("  model.lora: settings\n      Low-rank adapters, trained in place of")
    assert asked("--help model.lora.full").startswith("  model.lora.full: list of text; value []\n      Prefixes of")
    assert asked("--help model.dropout").startswith("  model.dropout: number ≥ 0, ≤ 0.9, or null; value 0\n")
    assert asked("--help trainer.normalization").startswith("  trainer.normalization: step, micro_batch; value step\n")
    assert asked("--help seed loss.weight=3e-5").startswith("  seed: integer ≥ 0, ≤ 4294967295; value 1\n")
    for alone in ("loss=ce seed=1", "loss=ce --help"):  # as --help alone, which needs no library
        assert help_asked(alone.split()) is None


@pytest.mark.parametrize(
    ("line", "said"), [("--help traner", "Did you mean 'trainer'?"), ("--help lr", "Did you mean 'trainer.lr'?")]
)
def test_help_of_what_there_is_not(line: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        asked(line)
    assert said in str(caught.value)
