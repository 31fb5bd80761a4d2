"""How commands are named in messages: as they are typed in a clone, or from a wheel."""

import re
from pathlib import Path

import pytest

from ntl.cli import COMMANDS
from ntl.config import UserError, folders
from ntl.config.cli import Parser, report
from ntl.config.folders import as_typed

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {path: re.search(r'\brun\("([\w-]+)"\)', path.read_text()) for path in (ROOT / "scripts").glob("*.py")}


def test_a_clone_keeps_its_scripts() -> None:
    assert as_typed("decode it with scripts/predict.py") == "decode it with scripts/predict.py"


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("`python scripts/predict.py RUN` decodes", "`ntl predict RUN` decodes"),
        ("prepare it with scripts/prepare_data.py", "prepare it with ntl prepare"),
        ("settings as for train.py: seed=1", "settings as for ntl train: seed=1"),
        ("`torchrun --nproc-per-node 2 train.py ...`, or", "`torchrun --nproc-per-node 2 -m ntl train ...`, or"),
        ("my/train.py: no such file; my_train.py", "my/train.py: no such file; my_train.py"),
        *((f"python scripts/{path.name}", f"ntl {run[1]}") for path, run in SCRIPTS.items() if run),
    ],
)
def test_a_wheel_has_its_own_command(text: str, typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "IN_WHEEL", True)
    assert as_typed(text) == typed
    if typed.startswith("ntl "):
        assert typed.removeprefix("ntl ") in COMMANDS


def test_errors_and_help_are_in_the_words_of_the_wheel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folders, "IN_WHEEL", True)
    monkeypatch.setattr("sys.argv", ["ntl evaluate"])

    def main() -> None:
        raise UserError("decode it with scripts/predict.py")

    assert report(main) == 2
    assert capsys.readouterr().err == "error: decode it with ntl predict\n"
    text = Parser(description="as for train.py").format_help()
    assert text.startswith("usage: ntl evaluate [-h]")
    assert "\nas for ntl train\n" in text


def test_a_wrong_word_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["ntl errors", "--wrong"])
    parser = Parser()
    parser.add_argument("run")
    with pytest.raises(SystemExit) as caught:
        parser.parse_args()
    said = "error: the following arguments are required: run; ntl errors --help says what is taken.\n"
    assert (caught.value.code, *capsys.readouterr()) == (2, "", said)
