"""Composing takes a tenth of a second, and many tests ask for the same config."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import pytest

from ntl.config import Config, compose


@pytest.fixture(scope="session")
def composed() -> Callable[..., Config]:
    """``composed("loss=ce", "seed=2")``: a copy of one's own of that config, composed once a session."""
    once = cache(lambda *overrides: compose(overrides))
    return lambda *overrides: deepcopy(once(*overrides))
