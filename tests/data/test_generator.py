import random
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data.files import Pair, Pairs, iterate_members, read_file
from ntl.data.sets import deepmind
from ntl.data.sets.arithmetic import answer_of
from ntl.data.sets.deepmind import WORKER, core_hours, ensure_environment, generate

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
    assert made_by["pins"] == ["package==1"]


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
    monkeypatch.setattr(deepmind, "LEAST", {EASY: 200, LONGER: 100})
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
    return SimpleNamespace(question=f"{sampler} {numpy.seeds} {number}", answer=str(number)), 3
""",
}


def test_the_seed_is_that_of_regime_and_module(tmp_path: Path) -> None:
    for name, text in PACKAGES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # PYTHONPATH comes before site-packages, and -S leaves those out.
    command = [sys.executable, "-S", str(WORKER), "train-easy", "add", "3", str(tmp_path / "add.txt")]
    subprocess.run(command, check=True, env={"PYTHONPATH": str(tmp_path)})
    seed = zlib.crc32(b"train-easy/add")
    draw = random.Random(seed)
    expected = [draw.randrange(10**6) for _ in range(3)]
    assert read_pairs(tmp_path / "add.txt") == [(f"easy add [{seed}] {number}", str(number)) for number in expected]
