"""Arithmetic on polynomials, as in Gloeckle et al. (2024), section 4.2: ``(30214*-(11111@06310))=`` -> ``25501``.

Five digits c0 c1 c2 c3 c4 are the polynomial c0 + c1 X + ... + c4 X^4 over the field of seven elements. ``-`` is the
negation of what follows it, ``+`` the sum, ``*`` the product, ``f@g`` the composition f(g(X)), each cut off at X^5.
Composition is that of the polynomials of degree 4 that are written, since f(g(X)) modulo X^5 is not determined by f
modulo X^5 where g has a constant term.

An expression of m operations has one of the four, uniformly, at its root, and the other m - 1 are divided uniformly
between its operands; coefficients are uniform. m is 1 to ``max_operations`` equally often in training and in
``interpolate``, and higher in ``extrapolate``; it is the group of a row. How expressions are drawn and written is our
choice: the paper does not say.
"""

import random
import re
from collections.abc import Iterator
from functools import reduce

from ntl.config.generated import PolynomialConfig
from ntl.data.dataset import Generated, Row, drawn_on

PRIME, TERMS = 7, 5
DIGITS = "0123456"
TOKEN = re.compile(rf"[{DIGITS}]{{{TERMS}}}|[-+*@()]")
Polynomial = list[int]


class PolynomialArithmetic(Generated):
    """Scored by exact match, in all and by number of operations."""

    metrics = "text"
    config: PolynomialConfig

    def cells(self, split: str) -> range:
        most = self.config.max_operations
        return range(most + 1, self.config.extrapolate_operations + 1) if split == "extrapolate" else range(1, most + 1)

    def draw(self, rng: random.Random, side: str, cell: int) -> Row:
        question = drawn_on(side, lambda: f"{expression(rng, cell)}=")
        return Row(question, answer_of(question), str(cell))


def expression(rng: random.Random, operations: int) -> str:
    if not operations:
        return "".join(rng.choices(DIGITS, k=TERMS))
    operation = rng.choice("-+*@")
    if operation == "-":
        return f"-{expression(rng, operations - 1)}"
    left = rng.randrange(operations)
    return f"({expression(rng, left)}{operation}{expression(rng, operations - 1 - left)})"


def answer_of(question: str) -> str:
    """The coefficients of a question's value."""
    return "".join(map(str, _value(iter(TOKEN.findall(question)))))


def _value(tokens: Iterator[str]) -> Polynomial:
    token = next(tokens)
    if token == "-":
        return [-a % PRIME for a in _value(tokens)]
    if token == "(":
        left, operation, right = _value(tokens), next(tokens), _value(tokens)
        next(tokens)  # the closing parenthesis
        return BINARY[operation](left, right)
    return [int(digit) for digit in token]


def plus(f: Polynomial, g: Polynomial) -> Polynomial:
    return [(a + b) % PRIME for a, b in zip(f, g, strict=True)]


def times(f: Polynomial, g: Polynomial) -> Polynomial:
    a, b, c, d, e = f
    p, q, r, s, t = g
    product = a * p, a * q + b * p, a * r + b * q + c * p, a * s + b * r + c * q + d * p
    return [term % PRIME for term in (*product, a * t + b * s + c * r + d * q + e * p)]


def composed(f: Polynomial, g: Polynomial) -> Polynomial:
    """f(g(X)), by Horner's rule."""
    return reduce(lambda value, a: plus(times(value, g), [a] + [0] * (TERMS - 1)), reversed(f), [0] * TERMS)


BINARY = {"+": plus, "*": times, "@": composed}
