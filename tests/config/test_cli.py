"""A wrong command line ends in one line on standard error and exit code 2, before torch is imported."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from ntl.config import Diverged, UserError, compose
from ntl.config.cli import CLOSED, Parser, explain, report

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}

MISTAKES = {
    "loss=ntl_wsa": ("loss=ntl_wsa: no such choice", "Did you mean 'ntl_was'?"),
    "trainer.lr=abc": ("trainer.lr=abc", "could not be converted to Float"),
    "trainer.foo=1": ("trainer.foo: no such setting", "max_steps"),
    "trainer.max_step=1": ("trainer.max_step", "Did you mean 'max_steps'?"),
    "loss.weight=-1": ("loss.weight=-1.0", "at least 0"),
    "model=t5_tiny tokenizer=xval": ("tokenizer=xval", "digit"),
    "lss=ce": ("lss: no such setting", "Did you mean 'loss'?"),
    "trainer.lr": ("trainer.lr", "key=value"),
    "lr=1e-3": ("lr: no such setting", "Did you mean 'trainer.lr'?"),
    "dataset=/some/file.jsonl": (
        "dataset=/some/file.jsonl: no such choice",
        "dataset=file dataset.path=/some/file.jsonl",
    ),
    "model=owner/name": ("model=owner/name: no such choice", "model.path=owner/name"),
    "model.path=/no/such/folder": ("model.path=/no/such/folder", "owner/name"),
    "tracking=none tracking.project=mine": ("tracking=none", "tracking=wandb"),
    "trainer.schedule=plateu": ("trainer.schedule=plateu", "plateau"),
    "output_dir=a/${x}": ("output_dir: ", "'x' not found"),
    "output_dir=a/${oc.env:NOT_SET_HERE}": ("output_dir: ", "NOT_SET_HERE"),
    "output_dir=a/\\${x}": ("output_dir=a/${x}: ", "write the value"),
    "data_dir=a/\\${x}": ("data_dir=a/${x}: ", "write the value"),
    **{
        f"{name}={'a' * 300}": (f"{name}=aaa", "aaa: File name too long; give another path.")
        for name in ("output_dir", "data_dir", "model.path", "tokenizer.path", "resume")
    },
    f"output_dir={'b/' * 2500}": ("output_dir=b/b/", "File name too long; give another path."),
    f"-m seed=1,2 output_dir={'a' * 300}": ("aaa", "File name too long; give another path."),
    f"-m seed=1,2 output_dir={__file__}/a": ("test_cli.py/a/.sweep", "Not a directory; give another path."),
}


FLAGS = ("--help", "--cfg job")

# train.py as the command line runs it, many times in one process, since the imports take most of the time.
PROGRAM = """
import contextlib, io, json, runpy, sys
outcomes = {}
for line in json.loads(sys.argv[2]):
    sys.argv, out, err = ["train.py", *line.split()], io.StringIO(), io.StringIO()
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


def test_a_mistake_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "train.py", "loss=ntl_wsa"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: loss=ntl_wsa: no such choice; loss is one of ce, ce_digits,")


def message(*overrides: str) -> str:
    with pytest.raises(Exception) as caught:
        compose(overrides)
    return explain(caught.value)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["dataset=noisy_numbers", "dataset.rows=1"],
            "dataset.rows: no such setting; dataset has name, answers, train_rows, validation_rows, test_rows, "
            "noise_sd, seed. Did you mean 'test_rows'?",
        ),
        (["loss.number.foo=1"], "loss.number.foo: no such setting; loss.number has options."),
        (
            ["+dataset.rows=1"],
            "+dataset.rows: no such setting; choose one of name, answers, max_digits, extrapolate_digits, train_rows, "
            "validation_rows, test_rows_per_cell, test_share, seed, exhaustive_digits. Did you mean 'train_rows'?",
        ),
        (
            ["loss.base.options.sigma=1"],
            "loss.base.options.sigma: loss.base.options has no such key yet; add it as +loss.base.options.sigma=VALUE.",
        ),
    ],
)
def test_an_unknown_key_lists_the_settings_of_the_group_that_was_chosen(overrides: list[str], said: str) -> None:
    assert message(*overrides) == said


def test_an_unknown_key_of_a_model_lists_the_settings_of_its_family() -> None:
    assert message("model=t5_tiny", "model.n_embd=3").startswith(
        "model.n_embd: no such setting; model has name, family, head, hub_id, tokenizer_hub_id, path, requires,"
    )


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        # A key of a group is suggested with its group.
        ("+lr=1", "Did you mean 'trainer.lr'?"),
        ("train_rows=4", "Did you mean 'dataset.train_rows'?"),
        ("rank=4", "Did you mean 'model.lora.rank'?"),
        ("path=x", "Did you mean one of 'model.path', 'tokenizer.path', 'dataset.path'?"),
        ("name=x", "device."),  # every group has one, and none is meant to be set
        # The beginning of a name suggests all that begin so.
        (
            "model=gpt2",
            "Did you mean one of 'gpt2_small', 'gpt2_medium', 'gpt2_large', 'gpt2_xl', 'gpt2_small_regression', "
            "'gpt2_tiny', 'gpt2_tiny_regression'?",
        ),
        ("model=t5-small", "Did you mean one of 't5_small', 't5_small_regression'?"),
        ("model=GPT-2-xl", "Did you mean 'gpt2_xl'?"),
        ("loss=cdf", "Did you mean 'ntl_was_cdf'?"),
        ("loss=huber", "Did you mean 'ntl_huber'?"),
        ("dataset=math", "Did you mean 'mathematics'?"),
        ("dataset=jokes", "Did you mean 'rjokes'?"),
        ("dataset=multiply", "Did you mean 'multiplication'?"),
        ("dataset=noisy-numbers", "Did you mean 'noisy_numbers'?"),
        ("tokenizer=digits", "Did you mean 'digit'?"),
        ("decoding=greddy", "Did you mean 'greedy'?"),
        # A setting by another name for it, or without its group and mistyped.
        ("learning_rate=1e-3", "Did you mean 'trainer.lr'?"),
        ("trainer.learning_rate=1e-3", "Did you mean 'trainer.lr'?"),
        ("batchsize=8", "Did you mean one of 'trainer.batch_size', 'decoding.batch_size'?"),
        ("max_step=8", "Did you mean 'trainer.max_steps'?"),
        ("beams=4", "Did you mean 'decoding.num_beams'?"),
        ("datset=gsm8k", "Did you mean 'dataset'?"),
        ("model=llama", "Did you mean one of 'llama_mini', 'llama_tiny'?"),
        ("model=gpt2_smal", "Did you mean one of 'gpt2_small', 'gpt2_small_regression'?"),
        ("loss=was", "Did you mean 'ntl_was'?"),
        ("scale=vast", "scale is one of finetune, hour, paper, small, tiny."),
        ("dataset=file.jsonl", "A file is given by dataset=file dataset.path=file.jsonl."),
        ("model=./weights", "Weights are given by model.path=./weights, with a model= of their kind."),
        ("hydra/launcher=slrm", "Did you mean 'slurm'?"),
    ],
)
def test_what_was_meant(override: str, hint: str) -> None:
    assert message(override).endswith(hint)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["loss=ce", "loss.number.options.x=1"],
            "error: a setting is given below one that is null, as loss.number is for loss=ce.\n",
        ),
        (
            ["objective.mask=0.15"],
            "error: objective.mask=0.15: no value but a group of settings; set one of objective.mask.fraction, "
            "objective.mask.variant, objective.mask.numbers, objective.mask.copy, objective.mask.min_answer.\n",
        ),
        (["model=null"], "error: a group cannot be null: leave it out, or choose one of its names.\n"),
    ],
)
def test_what_is_no_group_of_settings_is_one_line(
    overrides: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(lambda: print(compose(overrides))) == 2
    assert capsys.readouterr().err == said


def test_an_error_of_omegaconf_alone_names_its_key() -> None:
    with pytest.raises(Exception) as caught:
        OmegaConf.to_container(OmegaConf.create({"a": {"b": "${nope}"}}), resolve=True)
    assert explain(caught.value) == "a.b: Interpolation key 'nope' not found."


def reported(error: BaseException | None) -> int:
    def main() -> None:
        if error is not None:
            raise error

    return report(main)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (UserError("x"), 2, "error: x\n"),
        (Diverged("x"), 3, "diverged: x\n"),
        (KeyboardInterrupt(), 130, "interrupted.\n"),
    ],
)
def test_exit_codes(error: BaseException | None, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported(error) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("unexpected"),
        BrokenPipeError("a worker has gone"),  # not the pipe of standard output
        PermissionError(errno.EACCES, "refused"),  # of a connection, since it names no path
    ],
)
def test_a_fault_of_the_program_shows_where_it_is(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported(error) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert str(error) in said


@pytest.mark.parametrize(
    ("number", "code"),
    [
        *((number, 2) for number in (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EROFS)),
        *((number, 1) for number in (errno.EIO, errno.ENOENT)),
    ],
)
def test_a_path_that_cannot_be_followed(number: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported(OSError(number, os.strerror(number), "x" * 300)) == code
    said = capsys.readouterr().err
    if code == 2:
        assert said == f"error: {'x' * 40}...{'x' * 40}: {os.strerror(number)}; give another path.\n"
    else:
        assert "Traceback" in said


def test_a_wrong_word_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="x.py")
    parser.add_argument("run")
    with pytest.raises(SystemExit) as caught:
        parser.parse_args([])
    said = "error: the following arguments are required: run; x.py --help says what is taken.\n"
    assert (caught.value.code, *capsys.readouterr()) == (2, "", said)


@pytest.mark.parametrize("size", [1, 100_000], ids=["breaks at the end", "breaks within print"])
def test_output_that_nobody_reads_ends_quietly(
    size: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as after `| head`
    with os.fdopen(writer, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        code = report(lambda: print("x" * size))
    # Leaving the block closed the stream, as the interpreter's end would; that must not raise either.
    assert code == CLOSED
    assert capsys.readouterr().err == ""
