"""Dotted paths become objects of this project, or one line."""

from dataclasses import dataclass

import pytest

from ntl.config import UserError, build
from ntl.config.targets import locate


def test_locate() -> None:
    from ntl.losses import ntl_was

    assert locate("ntl.losses.ntl_was") is locate("ntl.losses.wasserstein.ntl_was") is ntl_was


@dataclass
class Wanted:
    _target_: str = "ntl.config.report.one_line"


def test_build(monkeypatch: pytest.MonkeyPatch) -> None:
    from ntl.config import report

    def one_line(config: object, extra: int) -> tuple[object, int]:
        return config, extra

    one_line.__module__ = report.__name__
    monkeypatch.setattr(report, "one_line", one_line, raising=False)
    assert build(Wanted(), extra=2) == (Wanted(), 2)


@pytest.mark.parametrize("target", ["ntl.losses.no_such", "ntl.no_such_package.x", "ntl..losses"])
def test_a_wrong_path_is_named(target: str) -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        locate(target)


@pytest.mark.parametrize("target", ["os.system", "fractions.Fraction", "ntlx.losses.ce", "ntl", ""])
def test_what_lies_elsewhere_is_not_even_imported(target: str) -> None:
    with pytest.raises(UserError, match=r"not in ntl, and code from elsewhere is never called"):
        locate(target)


@pytest.mark.parametrize(
    "target",
    [
        "ntl.system.machine.subprocess.run",
        "ntl.system.machine.os.system",
        "ntl.losses.rows.torch.load",
        "ntl.losses.ntl_was.__globals__",
        "ntl.losses.ntl_was.__class__",
        "ntl.losses.rows",
        "ntl.config.targets.NAME.fullmatch",
    ],
)
def test_what_a_module_of_ours_imports_is_not_ours(target: str) -> None:
    with pytest.raises(UserError, match=r"no class or function that ntl defines|cannot be imported"):
        locate(target)
