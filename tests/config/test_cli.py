"""A wrong command line ends in one line on standard error and exit code 2, before torch is imported."""

import errno
import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ntl.config import Diverged, UserError, compose
from ntl.config.cli import CLOSED, explain, help_asked, report
from ntl.config.composition import schemas
from ntl.config.folders import GROUPS, choices
from ntl.config.root import Config
from ntl.config.settings import describe

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}

MISTAKES = {
    "dataset=my.jsonl": ("dataset=my.jsonl: no such choice", "dataset=file dataset.path=my.jsonl"),
    "trainer.lr=abc": ("trainer.lr=abc", "could not be converted to Float"),
    "--nonsense": ("unrecognized arguments: --nonsense", "--help says what is taken"),
    "=3": ("=3: not a setting of the form key=value",),
    "trainer.lr": ("trainer.lr", "key=value"),
    "output_dir=a/${oc.env:NOT_SET_HERE}": ("output_dir: ", "NOT_SET_HERE"),
    f"-m seed=1,2 {shlex.quote(f'output_dir={__file__}/a')}": (
        "test_cli.py/a/.sweep",
        "Not a directory; give another path.",
    ),
}


FLAGS = ("--help", "--cfg job")

# train.py as the command line runs it, many times in one process, since the imports take most of the time.
PROGRAM = """
import contextlib, io, json, runpy, shlex, sys
outcomes = {}
for line in json.loads(sys.argv[2]):
    sys.argv, out, err = ["train.py", *shlex.split(line)], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(PATH, run_name="__main__")
        except SystemExit as exit:
            outcomes[line] = (exit.code, out.getvalue(), err.getvalue(), "torch" in sys.modules)
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str, bool]]:
    """Exit code, standard output and error, and whether torch was imported; the folder they ran in stays empty."""
    folder = tmp_path_factory.mktemp("cwd")
    program = PROGRAM.replace("PATH", repr(str(ROOT / "train.py")))
    command = [sys.executable, "-c", program, "-", json.dumps([*MISTAKES, *FLAGS])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True, env=ENVIRONMENT)
    assert list(folder.iterdir()) == []
    return json.loads(done.stdout)


@pytest.mark.parametrize("overrides", MISTAKES)
def test_a_mistake_on_the_command_line(overrides: str, outcomes: dict[str, Any]) -> None:
    code, out, err, torch = outcomes[overrides]
    assert (code, out, torch) == (2, "", False)
    assert err.startswith("error: ")
    assert (err.count("\n"), err[-1]) == (1, "\n")
    assert all(part in err for part in MISTAKES[overrides])


@pytest.mark.parametrize("flag", FLAGS)
def test_help_and_cfg_need_no_torch(flag: str, outcomes: dict[str, Any]) -> None:
    code, out, err, torch = outcomes[flag]
    assert (code, err, torch) == (0, "", False)
    assert "ntl_was" in out


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trainer.foo=1", "trainer.foo: no such setting; .*max_steps"),
        ("lss=ce", "lss: no such setting.*Did you mean 'loss'"),
        ("lr=1e-3", "lr: no such setting.*Did you mean 'trainer.lr'"),
        ("dataset.rows=1", "dataset has name, answers, format, .* Did you mean 'train_rows'"),
        ("dataset.path=my.jsonl", r"exhaustive_digits\. It is a setting of dataset=file, dataset=text\.$"),
        ("+dataset.rows=1", r"^\+dataset.rows: no such setting; dataset has name, .* Did you mean 'train_rows'"),
        ("loss.options.sigma=1", r"add it as \+loss.options.sigma=VALUE"),
        (
            "+loss.options.sigm=1 loss=gce",
            "loss.options.sigm: no such option; loss.kind=gce takes sigma. Did you mean 'sigma'?",
        ),
        ("+loss.options.delta=[1] loss=ntl_huber", r"^loss\.options\.delta=\[1\]: must be a number\.$"),
        ("+loss.options.base=ten loss=place_weighted", "^loss.options.base=ten: must be a number"),
        ("loss.options.delta=true loss=ntl_huber", r"^loss\.options\.delta=True: must be a number\.$"),
        ("loss=NTL_WASS", "Did you mean 'ntl_was'?"),
        ("model=t5_tiny model.heads=2", "Did you mean 'num_heads'"),
        ("loss.base.options.sigma=1", "loss.base: no such setting; loss has name, kind, weight, squash, options"),
        (
            "loss.kind=wass",
            "loss.kind=wass: 'wass' is none; choose one of ce, .*, or squared_error .* Did you mean 'was'?",
        ),
        ("path=x", "Did you mean one of 'model.path', 'tokenizer.path', 'dataset.path'"),
        ("model=t5-small", "Did you mean one of 't5_small', 't5_small_regression'"),
        ("loss=null", "loss=null: no such choice; loss is one of ce, "),
        ("tracking.tags=[größe]", "KEY='TEXT'"),
        ("hydra/launcher=slrm", "Did you mean 'slurm'"),
        ("hydra.launcher.partition=x", "hydra.launcher has none; take another, as hydra/launcher=slurm"),
        ("extra_decodings.median.batch_size=4", "add it as extra_decodings=median"),
        ("keep_steps=10", r"^keep_steps=10: .*list or tuple\.$"),
        ("objective.mask=0.15", "a group of settings; set one of objective.mask.fraction"),
    ],
)
def test_one_line_names_the_mistake_and_what_was_meant(override: str, said: str) -> None:
    with pytest.raises(Exception) as caught:
        compose(override.split())
    assert re.search(said, explain(caught.value))


def reported(error: BaseException) -> int:
    def main() -> None:
        raise error

    return report(main)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("x"), 2, "error: x\n"),
        (PermissionError(errno.EACCES, "refused", "some/file"), 2, "error: some/file: refused; give another path.\n"),
        (Diverged("x"), 3, "diverged: x\n"),
        (KeyboardInterrupt(), 130, "interrupted.\n"),
    ],
)
def test_exit_codes(error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported(error) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("unexpected"),
        BrokenPipeError("a worker has gone"),  # not the pipe of standard output
        PermissionError(errno.EACCES, "refused"),  # of a connection, since it names no path
        OSError(errno.EIO, "a fault of the disk", "some/file"),
    ],
)
def test_a_fault_of_the_program_shows_where_it_is(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported(error) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert str(error) in said


@pytest.mark.parametrize("size", [1, 100_000], ids=["breaks at the end", "breaks within print"])
def test_output_that_nobody_reads_ends_quietly(size: int, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as after `| head`
    with os.fdopen(writer, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        code = report(lambda: print("x" * size))
    # Leaving the block closed the stream, as the interpreter's end would; that must not raise either.
    assert code == CLOSED
    assert capsys.readouterr().err == ""


def test_a_sign_that_the_locale_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    with monkeypatch.context() as patch:
        stream = io.TextIOWrapper(raw, encoding="ascii")
        patch.setattr(sys, "stdout", stream)
        assert report(lambda: print("Zürich")) == 0
    assert raw.getvalue() == b"Z\\xfcrich\n"


# Every setting says what it is, and ``--help`` prints it.


def test_every_setting_is_described_in_a_sentence() -> None:
    """Where this fails: `setting(default, "What it does.", ...)` (docs/extending.md, A data set)."""
    for path, schema in {"": Config, **schemas()}.items():
        texts = describe(schema(), path and f"{path}.")
        assert texts, path
        assert [name for name, text in texts.items() if "\n" not in text or not text.endswith(".")] == []


def asked(line: str) -> str:
    text = help_asked(line.split())
    assert text is not None
    return text


def test_help_of_a_group_has_its_choices_and_each_of_its_settings() -> None:
    text = asked("--help trainer")
    assert text.splitlines()[:2] == [f"trainer: {GROUPS['trainer']}.", "trainer= ddp default fsdp"]
    for item in fields(schemas()["trainer/base"]):
        assert f"\n  trainer.{item.name}=" in text
        assert item.metadata["meaning"] in " ".join(text.split())
    for group in GROUPS:
        assert asked(f"--help {group}").splitlines()[1].split()[1:] == choices(group)


HELP = {
    "--help dataset=gsm8k scale=paper": "\ndataset=gsm8k: Grade-school word problems, whose answer",
    "-h dataset=gsm8k scale=paper": "  dataset.test_rows=0 rows; ≥ 0\n",
    "--help trainer.lr scale=paper": "  trainer.lr=0.0001; > 0\n      The highest learning rate. From: original code.",
    "--help trainer.lr trainer.lr=2e-3": "  trainer.lr=0.002; > 0\n      The highest learning rate.",
    "--help model.lora": "  model.lora\n      Low-rank adapters, trained in place of",
    "--help model.lora.full": "  model.lora.full=[]\n      Prefixes of",
    "--help model.dropout": "  model.dropout=0; ≥ 0, ≤ 0.9\n      Dropout; null, unless",
    "--help trainer.normalization": "  trainer.normalization=step; step, micro_batch\n",
    "--help trainer.bf16": "  trainer.bf16=false; true, false, auto\n",
    "--help dataset=file": '\n  dataset.path=""\n',
    "--help model=hf": '\n  model.path=""\n',
    "--help decoding=speculative": "\ndecoding=speculative: Greedy decoding in which",
    "--help seed loss.weight=3e-5": "  seed=1; ≥ 0, ≤ 4294967295\n",
}


@pytest.mark.parametrize("line", HELP)
def test_help_has_the_values_that_hold(line: str) -> None:
    text = asked(line)
    assert HELP[line] in text
    assert "dataset=gsm8k" in line or HELP[line][0] == "\n" or text.startswith(HELP[line])


def test_help_of_everything_needs_no_library() -> None:
    for alone in ("loss=ce seed=1", "loss=ce --help"):
        assert help_asked(alone.split()) is None


@pytest.mark.parametrize(
    ("line", "said"), [("--help traner", "Did you mean 'trainer'?"), ("--help lr", "Did you mean 'trainer.lr'?")]
)
def test_help_of_what_there_is_not(line: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        asked(line)
    assert said in str(caught.value)
