"""Numbers of a text as [NUM] and values, by hand and against the grammar."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ntl.config import UserError
from ntl.numbers.text import number_spans
from ntl.tokenizers.xval import NUMBER, read, read_paper

ANY_TEXT = st.one_of(st.text(), st.text(alphabet="0123456789+-,.e [NUM]x"))


READ = {
    "5-3 = 2": ("[NUM]-[NUM] = [NUM]", [5, 3, 2]),
    "- 5": ("- [NUM]", [5]),
    "x = -1,234.5!": ("x = [NUM]!", [-1234.5]),
    "1, 2,3": ("[NUM], [NUM],[NUM]", [1, 2, 3]),
    "(-3/2)*x": ("([NUM]/[NUM])*x", [-3, 2]),
    "123456789012345678901": ("[NUM]", [123456789012345678901.0]),
    "a [NUM] of 1": ("a [ NUM ] of [NUM]", [1]),
}
BY_THE_PAPER = {
    "-5": ("-[NUM]", [5]),
    "1,234.5": ("[NUM] [NUM]", [1, 234.5]),
    "1, 2, 3": ("[NUM] [NUM] [NUM]", [1, 2, 3]),
    "1 , 2": ("[NUM] , [NUM]", [1, 2]),
    "1e-05 .5 7.": ("[NUM]e-[NUM] .[NUM] [NUM].", [1, 5, 5, 7]),
    "007": ("[NUM]", [7]),
    "a [NUM] of 1": ("a [ NUM ] of [NUM]", [1]),
}


def test_a_sign_belongs_to_its_number_but_for_the_papers_rule() -> None:
    assert {text: read(text) for text in READ} == READ
    assert {text: read_paper(text) for text in BY_THE_PAPER} == BY_THE_PAPER


@given(ANY_TEXT)
@example("1E400")
def test_as_many_values_as_tokens_or_one_line_whatever_the_text(text: str) -> None:
    expected = [float(value) for _, _, value in number_spans(text)]
    if math.inf in map(abs, expected):
        with pytest.raises(UserError, match="is beyond float64"):
            read(text)
        return
    for function in (read, read_paper):
        written, values = function(text)
        assert written.count(NUMBER) == len(values)
    assert read(text)[1] == expected
