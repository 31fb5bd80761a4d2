import random
import runpy
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data.files import Pair, Pairs, iterate_members, read_file
from ntl.data.raw import Missing
from ntl.data.sets import deepmind
from ntl.data.sets.arithmetic import EXTRAPOLATE, INTERPOLATE, TRAIN, answer_of
from ntl.data.sets.deepmind import KNOWN_TEXT, PINS, WORKER, core_hours, ensure_environment, generate

EASY = "train-easy/arithmetic__add_sub_multiple.txt"
LONGER = "extrapolate/arithmetic__add_sub_multiple_longer.txt"

FAKE_WORKER = """
import sys
regime, module, count, path = sys.argv[1:5]
{before}
with open(path, "w") as stream:
    for i in range(int(count){fewer}):
        stream.write(f"{{regime}} {{module}} {{i}}\\n{{i}}\\n")
"""


def read_pairs(path: Path) -> list[Pair]:
    return list(Pairs(read_file(path), str(path)))


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Replaces the generator's program; the environment is this one."""

    def replace(before: str = "", fewer: str = "") -> None:
        path = tmp_path / "worker.py"
        path.write_text(FAKE_WORKER.format(before=before, fewer=fewer))
        monkeypatch.setattr(deepmind, "WORKER", path)
        monkeypatch.setattr(deepmind, "_python", lambda environment: Path(sys.executable))
        monkeypatch.setattr(deepmind, "ensure_environment", lambda environment, log: ("package==1",))

    return replace


def test_every_wanted_file_is_made_at_full_size(worker, tmp_path: Path, silent: list[str]) -> None:
    worker()
    made_by = generate(
        {EASY: 5, LONGER: 12_000, "interpolate/other.txt": 1}, tmp_path / "tree", tmp_path, silent.append
    )
    assert len(read_pairs(tmp_path / "tree" / EASY)) == 34_333
    assert len(read_pairs(tmp_path / "tree" / LONGER)) == 12_000
    # What is no part of arithmetic is made as long as it was asked for.
    assert read_pairs(tmp_path / "tree" / "interpolate/other.txt") == [("interpolate other 0", "0")]
    assert not list((tmp_path / "tree").rglob("*.part"))
    # Only the text of EASY at the usual count is known, and this is not it.
    assert made_by["known_text"] == {EASY: False}
    assert any("not the text known for these pins" in line for line in silent)


def test_finished_files_of_an_interrupted_generation_are_kept(worker, tmp_path: Path, silent: list[str]) -> None:
    worker(before="if regime == 'train-easy': sys.exit('stopped')")
    with pytest.raises(UserError, match="stopped"):
        generate({EASY: 1}, tmp_path, tmp_path, print)
    worker()
    generate({LONGER: 1}, tmp_path, tmp_path, print)
    before = (tmp_path / LONGER).stat().st_mtime_ns
    generate({EASY: 1, LONGER: 1}, tmp_path, tmp_path, silent.append)
    assert silent[0].startswith("generating 34333 pairs")
    assert (tmp_path / LONGER).stat().st_mtime_ns == before
    generate({LONGER: 10_001}, tmp_path, tmp_path, print)
    assert len(read_pairs(tmp_path / LONGER)) == 10_001


def test_a_failure_of_the_generator_is_one_line_and_leaves_no_file(worker, tmp_path: Path) -> None:
    worker(before="raise TypeError('no such base')")
    with pytest.raises(UserError, match=r"the generator failed on train-easy/.*: TypeError: no such base"):
        generate({EASY: 5}, tmp_path / "tree", tmp_path, print)
    assert not [path for path in (tmp_path / "tree").rglob("*") if path.is_file()]


def test_too_few_lines_are_an_error(worker, tmp_path: Path) -> None:
    worker(fewer=" - 1")
    with pytest.raises(UserError, match=r"wrote 34332 pairs for train-easy/.*, 34333 were expected"):
        generate({EASY: 5}, tmp_path / "tree", tmp_path, print)


def test_other_workers_end_with_the_first_failure(worker, tmp_path: Path) -> None:
    worker(before="import time\nif regime == 'extrapolate': sys.exit('broken')\ntime.sleep(60)")
    with pytest.raises(UserError, match="broken"):
        generate({EASY: 5, LONGER: 50_000}, tmp_path / "tree", tmp_path, print)


def test_an_environment_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        failed = "pip" in command
        message = "WARNING: a\nERROR: No matching distribution found for sympy\nnote: b\n" if failed else ""
        return subprocess.CompletedProcess(command, int(failed), "", message)

    monkeypatch.setattr(subprocess, "run", run)
    (tmp_path / "env").mkdir()
    said = "pip install: ERROR: No matching distribution found for sympy; put the official .* that NTL_DATA_DIR names"
    with pytest.raises(Missing, match=said):
        ensure_environment(tmp_path / "env", print)
    assert not (tmp_path / "env" / "complete.json").exists()


def test_pins_exist_for_every_python_from_3_11_and_the_text_of_every_file_of_arithmetic_is_known() -> None:
    assert list(PINS) == sorted(PINS, reverse=True)
    assert min(PINS) == (3, 11)
    assert {name for name, _ in KNOWN_TEXT} == {*TRAIN, INTERPOLATE, EXTRAPOLATE}


@pytest.mark.slow
def test_the_real_generator(
    tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch, silent: list[str]
) -> None:
    try:
        ensure_environment(tmp_path / "env", silent.append)
    except UserError as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    made = ensure_environment(tmp_path / "env", silent.append)
    assert len(silent) == 1, "a whole environment is not made again"
    monkeypatch.setattr(deepmind, "KNOWN_TEXT", {(EASY, 200): "", (LONGER, 100): ""})
    record = generate({EASY: 1, LONGER: 150}, tmp_path / "tree", tmp_path / "env", silent.append)
    assert record["pins"] == list(made)
    archive = data_root / "mathematics_dataset" / "arithmetic-regen.tar.gz"
    for name, count in ((EASY, 200), (LONGER, 150)):
        pairs = read_pairs(tmp_path / "tree" / name)
        assert len(pairs) == count
        assert all(answer_of(question) == answer for question, answer in pairs)
        # Seeded by the file's name alone, so the shorter file is a prefix of the one made elsewhere.
        ((_, whole),) = iterate_members(archive, [name])
        assert list(Pairs(whole, name))[:count] == pairs
    shutil.rmtree(tmp_path / "env")


def test_core_hours_count_what_is_missing(tmp_path: Path) -> None:
    wanted = {"train-easy/numbers__place_value.txt": 3_600_000, "train-easy/algebra__linear_1d_composed.txt": 540_000}
    assert core_hours(wanted, tmp_path) == pytest.approx(2.0)
    (tmp_path / "train-easy").mkdir()
    (tmp_path / "train-easy" / "algebra__linear_1d_composed.txt").write_text("q\na\n" * 540_000)
    assert core_hours(wanted, tmp_path) == pytest.approx(1.0)
    assert core_hours({EASY: 5}, tmp_path) == pytest.approx(34_333 / 1_000 / 3600)


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
