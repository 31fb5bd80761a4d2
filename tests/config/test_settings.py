"""Every setting says what it is, and ``--help`` prints it."""

from dataclasses import dataclass, fields

import pytest

from ntl.config import UserError, setting
from ntl.config.cli import help_asked
from ntl.config.composition import schemas
from ntl.config.folders import GROUPS, choices
from ntl.config.root import Config
from ntl.config.settings import MISSING, describe

ALL = {"run": Config, **schemas()}


@pytest.mark.parametrize("path", ALL)
def test_every_setting_is_described_in_a_sentence(path: str) -> None:
    """Where this fails: `setting(default, "What it does.", ...)` (docs/extending.md, A data set)."""
    rows = dict(describe(ALL[path], "" if path == "run" else "g."))
    assert rows
    assert [name for name, lines in rows.items() if len(lines) < 2 or not lines[-1].endswith(".")] == []


@dataclass
class Inner:
    depth: int = setting(2, "How deep.", "layers", min=1, max=9)


@dataclass
class Base:
    _target_: str = MISSING
    name: str = setting(MISSING, "Its name.")
    rate: float = setting(3e-5, "How fast.", origin="paper", above=0, max=0.5)
    kind: str = setting("a", "Which a|b.", choices=("a", "b"))
    tags: list[str] = setting(list, "Words.")
    inner: Inner = setting(Inner, "Another.")
    other: Inner | None = setting(None, "None, or another.")


@dataclass
class Child(Base):
    rate: float = 0.25


def test_what_is_printed_of_a_setting() -> None:
    assert [line for _, lines in describe(Base, "g.") for line in lines] == [
        "  g.name: text",
        "      Its name.",
        "  g.rate: number > 0, ≤ 0.5; value 3e-5",
        "      How fast. From: paper.",
        "  g.kind: a, b; value a",
        "      Which a|b.",
        "  g.tags: list of text; value []",
        "      Words.",
        "  g.inner: settings",
        "      Another.",
        "  g.inner.depth: integer ≥ 1, ≤ 9; value 2 layers",
        "      How deep.",
        "  g.other: settings, or null; value null",
        "      None, or another.",
    ]
    # A default that is replaced keeps its meaning and limits, and no origin; nor has a value that differs one.
    for schema, current, value in ((Child, None, "0.25"), (Base, Base(rate=0.1), "0.1")):
        lines = dict(describe(schema, "g.", current))["g.rate"]
        assert lines == [f"  g.rate: number > 0, ≤ 0.5; value {value}", "      How fast."]


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
    assert "  model.lora.rank: " in asked("--help model.lora")
    for alone in ("loss=ce seed=1", "loss=ce --help"):  # as --help alone, which needs no library
        assert help_asked(alone.split()) is None


@pytest.mark.parametrize(
    ("line", "said"), [("--help traner", "Did you mean 'trainer'?"), ("--help lr", "Did you mean 'trainer.lr'?")]
)
def test_help_of_what_there_is_not(line: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        asked(line)
    assert said in str(caught.value)
