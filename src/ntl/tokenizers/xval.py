"""xVal's reading of a text: a number is one token and a value beside it (Golkar et al., 2023).

The processes that tokenize import this file: nothing slow may be imported here.
"""

import math
import re
from collections.abc import Iterable

from ntl.numbers.text import number_spans
from ntl.system.errors import UserError

NUMBER = "[NUM]"
# The token of the text itself, taken apart so that it is not taken for a number.
_LITERAL = "[ NUM ]"
_PAPER_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PAPER_COMMA = re.compile(rf"(?<={re.escape(NUMBER)}), ?(?={re.escape(NUMBER)})")


def read(text: str) -> tuple[str, list[float]]:
    """The text with ``[NUM]`` in place of every number, and the numbers' values in order.

    A number is one of ``ntl.numbers.find_numbers``, so that its sign is its own: "x = -1,234.5" -> "x = [NUM]",
    -1234.5. UserError for a number beyond float64.
    """
    return _read(text, ((start, end, float(value)) for start, end, value in number_spans(text)))


def read_paper(text: str) -> tuple[str, list[float]]:
    """As the original reads it, faults included: no number has a sign, and a comma between two numbers is lost.

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
                f"the number {text[start:end][:40]!r} is beyond float64, and xval reads values: mend the data"
            )
        parts.append(text[done:start].replace(NUMBER, _LITERAL))
        values.append(value)
        done = end
    parts.append(text[done:].replace(NUMBER, _LITERAL))
    return NUMBER.join(parts), values
