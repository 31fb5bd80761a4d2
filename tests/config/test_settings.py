"""Every setting says what it is, and ``--help`` prints it."""

from dataclasses import dataclass, fields
from enum import Enum

import pytest

from ntl.config import TrainerConfig, UserError, setting, validate
from ntl.config.composition import schemas
from ntl.config.folders import GROUPS, choices
from ntl.config.help import help_asked
from ntl.config.root import Config
from ntl.config.settings import MISSING, about, describe, lines

ALL = {"run": Config, **schemas()}


@pytest.mark.parametrize("path", ALL)
def test_every_setting_is_described_in_a_sentence(path: str) -> None:
    """Where this fails: `setting(default, "What it does.", ...)` (docs/extending.md, A data set)."""
    rows = list(describe(ALL[path], "" if path == "run" else f"{path.partition('/')[0]}."))
    assert rows
    known = {"meaning", "unit", "origin", "min", "max", "above", "choices"}
    for row in rows:
        assert row.meaning.endswith("."), f"{path}: {row.name} has no description"
        assert row.values
    assert {key for told in about(ALL[path]).values() for key in told} <= known


class Colour(Enum):
    red = 1
    blue = 2


@dataclass
class Inner:
    depth: int = setting(2, "How deep.", unit="layers", min=1, max=9)


@dataclass
class Base:
    _target_: str = MISSING
    name: str = setting(MISSING, "Its name.")
    rate: float = setting(3e-5, "How fast.", origin="paper", above=0, max=0.5)
    kind: str = setting("a", "Which a|b.", choices=("a", "b"))
    colour: Colour = setting(Colour.blue, "Which colour.")
    tags: list[str] = setting(list, "Words.")
    inner: Inner = setting(Inner, "Another.")
    other: Inner | None = setting(None, "None, or another.")


@dataclass
class Child(Base):
    rate: float = 0.25
    name: str = "child"


def test_what_is_printed_of_a_setting() -> None:
    assert list(lines(list(describe(Base, "g.")))) == [
        "  g.name: text",
        "      Its name.",
        "  g.rate: number > 0, ≤ 0.5; value 3e-5",
        "      How fast. From: paper.",
        "  g.kind: a, b; value a",
        "      Which a|b.",
        "  g.colour: red, blue; value blue",
        "      Which colour.",
        "  g.tags: list of text; value []",
        "      Words.",
        "  g.inner: settings",
        "      Another.",
        "  g.inner.depth: integer ≥ 1, ≤ 9; value 2 layers",
        "      How deep.",
        "  g.other: settings, or null; value null",
        "      None, or another.",
    ]


def test_a_default_that_is_replaced_keeps_its_meaning_and_limits_but_no_origin() -> None:
    replaced = {row.name: row for row in describe(Child, "g.")}["g.rate"]
    assert (replaced.default, replaced.meaning, replaced.values, replaced.origin) == (
        "0.25",
        "How fast.",
        "number > 0, ≤ 0.5",
        "",
    )
    there = {row.name: row for row in describe(Base, "g.", Base(rate=0.1))}["g.rate"]
    assert (there.default, there.origin) == ("0.1", "")


def test_a_limit_is_checked_where_a_subclass_replaces_the_default(composed) -> None:
    @dataclass
    class Mine(TrainerConfig):
        batch_size: int = 7

    assert about(Mine)["batch_size"]["min"] == 1
    config = composed()
    config.trainer = Mine(**{**vars(config.trainer), "batch_size": 0})
    with pytest.raises(UserError, match=r"trainer\.batch_size=0: must be at least 1"):
        validate(config)


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
