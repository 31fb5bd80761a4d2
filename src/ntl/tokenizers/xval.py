"""How xVal reads a text: each number is one token with a value (Golkar et al., 2023)."""

import math
import re
from collections.abc import Iterable

from ntl.numbers.text import number_spans
from ntl.system.errors import UserError

NUMBER = "[NUM]"
# The token as literal text, split so that it does not become a number.
_LITERAL = "[ NUM ]"
_PAPER_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PAPER_COMMA = re.compile(rf"(?<={re.escape(NUMBER)}), ?(?={re.escape(NUMBER)})")


def read(text: str) -> tuple[str, list[float]]:
    """The text with ``[NUM]`` in place of every number, and the numbers' values in order.

    Numbers are those of ``ntl.numbers.find_numbers``, which include their sign: "x = -1,234.5" -> "x = [NUM]", -1234.5.
    UserError for a number beyond float64.
    """
    return _read(text, ((start, end, float(value)) for start, end, value in number_spans(text)))


def read_paper(text: str) -> tuple[str, list[float]]:
    """As the original reads it, including its errors: numbers have no sign, and a comma between two numbers is lost.

    "- 5" -> "- [NUM]", 5; "1,234.5" -> "[NUM] [NUM]", 1 and 234.5; "1e-5" -> "[NUM]e-[NUM]".
    """
    matches = _PAPER_NUMBER.finditer(text)
    written, values = _read(text, ((match.start(), match.end(), float(match.group())) for match in matches))
    return _PAPER_COMMA.sub(" ", written), values


def _read(text: str, spans: Iterable[tuple[int, int, float]]) -> tuple[str, list[float]]:
    parts: list[str] = []
    values: list[float] = []
    done = 0
    for start, end, value in spans:
        if not math.isfinite(value):
            raise UserError(
                f"the number {text[start:end][:40]!r} is beyond float64, and xval needs values: correct the data"
            )
        parts.append(text[done:start].replace(NUMBER, _LITERAL))
        values.append(value)
        done = end
    parts.append(text[done:].replace(NUMBER, _LITERAL))
    return NUMBER.join(parts), values
