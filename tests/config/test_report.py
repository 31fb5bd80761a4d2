"""A wrong command line ends in one line on standard error and exit code 2, before torch is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from ntl.config import Diverged, UserError
from ntl.config.report import report

ROOT = Path(__file__).resolve().parents[2]

MISTAKES = {
    "loss=ntl_wsa": ("loss=ntl_wsa: no such choice", "Did you mean 'ntl_was'?"),
    "trainer.lr=abc": ("trainer.lr=abc", "could not be converted to Float"),
    "trainer.foo=1": ("trainer.foo: no such setting", "max_steps"),
    "trainer.max_step=1": ("trainer.max_step", "Did you mean 'max_steps'?"),
    "loss.weight=-1": ("loss.weight=-1.0", "at least 0"),
    "model=t5_tiny tokenizer=xval": ("tokenizer=xval", "digit"),
    "lss=ce": ("lss: no such setting", "Did you mean 'loss'?"),
    "trainer.lr": ("trainer.lr", "key=value"),
    "model.path=/no/such/folder": ("model.path=/no/such/folder", "owner/name"),
    "trainer.schedule=plateu": ("trainer.schedule=plateu", "plateau"),
}


@pytest.mark.parametrize("overrides", MISTAKES)
def test_a_mistake_on_the_command_line(overrides: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", ROOT / "train.py", *overrides.split(), f"output_dir={tmp_path / 'out'}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1)
    assert lines[0].startswith("error: ")
    assert all(part in lines[0] for part in MISTAKES[overrides])
    assert "| torch" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_and_cfg_need_no_torch(tmp_path: Path) -> None:
    for flags in (["--help"], ["--cfg", "job"]):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", ROOT / "train.py", *flags],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0
        assert "ntl_was" in done.stdout
        assert "| torch" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [(UserError("x"), 2), (Diverged("x"), 3), (KeyboardInterrupt(), 130), (RuntimeError("x"), 1), (None, 0)],
)
def test_exit_codes(error: BaseException | None, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        if error is not None:
            raise error

    assert report(main) == code
    assert len(capsys.readouterr().err.splitlines()) == (0 if code == 0 else 1) or code == 1


def test_a_fault_of_the_program_shows_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise RuntimeError("unexpected")

    assert report(main) == 1
    assert "Traceback" in capsys.readouterr().err
