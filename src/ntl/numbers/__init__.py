"""Numbers in text (exact, without torch) and in a vocabulary (token id -> value)."""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.numbers.text import format_number as format_number
    from ntl.numbers.text import last_number_paper as last_number_paper
    from ntl.numbers.text import parse_number as parse_number
    from ntl.numbers.text import signed_log as signed_log
    from ntl.numbers.vocabulary import NumberVocabulary as NumberVocabulary

__getattr__, __all__ = exports(__name__, __file__)
