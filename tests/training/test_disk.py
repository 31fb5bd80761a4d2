"""A full disk in one line, whoever noticed it."""

import errno
from pathlib import Path

import pytest
import torch

from ntl.config import UserError
from ntl.training.disk import one_line_when_full

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
def test_what_python_and_torch_raise_on_a_full_device() -> None:
    with (
        pytest.raises(UserError, match=r"^outputs/x: .*No space left.*Make room"),
        one_line_when_full(Path("outputs/x")),
    ):
        FULL.write_text("a")
    with pytest.raises(UserError, match=r"^outputs/x: .*Make room"), one_line_when_full(Path("outputs/x")):
        torch.save(torch.zeros(1000), str(FULL))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.EROFS, "Read-only file system"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed\nmore of it"),
    ],
)
def test_other_words_for_it(error: Exception) -> None:
    with pytest.raises(UserError) as raised, one_line_when_full(Path("outputs/x")):
        raise error
    assert raised.value.__cause__ is error
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "gone"), ValueError("no"), UserError("No space left")]
)
def test_everything_else_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, one_line_when_full(Path("outputs/x")):
        raise error
    assert raised.value is error
