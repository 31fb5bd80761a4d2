import random

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from ntl.data.sets.polynomial import PRIME, TERMS, answer_of, expression

X = sympy.Symbol("x")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("30214=", "30214"),
        ("-30214=", "40563"),  # 7 - 3, 0, 7 - 2, 7 - 1, 7 - 4
        ("--30214=", "30214"),
        ("(30214+51000)=", "11214"),  # 3 + 5 = 8
        ("(11000*11000)=", "12100"),  # (1 + X)^2
        ("(00100*00011)=", "00000"),  # X^2 (X^3 + X^4) = X^5 + X^6
        ("(00100@11000)=", "12100"),  # (1 + X)^2
        ("(00001@11000)=", "14641"),  # (1 + X)^4
        ("(11000@00001)=", "10001"),
        ("(00001@00100)=", "00000"),  # X^8
        ("(10000+-(01000@02000))=", "15000"),  # 1 - 2 X
    ],
)
def test_by_hand(question: str, answer: str) -> None:
    assert answer_of(question) == answer


@pytest.mark.parametrize(
    "question",
    ["30214", "3021=", "302145=", "30714=", "30214 =", "(30214)=", "30214+11111=", "(30214+11111=", "()=", "=", "-="],
)
def test_what_is_no_expression(question: str) -> None:
    with pytest.raises(ValueError):
        answer_of(question)


def by_sympy(text: str) -> sympy.Poly:
    """The value of a fully parenthesised expression, read from the outside in; polynomials by sympy."""
    if text[0] == "-":
        return -by_sympy(text[1:])
    if text[0] != "(":
        return sympy.Poly([int(digit) for digit in reversed(text)], X, modulus=PRIME)
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        # An operation on two follows an operand; a negation follows an operation or a bracket.
        if depth == 1 and sign in "+*@" and place:
            operation = {"+": sympy.Poly.add, "*": sympy.Poly.mul, "@": sympy.Poly.compose}[sign]
            value = operation(by_sympy(text[1:place]), by_sympy(text[place + 1 : -1]))
            return value.rem(sympy.Poly(X**TERMS, X, modulus=PRIME))
    raise AssertionError(text)


@given(seed=st.integers(0, 2**32), operations=st.integers(0, 10))
def test_as_sympy(seed: int, operations: int) -> None:
    text = expression(random.Random(seed), operations)
    assert sum(map(text.count, "-+*@")) == operations
    coefficients = by_sympy(text).all_coeffs()[::-1]
    expected = [int(c) % PRIME for c in coefficients] + [0] * (TERMS - len(coefficients))
    assert answer_of(f"{text}=") == "".join(map(str, expected))


def test_operations_and_coefficients_are_uniform() -> None:
    rng = random.Random(0)
    roots = [expression(rng, 1) for _ in range(8000)]
    for operation in "-+*@":
        assert sum(operation in root for root in roots) == pytest.approx(2000, abs=200)
    digits = "".join(roots)
    total = sum(map(digits.count, "0123456"))
    for digit in "0123456":
        assert digits.count(digit) == pytest.approx(total / 7, rel=0.05)
