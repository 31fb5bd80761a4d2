"""Escaping: what is text stays text, in markup and in data."""

import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.results.report.markup import Html, data, element, join


def test_element_escapes_text_and_keeps_markup() -> None:
    assert element("p", "a < b", element("b", "&")) == "<p>a &lt; b<b>&amp;</b></p>"


def test_attributes_are_named_and_escaped() -> None:
    made = element("input", class_="x", data_rule='"<', checked=True, disabled=False, id=None, value=0)
    assert made == '<input class="x" data-rule="&quot;&lt;" checked value="0">'


def test_join_escapes_what_is_no_markup() -> None:
    assert join("<", Html("<br>"), "'") == "&lt;<br>&#x27;"
    assert isinstance(join("a"), Html)


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.texts += [value for name, value in attrs if name == "title" and value is not None]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"])).filter(str.strip))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    parser = _Texts()
    parser.feed(element("p", text, title=text))
    parser.close()
    assert parser.tags == ["p"]
    assert parser.texts[0] == text
    assert "".join(parser.texts[1:]) == text


def test_data_cannot_end_its_script() -> None:
    value = {"</script><!--": ["<script>", "é\u2028", None, 1.5]}
    text = data("x", value)
    inner = re.fullmatch(r'<script type="application/json" id="x">([^<]*)</script>', text)
    assert inner is not None
    assert json.loads(inner[1]) == value
    assert unescape("&lt;") not in inner[1]


def test_data_has_no_word_for_nan() -> None:
    with pytest.raises(ValueError):
        data("x", float("nan"))
