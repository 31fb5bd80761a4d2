"""Errors of the system are reported in one line."""

import sys
from pathlib import Path

import pytest

from ntl.system.errors import MissingPackage, UserError, needs, one_line_errors


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


@pytest.mark.parametrize(
    ("module", "asked", "extra"),
    [
        ("transformers", "train", "train"),
        ("google.protobuf", "train", "train"),  # of protobuf
        ("yaml", "train", "train"),
        ("yaml", "report", "report"),  # both contain it: the one that is asked for
        ("matplotlib", "train", "report"),  # only this one contains it
        ("peft", "train", "lora"),
        ("submitit", "train", "slurm"),
        ("hydra_plugins.hydra_submitit_launcher", "train", "slurm"),
    ],
)
def test_a_package_that_is_missing_names_its_extra(
    module: str, asked: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    line = f"{module} is not installed; run pip install -e '.[{extra}]' in the clone."
    with pytest.raises(MissingPackage) as caught, needs(asked), needs("train"):
        __import__(module)
    assert str(caught.value) == line
    assert isinstance(caught.value, UserError)
    assert isinstance(caught.value, ImportError)
    assert caught.value.name == module


@pytest.mark.parametrize("module", ["ntl.no_such_module", "no_such_package", "hydra_no_such_package"])
def test_what_no_extra_brings_is_a_fault_of_the_program(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named") as caught, needs("train"):
        __import__(module)
    assert not isinstance(caught.value, UserError)
