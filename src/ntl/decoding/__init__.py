"""Predictions from a trained model: the last step that needs a GPU."""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.decoding.batches import decode as decode
    from ntl.decoding.digit_median import DigitMedian as DigitMedian
    from ntl.decoding.distribution import NumberDistribution as NumberDistribution
    from ntl.decoding.reader import NumberReader as NumberReader

__getattr__, __all__ = exports(__name__, __file__)
