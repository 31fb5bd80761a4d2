"""Errors of the system, a missing package and a full disk are reported in one line, whoever noticed."""

import errno
import sys
from pathlib import Path

import pytest

from ntl.system.errors import MissingPackage, UserError, needs, one_line_errors
from ntl.training.train import one_line_when_full


def test_errors_of_the_system_name_the_file_that_is_meant() -> None:
    folder = Path("folder")
    line = r"^cannot fill folder: No space left on device\.$"
    with pytest.raises(UserError, match=line), one_line_errors("fill", folder):
        raise OSError(28, "No space left on device")
    line = r"^cannot fill folder: Read-only file system \(folder/part\)\.$"
    with pytest.raises(UserError, match=line), one_line_errors("fill", folder):
        raise OSError(30, "Read-only file system", "folder/part")
    with pytest.raises(ZeroDivisionError), one_line_errors("fill", folder):
        raise ZeroDivisionError


def test_a_package_that_is_missing_names_the_innermost_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(MissingPackage) as caught, needs("report"), needs("train"):
        __import__("google.protobuf")
    assert str(caught.value) == "google.protobuf is not installed; run pip install -e '.[train]' in the clone."
    assert isinstance(caught.value, UserError)
    assert isinstance(caught.value, ImportError)
    assert caught.value.name == "google.protobuf"
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'ntl\.none'$"), needs("train"):
        __import__("ntl.none")


# ---- full disks


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed\nmore of it"),
        RuntimeError("basic_ios::clear: iostream error"),
        OSError("60000 requested and 10208 written"),
    ],
)
def test_other_words_for_it(error: Exception) -> None:
    with pytest.raises(UserError, match=r"^outputs/x: [^\n]*Make room[^\n]*$"), one_line_when_full(Path("outputs/x")):
        raise error
