import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.data.sets.arithmetic import answer_of, value_of


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Calculate -13 + (10 - 5) + 4.", "-4"),
        ("What is the value of -2 + 9 - (5 - 0)?", "2"),
        ("What is 3 + (-11 - -3) + (-10 - -7) + (-83 - 6)?", "-97"),
        ("Evaluate 7 - 9 - 118 - (0 + 1 - 10 - ((-8 - -9) + 8 + -14) - (-2 + 0)).", "-118"),
        ("-48 - (-10 - ((-12 - -18) + -18 + 4))", "-46"),
        ("1 - -(2 - 3) - 99999999999999999999", "-99999999999999999999"),
    ],
)
def test_answers(question: str, answer: str) -> None:
    assert answer_of(question) == answer


@pytest.mark.parametrize(
    "question",
    [
        "",
        "Calculate .",
        "Calculate 1 + 2?",
        "What is 1 + 2.",
        "1 +",
        "1 2",
        "(1 + 2",
        "1 + 2)",
        "()",
        "1 * 2",
        "1.5 + 2",
        "²",
    ],
)
def test_anything_else_is_refused(question: str) -> None:
    with pytest.raises(ValueError, match="not a sum"):
        answer_of(question)


def node(children: st.SearchStrategy[tuple[str, int]]) -> st.SearchStrategy[tuple[str, int]]:
    def join(parts: list[tuple[str, int]], minus: list[bool]) -> tuple[str, int]:
        text, value = parts[0]
        for (more, number), is_minus in zip(parts[1:], minus, strict=False):
            text += f" {'-' if is_minus else '+'} {more}"
            value += -number if is_minus else number
        return f"({text})", value

    return st.builds(join, st.lists(children, min_size=1, max_size=4), st.lists(st.booleans(), min_size=3, max_size=3))


SUMS = st.recursive(st.integers(-(10**20), 10**20).map(lambda n: (str(n), n)), node, max_leaves=20)


@given(SUMS)
def test_nested_sums(case: tuple[str, int]) -> None:
    text, value = case
    assert value_of(text) == value


@given(st.text(st.sampled_from("0123456789+-() "), max_size=12))
def test_any_text_has_a_value_or_a_reason(text: str) -> None:
    value, reason = None, ""
    try:
        value = value_of(text)
    except ValueError as error:
        reason = str(error)
    if value is None:
        assert reason.startswith("not a sum")
        return
    # Python refuses leading zeros, so they are taken off before the comparison.
    tree = ast.parse(re.sub(r"\b0+(?=\d)", "", text.strip()), mode="eval")
    assert ast_value(tree.body) == value


def ast_value(tree: ast.expr) -> int:
    if isinstance(tree, ast.Constant):
        assert isinstance(tree.value, int)
        return tree.value
    if isinstance(tree, ast.UnaryOp):
        return -ast_value(tree.operand) if isinstance(tree.op, ast.USub) else ast_value(tree.operand)
    assert isinstance(tree, ast.BinOp)
    sign = -1 if isinstance(tree.op, ast.Sub) else 1
    return ast_value(tree.left) + sign * ast_value(tree.right)
