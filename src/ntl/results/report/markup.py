"""HTML from Python values: whatever is not markup already is escaped, so that text stays text."""

import json
from html import escape
from typing import Any

# Elements without an end tag.
_VOID = {"img", "input", "link", "meta"}


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def join(*parts: str) -> Html:
    """The parts one after the other, text escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def element(tag: str, /, *children: str, **attributes: str | int | bool | None) -> Html:
    """``<tag ...>children</tag>``.

    ``class_`` is the attribute ``class``, ``data_rule`` is ``data-rule``. True is an attribute without a value, False
    and None leave it out.
    """
    written = [tag]
    for key, value in attributes.items():
        word = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(word)
        elif value is not None and value is not False:
            written.append(f'{word}="{escape(str(value))}"')
    start = f"<{' '.join(written)}>"
    return Html(start if tag in _VOID else f"{start}{join(*children)}</{tag}>")


def data(name: str, value: Any) -> Html:
    """``value`` as JSON in a script element with the id ``name``; nothing in it can end the element or start another.

    ValueError for what JSON has no word for, such as NaN.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return element("script", Html(text.replace("<", "\\u003c")), type="application/json", id=name)
