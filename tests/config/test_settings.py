"""Every setting says what it is, and ``--help`` and docs/configuration.md print the same of it."""

from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

import pytest

from ntl.config import TrainerConfig, UserError, setting, validate
from ntl.config.cli import explain
from ntl.config.composition import schemas
from ntl.config.folders import GROUPS, choices
from ntl.config.help import help_asked, reference
from ntl.config.root import Config
from ntl.config.settings import MISSING, about, describe, lines, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
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


def test_a_setting_without_a_word_is_seen() -> None:
    @dataclass
    class Careless:
        rows: int = 3

    assert [row.meaning for row in describe(Careless, "x.")] == [""]


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
        "  g.rate: number > 0, ≤ 0.5; default 3e-5",
        "      How fast. From: paper.",
        "  g.kind: a, b; default a",
        "      Which a|b.",
        "  g.colour: red, blue; default blue",
        "      Which colour.",
        "  g.tags: list of text; default []",
        "      Words.",
        "  g.inner: settings",
        "      Another.",
        "  g.inner.depth: integer ≥ 1, ≤ 9; default 2 layers",
        "      How deep.",
        "  g.other: settings, or null; default null",
        "      None, or another.",
    ]
    assert list(table(list(describe(Base, "g."))))[3:5] == [
        "| `g.rate` | number > 0, ≤ 0.5 | `3e-5` |  | How fast. | paper |",
        "| `g.kind` | a, b | `a` |  | Which a\\|b. |  |",
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


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("device=tpu", "device=tpu: choose one of auto, cpu, cuda."),
        ("objective.watch=loss", "objective.watch=loss: choose one of ce, ntl."),
        (
            "dataset.answers=numbers",
            "choose one of number, reasoning, text, exact, continuation, none. Did you mean 'number'?",
        ),
    ],
)
def test_a_text_that_is_no_choice(composed, override: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        composed(override)
    assert said in str(caught.value)


def test_the_page_has_every_setting_as_the_code_says() -> None:
    """Its section "All settings" is ``reference()``."""
    page = PAGE.read_text(encoding="utf-8")
    assert reference() in page
    for path, schema in ALL.items():
        for row in describe(schema, "" if path == "run" else f"{path.partition('/')[0]}."):
            assert f"| `{row.name}` |" in page, f"{path}: {row.name} is on no line"


def asked(line: str) -> str:
    text = help_asked(line.split())
    assert text is not None
    return text


def test_help_of_a_group_says_what_the_page_says() -> None:
    text, page = asked("--help trainer"), reference()
    assert text.splitlines()[:2] == [f"trainer: {GROUPS['trainer']}.", "trainer= ddp default fsdp"]
    for item in fields(schemas()["trainer/base"]):
        assert f"\n  trainer.{item.name}: " in text
        assert item.metadata["meaning"] in " ".join(text.split())
        assert item.metadata["meaning"] in page


def test_help_of_every_group_names_its_choices_and_settings_once() -> None:
    for group in GROUPS:
        text = asked(f"--help {group}")
        assert all(choice in text.splitlines()[1].split() for choice in choices(group))
    sets = asked("--help dataset")
    assert sets.count("  dataset.answers: number, reasoning, text, exact, continuation, none; default number\n") == 1
    assert "\ngsm8k: Grade-school word problems" in sets
    assert "\nrt, rt_tiny, with the settings of t5: Regression Transformer" in asked("--help model")


def test_help_of_a_choice_has_the_values_that_hold_there() -> None:
    text = asked("--help dataset=gsm8k scale=paper")
    assert text.startswith("dataset=gsm8k: Grade-school word problems, whose answer")
    assert "  dataset.test_rows: integer ≥ 0; value 0 rows\n" in text
    assert "  trainer.lr: number > 0; value 0.0001\n      The highest learning rate. From: original code." in asked(
        "--help trainer scale=paper"
    )
    assert "  trainer.lr: number > 0; value 0.002\n      The highest learning rate.\n" in asked(
        "--help trainer scale=tiny dataset=noisy_numbers trainer.lr=2e-3"
    )
    assert "  seed: integer ≥ 0, ≤ 4294967295; value 3\n" in asked("-h seed=3")


def test_help_of_single_settings() -> None:
    assert (
        asked("--help trainer.lr")
        == "  trainer.lr: number > 0; default 0.0001\n      The highest learning rate. From: original code."
    )
    assert [line.split(":")[0] for line in asked("--help seed model.lora").splitlines() if line.startswith("  m")] == [
        f"  model.lora{name}" for name in ("", ".rank", ".alpha", ".dropout", ".full")
    ]
    assert help_asked(["loss=ce", "seed=1"]) is None
    assert help_asked(["loss=ce", "--help"]) is None  # as --help alone, which needs no library


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--help traner", "--help traner: no such group or setting; choose one of model, tokenizer, loss, "),
        ("--help traner", "Did you mean 'trainer'?"),
        ("--help lr", "Did you mean 'trainer.lr'?"),
        ("--help trainer.lrr", "Did you mean 'trainer.lr'?"),
        ("--help dataset=gsm9k", "gsm8k"),
    ],
)
def test_help_of_what_there_is_not(line: str, said: str) -> None:
    with pytest.raises(Exception) as caught:
        asked(line)
    assert said in explain(caught.value)
