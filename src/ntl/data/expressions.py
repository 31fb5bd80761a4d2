"""Exact values of the sums in DeepMind mathematics: integers, ``+``, ``-`` and parentheses. No text runs as code."""

import re

TEMPLATE = re.compile(r"What is (?:the value of )?(?P<asked>.+)\?|(?:Calculate|Evaluate) (?P<told>.+)\.|(?P<bare>.+)")
TOKEN = re.compile(r" *([0-9]+|[-+()])")


def answer_of(question: str) -> str:
    """The answer to a question of arithmetic__add_sub_multiple (or ..._longer); ValueError if it is none."""
    return str(value_of(_expression(question)))


def answer_without_parentheses(question: str) -> str:
    """What the answer would be if there were no parentheses in it; ValueError as for ``answer_of``."""
    return str(value_of(_expression(question).replace("(", "").replace(")", "")))


def _expression(question: str) -> str:
    match = TEMPLATE.fullmatch(question)
    if match is None:
        raise ValueError("not a sum")
    return match["asked"] or match["told"] or match["bare"]


def value_of(expression: str) -> int:
    """The value of a sum such as ``-13 + (10 - 5) + -4``; ValueError names the first character that does not fit.

    One pass: as only signs act, a number counts with the product of the signs before it and before every parenthesis
    that is open around it.
    """
    total, sign, outer = 0, 1, [1]
    expect_operand, position, end = True, 0, len(expression.rstrip(" "))
    while position < end:
        match = TOKEN.match(expression, position)
        token = match[1] if match else ""
        if expect_operand and token in ("-", "+"):
            sign = -sign if token == "-" else sign
        elif expect_operand and token == "(":
            outer.append(outer[-1] * sign)
            sign = 1
        elif expect_operand and token.isdigit():
            total += outer[-1] * sign * int(token)
            expect_operand = False
        elif not expect_operand and token in ("-", "+"):
            sign = -1 if token == "-" else 1
            expect_operand = True
        elif not expect_operand and token == ")" and len(outer) > 1:
            outer.pop()
        else:
            raise ValueError(f"not a sum: {expression[position:].lstrip()[:10]!r} does not fit at character {position}")
        assert match is not None
        position = match.end()
    if expect_operand or len(outer) > 1:
        raise ValueError("not a sum: it ends too early")
    return total
