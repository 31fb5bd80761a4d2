"""The title of a table says what ran."""

from pathlib import Path

import pytest

from ntl.config.composition import CONFIG_DIR
from ntl.results import build_table
from ntl.results.notes import MODELS
from ntl.results.spec import load_table_spec


def test_every_model_has_a_name() -> None:
    assert set(MODELS) == {path.stem for path in (Path(CONFIG_DIR) / "model").glob("*.yaml")}


@pytest.mark.parametrize(
    ("name", "scale", "title"),
    [
        ("quickstart", "tiny", "Quickstart: two tasks of a minute, a tiny GPT-2"),
        ("table7", "paper", "Table 7: tokenizers on integer arithmetic, T5-Small"),
        ("table7", "small", "Table 7: tokenizers on integer arithmetic, T5-Small from scratch"),
        (
            "table4",
            "tiny",
            "Table 4 with a tiny T5 in place of T5-Small: regression with a token head and with a regres",
        ),
        ("table1", "small", "Table 1 with T5-Small from scratch in place of T5-Base: mathematics questions"),
        (
            "table1",
            "tiny",
            "Table 1 with a tiny T5, a tiny Regression Transformer and a tiny xVal in place of T5-Base, t",
        ),
        ("table9", "tiny", "Table 9 with a tiny GPT-2 in place of T5-3B: GSM8K"),
    ],
)
def test_the_title_names_the_models_that_ran_and_those_they_stand_in_for(name: str, scale: str, title: str) -> None:
    assert build_table(name, [], scale).title.startswith(title)


def test_a_new_stand_in_needs_no_new_title() -> None:
    spec = load_table_spec("table9")
    spec.blocks[0].scales["tiny"].replace = {"model=t5_3b": "model=llama_tiny"}
    assert build_table(spec, []).title == "Table 9 with a tiny Llama in place of T5-3B: GSM8K"
    spec.blocks[0].scales["tiny"].replace = {"model=t5_3b": "model=mine"}
    assert build_table(spec, []).title == "Table 9 with mine in place of T5-3B: GSM8K"
