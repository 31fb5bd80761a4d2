"""A full disk is reported in one line, whichever library noticed it."""

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from ntl.config import UserError
from ntl.system.errors import one_line_when_full

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
        RuntimeError("basic_ios::clear: iostream error"),
        OSError("60000 requested and 10208 written"),
        OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
    ],
)
def test_other_words_for_it(error: Exception) -> None:
    with pytest.raises(UserError) as raised, one_line_when_full(Path("outputs/x")):
        raise error
    assert raised.value.__cause__ is error
    assert "\n" not in str(raised.value)


def test_what_numpy_arrow_and_safetensors_raise_on_a_full_disk(
    tmp_path: Path, mount: Callable[..., None], on_a_full_disk: Callable[[Path], None]
) -> None:
    mount(tmp_path, "-t", "tmpfs", "-o", "size=256k", "tmpfs")
    with pytest.raises(UserError, match=r"Make room"), one_line_when_full(tmp_path):
        on_a_full_disk(tmp_path / "file")


@pytest.fixture(params=["numpy", "safetensors", "torch", "arrow"])
def on_a_full_disk(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Write 400 kB to a file."""
    tensor = torch.zeros(100_000)

    def arrow(path: Path) -> None:
        import pyarrow

        with pyarrow.OSFile(str(path), "wb") as sink:
            sink.write(tensor.numpy().tobytes())

    return {
        "numpy": lambda path: np.save(path, tensor.numpy()),
        "safetensors": lambda path: save_file({"a": tensor}, path),
        "torch": lambda path: torch.save(tensor, str(path)),
        "arrow": arrow,
    }[request.param]


WRONG_PLACES: dict[str, Callable[[Path], object]] = {
    "Is a directory": lambda path: path.mkdir(),
    "No such file or directory": lambda path: path.symlink_to(path.parent / "gone" / "x"),
    "Too many levels of symbolic links": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("why", WRONG_PLACES)
def test_something_else_in_the_place_of_a_file_of_the_run(why: str, tmp_path: Path) -> None:
    WRONG_PLACES[why](tmp_path / "config.yaml")
    line = rf"a file cannot be written or read \(.*{why}.*config\.yaml.*\); move away"
    with pytest.raises(UserError, match=line), one_line_when_full(tmp_path):
        (tmp_path / "config.yaml").write_text("a")
    with pytest.raises(OSError, match=why), one_line_when_full(tmp_path / "another run"):
        (tmp_path / "config.yaml").write_text("a")


def test_the_same_told_by_a_library_in_rust(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").symlink_to(tmp_path / "tokenizer.json")
    with (
        pytest.raises(UserError, match=r"Too many levels of symbolic links \(os error 40\)"),
        one_line_when_full(tmp_path),
    ):
        Tokenizer(WordLevel()).save(str(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "gone"), ValueError("no"), UserError("No space left")]
)
def test_everything_else_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, one_line_when_full(Path("outputs/x")):
        raise error
    assert raised.value is error
