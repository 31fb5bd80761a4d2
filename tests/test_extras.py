"""The losses need torch and numpy alone; whatever else is used without its extra says in one line which one it is."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = [path for path in sorted((ROOT / "scripts").glob("*.py")) if path.stem != "notebooks"]
# Of a digit-level vocabulary; equal logits, so that the value can be computed by hand.
LOSS = """
import math, torch
import ntl.losses, ntl.numbers
from ntl import NumberTokenLoss
from ntl.numbers import parse_number

class Tokenizer:
    def get_vocab(self):
        return {token: index for index, token in enumerate([*"0123456789", "a", "b"])}
    def encode(self, text, **options):
        return [self.get_vocab()[character] for character in text if character in self.get_vocab()]

loss = NumberTokenLoss.from_tokenizer(Tokenizer(), shift=False, weight=0.5)
logits = torch.zeros(1, 3, 12, requires_grad=True)
value = loss(logits, torch.tensor([[0, 9, 10]]))
value.backward()
# CE of 12 equal tokens; the mean distance of ten equal digits to 0 and to 9 is 4.5.
assert abs(value.item() - (math.log(12) + 0.5 * 4.5)) < 1e-5, value
assert parse_number("-1,234.50") is not None
assert all([getattr(module, name) for module in (ntl.losses, ntl.numbers) for name in module.__all__])
print("right")
"""
BLOCK = """
import contextlib, importlib.abc, io, json, runpy, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
MISSING = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Missing())
"""
PREDICTIONS = [
    {"header": {"schema": 1, "dataset": "noisy_numbers", "metrics": "number", "decoding": {}, "baselines": {}}},
    {"id": "test/00000", "split": "test", "question": "1 =", "answer": "1", "prediction": "1"},
]
RUN = """
outcomes = {}
for path, arguments in json.loads(sys.argv[2]).items():
    sys.argv, out, err = [path, *arguments], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as exit:
            outcomes[path] = (exit.code, out.getvalue(), err.getvalue())
print(json.dumps(outcomes))
"""


def modules_beyond_torch() -> list[str]:
    """The modules that the extras bring, and what those need themselves but torch and numpy do not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = {Requirement(line).name for extra in project["optional-dependencies"].values() for line in extra}
    named = {"pyyaml": "yaml", "hydra-core": "hydra", "scikit-learn": "sklearn", "protobuf": "google"}
    modules = {named.get(name, name.replace("-", "_")) for name in listed} - {"torch", "numpy"}
    assert {"transformers", "datasets", "yaml", "hydra", "omegaconf", "rich", "matplotlib"} <= modules
    return sorted(modules | {"packaging", "regex", "tqdm", "requests", "httpx", "pyarrow"})


def python(program: str, *arguments: str, cwd: Path, source: Path = ROOT / "src") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", BLOCK + program, json.dumps(modules_beyond_torch()), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


@pytest.mark.slow
def test_a_wheel_without_extras_has_the_losses(tmp_path: Path) -> None:
    """What a user's ``pip install .`` builds: it asks for torch and numpy alone, and they are enough."""
    made = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*made, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("ntl-*.whl")
    about = f"{wheel.stem.partition('-py3')[0]}.dist-info"
    with ZipFile(wheel) as packed:
        assert {name.partition("/")[0] for name in packed.namelist()} == {"ntl", about}
        lines = packed.read(f"{about}/METADATA").decode().splitlines()
        packed.extractall(tmp_path / "site")
    asked = [line for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert {Requirement(line.partition(" ")[2]).name for line in asked} == {"torch", "numpy"}
    done = python(LOSS, cwd=tmp_path, source=tmp_path / "site")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


@pytest.mark.slow
def test_every_program_without_its_extra_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in PREDICTIONS))
    arguments = {
        "evaluate": [str(folder)],
        "benchmark_decoding": [str(folder)],
        "calibrate": [str(folder)],
        "prepare_data": ["noisy_numbers"],
        "publish": [str(folder)],
        "loss_curves": ["--out", str(tmp_path / "curves")],
    }
    commands = {str(path): arguments.get(path.stem, []) for path in (ROOT / "train.py", *SCRIPTS)}
    done = python(RUN, json.dumps(commands), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = {Path(path).stem: outcome for path, outcome in json.loads(done.stdout).items()}
    assert len(said) == len(commands) > 14
    assert said.pop("loss_curves") == [0, "", ""]  # torch is all that it needs
    for name, (code, out, err) in said.items():
        extra = "report" if name.startswith(("make_", "readings_")) else "train"
        line = rf"error: \w+ is not installed; run pip install -e '\.\[{extra}\]' in the clone\.\n"
        assert (code, out, bool(re.fullmatch(line, err))) == (2, "", True), (name, err)
