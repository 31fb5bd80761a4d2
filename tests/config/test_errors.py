"""Errors of the system in one line."""

from pathlib import Path

import pytest

from ntl.config.errors import UserError, one_line_errors


def test_errors_of_the_system_name_the_file_that_is_meant() -> None:
    with (
        pytest.raises(UserError, match=r"^cannot fill folder: No space left on device\.$"),
        one_line_errors("fill", Path("folder")),
    ):
        raise OSError(28, "No space left on device")
    with (
        pytest.raises(UserError, match=r"^cannot fill folder: Read-only file system \(folder/part\)\.$"),
        one_line_errors("fill", Path("folder")),
    ):
        raise OSError(30, "Read-only file system", "folder/part")


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), one_line_errors("fill", Path("folder")):
        raise ZeroDivisionError
