"""What a number is: in text (exact, without torch) and in a vocabulary (token id -> value)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.numbers.scale import signed_exp, signed_log
    from ntl.numbers.text import find_numbers, format_number, last_number_paper, parse_number
    from ntl.numbers.vocabulary import NumberVocabulary

__all__ = [
    "NumberVocabulary",
    "find_numbers",
    "format_number",
    "last_number_paper",
    "parse_number",
    "signed_exp",
    "signed_log",
]

_MODULES = {
    "NumberVocabulary": "vocabulary",
    "find_numbers": "text",
    "format_number": "text",
    "last_number_paper": "text",
    "parse_number": "text",
    "signed_exp": "scale",
    "signed_log": "scale",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
