import sys
from pathlib import Path

import pytest

INIT = '''"""A package."""

from typing import TYPE_CHECKING

from ntl.system.lazy import exports

if TYPE_CHECKING:
    from made_up.other import later as later
    from made_up.some import One as One
    from made_up.some import two as two

__getattr__, __all__ = exports(__name__, __file__)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "made_up"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "some.py").write_text("class One: ...\ntwo = 2\nthree = 3\n")
    (folder / "other.py").write_text("raise ImportError('of another kind')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("made_up")
    for name in [name for name in sys.modules if name.partition(".")[0] == "made_up"]:
        del sys.modules[name]


def test_a_module_is_imported_when_a_name_of_it_is_asked_for(package) -> None:
    assert package.__all__ == ["One", "later", "two"]
    assert "made_up.some" not in sys.modules
    assert package.two == 2
    assert package.One is sys.modules["made_up.some"].One
    assert "made_up.other" not in sys.modules


def test_other_names_and_modules_that_fail(package) -> None:
    with pytest.raises(AttributeError, match="module 'made_up' has no attribute 'three'"):
        _ = package.three
    with pytest.raises(ImportError, match="of another kind"):
        _ = package.later
