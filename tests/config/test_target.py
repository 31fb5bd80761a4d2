"""Dotted paths become objects, or one line."""

from dataclasses import dataclass

import pytest

from ntl.config import UserError, build
from ntl.config.target import locate


def test_locate_and_build() -> None:
    from fractions import Fraction

    assert locate("fractions.Fraction") is Fraction

    @dataclass
    class Config:
        _target_: str = f"{__name__}.make"

    assert build(Config(), extra=2) == (Config(), 2)


def make(config: object, extra: int) -> tuple[object, int]:
    return config, extra


@pytest.mark.parametrize("target", ["ntl.losses.no_such", "no_such_package.x", ""])
def test_a_wrong_path_is_named(target: str) -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        locate(target)
