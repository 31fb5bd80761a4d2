"""The text files of DeepMind mathematics: where they are looked for, and the generator's program."""

import io
import random
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.data import raw
from ntl.data.raw import Missing
from ntl.data.sets import mathematics
from ntl.data.sets.mathematics import (
    OFFICIAL_ARCHIVE,
    OFFICIAL_TREE,
    Texts,
    answer_of,
    find_texts,
    generate,
    unpack,
)

EASY, TEST = "train-easy/m.txt", "interpolate/m.txt"
WANTED = {EASY: 3, TEST: 2}
TEXT = {EASY: b"q0\n0\nq1\n1\nq2\n2\nq3\n3\n", TEST: b"t0\n0\nt1\n1\n"}
SMALL_ARCHIVE = "mathematics_dataset/arithmetic-regen.tar.gz"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[str]:
    """Neither network nor generator; says in which order they were asked."""
    asked: list[str] = []

    def download(url: str, target: Path, log: object) -> None:
        asked.append("download")
        raise UserError("no network")

    def no_generator(*_: object) -> None:
        asked.append("generator")
        raise UserError("no generator")

    monkeypatch.setattr(raw, "download", download)
    if "generator" not in request.node.name:
        monkeypatch.setattr(mathematics, "generate", no_generator)
    return asked


def tree(root: Path, texts: dict[str, bytes] = TEXT) -> None:
    for name, data in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def archive(path: Path, top: str, texts: dict[str, bytes] = TEXT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, data in texts.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def find(data_dir: Path, lines: list[str] | None = None) -> Texts:
    return find_texts(WANTED, data_dir, ([] if lines is None else lines).append)


def read(texts: Texts) -> dict[str, list[tuple[str, str]]]:
    """All pairs of each file."""
    decoded = {name: [line.decode() for line in lines] for name, lines in texts.lines.items()}
    return {name: [*zip(lines[::2], lines[1::2], strict=True)] for name, lines in decoded.items()}


PLACES = {
    "official tree": lambda root: tree(root / OFFICIAL_TREE),
    "official tree, in a folder": lambda root: tree(root / "mathematics_dataset" / OFFICIAL_TREE),
    "official archive": lambda root: archive(root / OFFICIAL_ARCHIVE, OFFICIAL_TREE),
    "regenerated archive": lambda root: archive(root / SMALL_ARCHIVE, "arithmetic-regen"),
}


@pytest.mark.parametrize("place", PLACES)
def test_files_on_disk(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str], place: str
) -> None:
    root = tmp_path / "shared"
    monkeypatch.setenv("NTL_DATA_DIR", str(root))
    PLACES[place](root)
    before = sorted(root.rglob("*"))
    texts = find(data_dir)
    assert read(texts) == {
        EASY: [("q0", "0"), ("q1", "1"), ("q2", "2"), ("q3", "3")],
        TEST: [("t0", "0"), ("t1", "1")],
    }
    assert (place.startswith(texts.kind), asked) == (True, [])
    assert sorted(root.rglob("*")) == before


def test_the_official_archive_is_unpacked_once(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(url: str, target: Path, log: object) -> None:
        archive(target, OFFICIAL_TREE, {**TEXT, "extrapolate/other.txt": b"x\n1\n"})

    monkeypatch.setattr(raw, "download", download)
    assert find(data_dir).kind == "official archive"
    assert sorted(path.name for path in (data_dir / OFFICIAL_TREE).iterdir()) == ["interpolate", "train-easy"]
    (data_dir / OFFICIAL_ARCHIVE).write_bytes(b"no longer read")
    assert find(data_dir).kind == "official tree"


def test_a_short_source_is_passed_over_and_a_damaged_one_is_not(data_dir: Path) -> None:
    tree(data_dir / OFFICIAL_TREE, {EASY: b"q0\n0\n", TEST: TEXT[TEST]})
    archive(data_dir / SMALL_ARCHIVE, "arithmetic-regen")
    lines: list[str] = []
    assert find(data_dir, lines).kind == "regenerated archive"
    assert lines[0].endswith("train-easy/m.txt: 1 pairs, 3 are wanted; looking further")
    tree(data_dir / OFFICIAL_TREE, {EASY: b"q0\n0\nq1", TEST: TEXT[TEST]})
    with pytest.raises(UserError, match=r"train-easy/m\.txt:3: question without an answer"):
        find(data_dir)


def test_a_damaged_archive_leaves_nothing(data_dir: Path) -> None:
    path = data_dir / OFFICIAL_ARCHIVE
    archive(path, OFFICIAL_TREE)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(UserError, match=r"v1\.0\.tar\.gz: truncated or damaged .*; fetch it again\.$"):
        find(data_dir)
    assert not list(data_dir.rglob("*.txt"))


def test_the_release_is_asked_first_and_hours_are_not_spent_unasked(data_dir: Path, asked: list[str]) -> None:
    for options, before in (({}, ["download"]), ({"download": False}, [])):
        with pytest.raises(UserError, match="no generator"):
            find_texts(WANTED, data_dir, print, **options)
        assert asked == [*before, "generator"]
        asked.clear()
    wanted = {"train-easy/algebra__linear_1d_composed.txt": 666_666}
    with pytest.raises(Missing, match=r"666,666 pairs .*v1.0.tar.gz there, .*allow_generation=true, which takes hours"):
        find_texts(wanted, data_dir, print)
    with pytest.raises(UserError, match="no generator"):
        find_texts(wanted, data_dir, print, allow_generation=True)


# ---- the generator

SUMS = "train-easy/arithmetic__add_sub_multiple.txt"
# What the generator's program imports, made up: a question says the sampler and numpy's seeds.
PACKAGES = {
    "numpy.py": "from types import SimpleNamespace\nseeds = []\nrandom = SimpleNamespace(seed=seeds.append)\n",
    "sympy/__init__.py": "",
    "sympy/solvers/__init__.py": "",
    "sympy/solvers/diophantine/__init__.py": "",
    "sympy/solvers/diophantine/diophantine.py": "base_solution_linear = 1\n",
    "absl/__init__.py": "",
    "absl/flags.py": "FLAGS = [].append\n",
    "mathematics_dataset/__init__.py": "",
    "mathematics_dataset/generate.py": """
import random
import numpy
from types import SimpleNamespace

filtered_modules = {}

def init_modules(train_split):
    for regime in ("train-easy", "interpolate"):
        filtered_modules[regime] = {"m": "m", "arithmetic__add_sub_multiple": "sum"}

def sample_from_module(sampler):
    number = random.randrange(10**6)
    return SimpleNamespace(question=f"{sampler} {numpy.seeds[-1]} {number}", answer=str(number)), 3
""",
}


@pytest.fixture
def installed(data_dir: Path) -> Path:
    """The packages in the place where pip would put them."""
    for name, text in PACKAGES.items():
        path = data_dir / ".generator" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return data_dir


def test_the_generator_writes_what_is_missing_by_seeds_of_the_names(
    installed: Path, silent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mathematics, "LEAST", 300)
    texts = find_texts({TEST: 3, SUMS: 1}, installed, silent.append)
    assert (texts.kind, len(texts.lines[SUMS])) == ("generator", 2 * 300)  # one order for every config
    seed = zlib.crc32(b"interpolate/m")
    draw = random.Random(seed)
    expected = [draw.randrange(10**6) for _ in range(5)]
    assert read(texts)[TEST] == [(f"m {seed} {number}", str(number)) for number in expected[:3]]
    before = texts.lines[SUMS].path.stat().st_mtime_ns
    longer = find_texts({TEST: 5, SUMS: 2}, installed, silent.append)
    assert [answer for _, answer in read(longer)[TEST]] == list(map(str, expected))
    assert texts.lines[SUMS].path.stat().st_mtime_ns == before
    assert not list(installed.rglob("*.part"))


def test_a_failure_of_the_generator_is_one_line_and_leaves_no_file(installed: Path) -> None:
    with pytest.raises(UserError, match=r"^the generator failed: KeyError: 'other'\.$"):
        find_texts({"interpolate/other.txt": 5}, installed, print)
    assert not list(installed.rglob("*.txt"))


@pytest.mark.slow
def test_a_generator_that_cannot_be_had_is_one_line(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathematics, "PINS", ("mathematics-dataset==0",))
    for name in ("PIP_NO_INDEX", "PIP_NO_CACHE_DIR"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(Missing, match=r"cannot be had: pip: ERROR: .*mathematics-dataset==0; put .* instead\.$"):
        find(data_dir)
    assert not list(data_dir.glob(".generator"))


@pytest.mark.soak
def test_the_real_generator(tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch, silent: Any) -> None:
    monkeypatch.setattr(mathematics, "LEAST", 200)
    longer = "extrapolate/arithmetic__add_sub_multiple_longer.txt"
    try:
        generate({SUMS: 1, longer: 150}, tmp_path / "tree", tmp_path / "env", silent.append)
    except Missing as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    generate({SUMS: 1, longer: 150}, tmp_path / "tree", tmp_path / "env", silent.append)
    assert [line.split()[:2] for line in silent] == [["installing", PIN], ["generating", "350"], ["generating", "0"]]
    for name, count in ((SUMS, 200), (longer, 150)):
        lines = (tmp_path / "tree" / name).read_text().split("\n")
        pairs = list(zip(lines[:-1:2], lines[1::2], strict=True))
        assert len(pairs) == count
        assert all(answer_of(question) == answer for question, answer in pairs)
        # Seeded by the file's name alone, so the shorter file is a prefix of the one made elsewhere.
        unpack(data_root / SMALL_ARCHIVE, tmp_path / "whole", [name], print)
        assert (tmp_path / "whole" / name).read_bytes().startswith((tmp_path / "tree" / name).read_bytes())


PIN = f"{mathematics.PINS[0]},"
