"""The command ``ntl``: every script is one of its commands, and its help is there at once."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

from ntl import __version__
from ntl.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]
OF_THE_CLONE = {"audit", "install", "notebooks", "same_runs"}
HEAVY = ["hydra", "omegaconf", "yaml", "numpy", "torch"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there(name: str) -> None:
    assert callable(resolve_name(COMMANDS[name].target))


def test_every_script_is_a_command() -> None:
    texts = {path.stem: path.read_text() for path in (ROOT / "train.py", *(ROOT / "scripts").glob("*.py"))}
    named = {stem: re.findall(r'\brun\("([\w-]+)"\)', text) for stem, text in texts.items() if stem not in OF_THE_CLONE}
    assert sorted(name for names in named.values() for name in names) == sorted(COMMANDS)


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == main([]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out and command.about in out for name, command in COMMANDS.items())
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ntl {__version__}\n"


@pytest.mark.parametrize(
    ("word", "remedy"), [("trian", "Did you mean 'train'?"), ("loss=ce", "Settings follow the command: ntl train")]
)
def test_an_unknown_command_is_one_line(word: str, remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: {word}: no such command; choose one of train, predict,")
    assert remedy in err


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]], ids=" ".join)
def test_help_loads_no_library(words: list[str], tmp_path: Path) -> None:
    """So that it is there within 0.3 s; run as ``python -m ntl``, from a folder of its own."""
    program = (
        f"import runpy, sys\nsys.argv = ['ntl', *{words!r}]\n"
        "try:\n    runpy.run_module('ntl', run_name='__main__', alter_sys=True)\nexcept SystemExit as exit:\n"
        f"    import json; print(json.dumps([exit.code, sorted({{*{HEAVY!r}}} & sys.modules.keys())]))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []], done.stderr
    assert "ntl train" in done.stdout or "  train " in done.stdout
