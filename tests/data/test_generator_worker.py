"""The generator's program, run as a program against a small stand-in for the packages of its own environment."""

import random
import runpy
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from ntl.data.files import Pair, Pairs, read_file
from ntl.data.sets.generator import WORKER

PACKAGES = {
    "numpy.py": "from types import SimpleNamespace\nseeds = []\nrandom = SimpleNamespace(seed=seeds.append)\n",
    "absl/__init__.py": "",
    "absl/flags.py": "parsed = []\nFLAGS = parsed.append\n",
    "sympy/__init__.py": "",
    "sympy/solvers/__init__.py": "",
    "sympy/solvers/diophantine/__init__.py": "",
    "sympy/solvers/diophantine/diophantine.py": "def base_solution_linear(): return 'moved'\n",
    "mathematics_dataset/__init__.py": "",
    "mathematics_dataset/generate.py": """
import random
import numpy
from absl import flags
from types import SimpleNamespace

filtered_modules = {}

def init_modules(train_split):
    assert flags.parsed == [["generator_worker"]]
    filtered_modules["train-easy" if train_split else "test"] = {"add": "easy add", "mul": "easy mul"}

def sample_from_module(sampler):
    number = random.randrange(10**6)
    if number % NEVER == 0:
        raise ValueError(f"no question for {number}")
    return SimpleNamespace(question=f"{sampler} {numpy.seeds} {number}", answer=str(number)), 3
""",
}


def read_pairs(path: Path) -> list[Pair]:
    return list(Pairs(read_file(path), str(path)))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    for name, text in PACKAGES.items():
        path = tmp_path / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("NEVER", "10**9 - 1"))
    return tmp_path / "packages"


def run(environment: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-S", str(WORKER), *arguments]
    # PYTHONPATH comes before site-packages, and -S leaves those out.
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(environment)})


def test_the_seed_is_that_of_regime_and_module(environment: Path, tmp_path: Path) -> None:
    done = run(environment, "train-easy", "add", "3", str(tmp_path / "add.txt"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    seed = zlib.crc32(b"train-easy/add")
    draw = random.Random(seed)
    expected = [draw.randrange(10**6) for _ in range(3)]
    assert read_pairs(tmp_path / "add.txt") == [(f"easy add [{seed}] {number}", str(number)) for number in expected]


def test_a_shorter_file_is_a_prefix_of_a_longer_one_and_modules_differ(environment: Path, tmp_path: Path) -> None:
    for name, module, count in (("short", "add", "2"), ("long", "add", "5"), ("other", "mul", "2")):
        assert run(environment, "train-easy", module, count, str(tmp_path / name)).returncode == 0
    short, long, other = (read_pairs(tmp_path / name) for name in ("short", "long", "other"))
    assert (len(short), len(long)) == (2, 5)
    assert long[:2] == short
    assert {answer for _, answer in other}.isdisjoint(answer for _, answer in long)


def test_a_question_that_raises_ends_the_run(environment: Path, tmp_path: Path) -> None:
    source = environment / "mathematics_dataset" / "generate.py"
    source.write_text(source.read_text().replace("10**9 - 1", "1"))
    done = run(environment, "train-easy", "add", "3", str(tmp_path / "add.txt"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: no question for ")


def test_the_patch_gives_back_two_names(environment: Path, tmp_path: Path) -> None:
    check = tmp_path / "check.py"
    check.write_text(
        "import runpy, numpy, sympy.solvers.diophantine as module\n"
        "had = hasattr(module, 'base_solution_linear'), hasattr(numpy, 'object')\n"
        f"runpy.run_path({str(WORKER)!r})['patch']()\n"
        "print(had, module.base_solution_linear(), numpy.object is object)\n"
    )
    command = [sys.executable, "-S", str(check)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(environment)})
    assert done.stdout == "(False, False) moved True\n"


@pytest.mark.parametrize(("flag", "patched"), [("--patch", True), ("--other", False)])
def test_it_patches_only_when_told(environment: Path, tmp_path: Path, flag: str, patched: bool) -> None:
    (environment / "sympy" / "solvers" / "diophantine" / "diophantine.py").write_text("raise OSError('patching')\n")
    done = run(environment, "train-easy", "add", "1", str(tmp_path / "add.txt"), flag)
    assert ("OSError: patching" in done.stderr) == patched
    assert (tmp_path / "add.txt").exists() != patched


def test_it_imports_nothing_of_this_project() -> None:
    names = runpy.run_path(str(WORKER))
    assert {"main", "patch", "random", "sys", "zlib"} == {name for name in names if not name.startswith("__")}
