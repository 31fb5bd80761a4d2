"""DeepMind mathematics: the paper's 13 modules, and the sums of its ablations."""

import io
import random
import tarfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.data import raw
from ntl.data.dataset import TextDataset
from ntl.data.prepared import Prepared
from ntl.data.raw import Missing
from ntl.data.sets import mathematics
from ntl.data.sets.mathematics import (
    HARDER,
    MODULES,
    OFFICIAL_ARCHIVE,
    OFFICIAL_TREE,
    SUMS_TESTS,
    SUMS_TRAIN,
    TESTS,
    TRAIN,
    Arithmetic,
    Mathematics,
    Texts,
    answer_of,
    find_texts,
    generate,
    unpack,
)

SMALL: dict[str, Any] = {"rows_per_file": 10, "train_share": 0.8, "test_rows_per_file": 3}
SMALL_SUMS: dict[str, Any] = {"train_rows_per_difficulty": 40, "validation_rows_per_difficulty": 5, "test_rows": 10}
SUMS_FILES = [file for files in SUMS_TESTS.values() for file in files]
NAMES = (*TRAIN, *TESTS["interpolate"], *TESTS["extrapolate"])


def made(dataset: TextDataset, folder: Path) -> Prepared:
    prepared = Prepared(dataset, folder)
    prepared.prepare()
    return prepared


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[str]:
    """Neither network nor generator; says in which order they were asked."""
    asked: list[str] = []

    def download(url: str, target: Path) -> None:
        asked.append("download")
        raise UserError("no network")

    def no_generator(*_: object) -> None:
        asked.append("generator")
        raise UserError("no generator")

    monkeypatch.setattr(raw, "download", download)
    if "generator" not in request.node.name:
        monkeypatch.setattr(mathematics, "generate", no_generator)
    return asked


@pytest.fixture
def folder(data_dir: Path) -> Path:
    """The folder of an official tree that is to be made."""
    for name in (*NAMES, *SUMS_FILES):
        (data_dir / OFFICIAL_TREE / name).parent.mkdir(parents=True, exist_ok=True)
    return data_dir / OFFICIAL_TREE


@pytest.fixture
def tree(folder: Path) -> Path:
    """Answers are ``<number of the file>.<number of the pair>``."""
    for number, name in enumerate(NAMES):
        (folder / name).write_text("".join(f"{name} {i}?\n-{number}.{i:02d}\n" for i in range(12)))
    return folder


@pytest.fixture
def sums(folder: Path) -> Path:
    """Sums a + b whose a names the file and whose b the pair."""
    for number, name in enumerate((*SUMS_TRAIN, *SUMS_FILES), start=1):
        (folder / name).write_text("".join(f"Calculate {number}000 + {i}.\n{number * 1000 + i}\n" for i in range(50)))
    return folder


def file_and_pair(row: dict) -> tuple[int, int]:
    file, pair = row["answer"].removeprefix("-").split(".")
    return int(file), int(pair)


def test_rows_go_round_the_files_and_tests_keep_their_order(tree: Path, data_dir: Path) -> None:
    prepared = made(Mathematics(**SMALL), data_dir)
    dataset = prepared.dataset
    counts = {"train": 39 * 8, "validation": 39 * 2, "interpolate": 39, "extrapolate": 21}
    assert prepared.fingerprint()["rows"] == counts
    rows = {split: list(prepared.rows(split)) for split in dataset.all_splits}
    train, validation = ([file_and_pair(row) for row in rows[split]] for split in ("train", "validation"))
    assert [file for file, _ in train] == list(range(39)) * 8
    assert [file for file, _ in validation] == list(range(39)) * 2
    assert len({*train, *validation}) == 390
    # Each file in an order of its own.
    assert len({tuple(pair for file, pair in train if file == number) for number in range(39)}) == 39
    assert [file_and_pair(row) for row in rows["interpolate"]] == [(39 + f, i) for f in range(13) for i in range(3)]
    assert [file_and_pair(row) for row in rows["extrapolate"]] == [(52 + f, i) for f in range(7) for i in range(3)]
    assert rows["train"][40]["id"] == "train/algebra__linear_1d_composed/00040"
    assert rows["interpolate"][22]["id"] == "interpolate/arithmetic__mul/00022"
    assert Counter(dataset.group(row["id"]) for row in rows["extrapolate"]) == dict.fromkeys(HARDER, 3)
    assert all(row["question"].startswith(NAMES[file_and_pair(row)[0]]) for row in rows["validation"])


def test_a_test_needs_no_training_files(sums: Path, data_dir: Path) -> None:
    dataset = Arithmetic(**SMALL_SUMS)
    others = [*SUMS_TRAIN, SUMS_TESTS["extrapolate"][0]]
    for name in others:
        (sums / name).rename(sums / f"{name}.away")
    alone = made(dataset.alone("interpolate"), data_dir)
    found = list(alone.rows("interpolate"))
    for name in others:
        (sums / f"{name}.away").rename(sums / name)
    assert found == list(made(dataset, data_dir).rows("interpolate"))
    assert alone.fingerprint()["rows"] == {"interpolate": 10}
    assert list(made(dataset.alone("train"), data_dir).rows("train")) == list(made(dataset, data_dir).rows("train"))


def test_fewer_rows_are_a_prefix_and_seeds_differ(tree: Path, data_dir: Path) -> None:
    def train(**values: int) -> list[str]:
        prepared = made(Mathematics(**{"rows_per_file": 10, "test_rows_per_file": 3, **values}), data_dir)
        return [row["answer"] for row in prepared.rows("train")]

    assert train(rows_per_file=5) == train()[: 39 * 4]
    assert train(seed=1) != train()


def test_the_papers_counts() -> None:
    rows, held_out, test_rows = Mathematics().counts()
    assert (39 * rows, 39 * held_out, 13 * test_rows, 7 * test_rows) == (25_986_948, 13_026, 130_000, 70_000)
    assert (len(MODULES), len(HARDER), len(TRAIN), len(set(NAMES))) == (13, 7, 39, 59)
    assert Mathematics(rows_per_file=1000, train_share=0.29).counts()[0] == 290
    fault = Mathematics().fault
    assert [fault("", answer) for answer in ("-1.5", "1/2")] == [None, (2, "the answer '1/2' is not a number")]
    assert Mathematics(allow_generation=True).folder_name == Mathematics().folder_name  # a consent changes no row


@pytest.mark.parametrize(
    ("name", "line", "text", "message"),
    [
        (SUMS_TRAIN[1], 100, "7", "100: the answer '7' is wrong, 2049 is right"),
        (SUMS_FILES[0], 3, "Calculate 1 * 2.", "3: 'Calculate 1 * 2.': not a sum"),
    ],
)
def test_a_wrong_sum_is_named_with_its_line(sums, data_dir, name: str, line: int, text: str, message: str) -> None:
    lines = (sums / name).read_text().split("\n")
    lines[line - 1] = text
    (sums / name).write_text("\n".join(lines))
    with pytest.raises(UserError) as caught:
        made(Arithmetic(**SMALL_SUMS | {"train_rows_per_difficulty": 45}), data_dir)
    assert f"{name}:{message}" in str(caught.value)
    assert not any("arithmetic-" in path.name and path.is_dir() for path in data_dir.iterdir())


REAL = [
    (
        Mathematics(rows_per_file=1000, train_share=0.98, test_rows_per_file=1000),
        {"train": 38_220, "validation": 780, "interpolate": 13_000, "extrapolate": 7_000},
        "3a38f1314af067f9 6bfa7bc7b8fce1a4 1aa0d03bfb4dbe32 ac4d63a86e2d98da",
    ),
    (
        Arithmetic(),
        {"train": 99_999, "validation": 3_000, "interpolate": 10_000, "extrapolate": 10_000},
        "a9836f48bd4957cf 4dd8bcf7032b1418 b861fda7961a0a16 fa8a64eaba431d49",
    ),
]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("data_root")
@pytest.mark.parametrize(("dataset", "rows", "digests"), REAL)
def test_the_real_files(dataset: TextDataset, rows: dict[str, int], digests: str, tmp_path: Path) -> None:
    prepared = made(dataset, tmp_path)
    assert prepared.fingerprint()["rows"] == rows
    found = prepared.fingerprint()["files"]
    assert " ".join(found[f"{split}.jsonl"][:16] for split in rows) == digests
    if isinstance(dataset, Arithmetic):
        train = {row["question"] for row in prepared.rows("train")}
        assert not train & {row["question"] for row in prepared.rows("interpolate")}


ANSWERS = {
    "Calculate -13 + (10 - 5) + 4.": "-4",
    "What is the value of -2 + 9 - (5 - 0)?": "2",
    "What is 3 + (-11 - -3) + (-10 - -7) + (-83 - 6)?": "-97",
    "Evaluate 7 - 9 - 118 - (0 + 1 - 10 - ((-8 - -9) + 8 + -14) - (-2 + 0)).": "-118",
    "-48 - (-10 - ((-12 - -18) + -18 + 4))": "-46",
    "1 - -(2 - 3) - 99999999999999999999": "-99999999999999999999",
}


def test_answers_and_what_is_no_sum() -> None:
    assert {question: answer_of(question) for question in ANSWERS} == ANSWERS
    assert Arithmetic().shortcut("1 - (2 - 3)") == "-4"
    for question in ("What is 1 + 2.", "1 +", "(1 + 2", "1 * 2", "1(2)"):
        with pytest.raises(ValueError, match="not a sum"):
            answer_of(question)


# ---- the text files: where they are looked for, and the generator's program

EASY, TEST = "train-easy/m.txt", "interpolate/m.txt"
WANTED = {EASY: 3, TEST: 2}
TEXT = {EASY: b"q0\n0\nq1\n1\nq2\n2\nq3\n3\n", TEST: b"t0\n0\nt1\n1\n"}
SMALL_ARCHIVE = "mathematics_dataset/arithmetic-regen.tar.gz"


def write_tree(root: Path, texts: dict[str, bytes] = TEXT) -> None:
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


def find(data_dir: Path) -> Texts:
    return find_texts(WANTED, data_dir)


def read(texts: Texts, name: str) -> list[tuple[str, str]]:
    """All pairs of a file."""
    lines = [line.decode() for line in texts.lines[name]]
    return [*zip(lines[::2], lines[1::2], strict=True)]


PLACES = {
    "official tree": lambda root: write_tree(root / OFFICIAL_TREE),
    "official tree, in a folder": lambda root: write_tree(root / "mathematics_dataset" / OFFICIAL_TREE),
    "official archive": lambda root: archive(root / OFFICIAL_ARCHIVE, OFFICIAL_TREE),
    "regenerated archive": lambda root: archive(root / SMALL_ARCHIVE, "arithmetic-regen"),
}


@pytest.mark.parametrize("place", PLACES)
def test_files_on_disk(data_dir: Path, tmp_path: Path, monkeypatch, asked: list[str], place: str) -> None:
    root = tmp_path / "shared"
    monkeypatch.setenv("NTL_DATA_DIR", str(root))
    PLACES[place](root)
    before = sorted(root.rglob("*"))
    texts = find(data_dir)
    assert read(texts, EASY) == [("q0", "0"), ("q1", "1"), ("q2", "2"), ("q3", "3")]
    assert read(texts, TEST) == [("t0", "0"), ("t1", "1")]
    assert (place.startswith(texts.kind), asked) == (True, [])
    assert sorted(root.rglob("*")) == before


def test_the_official_archive_is_unpacked_once_and_whole(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(url: str, target: Path) -> None:
        archive(target, OFFICIAL_TREE, {**TEXT, "extrapolate/other.txt": b"x\n1\n"})

    path = data_dir / OFFICIAL_ARCHIVE
    archive(path, OFFICIAL_TREE)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(UserError, match=r"v1\.0\.tar\.gz: truncated or damaged .*; fetch it again\.$"):
        find(data_dir)
    assert not list(data_dir.rglob("*.txt"))
    path.unlink()
    monkeypatch.setattr(raw, "download", download)
    assert find(data_dir).kind == "official archive"
    assert sorted(path.name for path in (data_dir / OFFICIAL_TREE).iterdir()) == ["interpolate", "train-easy"]
    path.write_bytes(b"no longer read")
    assert find(data_dir).kind == "official tree"


def test_a_short_source_is_passed_over_and_a_damaged_one_is_not(data_dir: Path, caplog) -> None:
    write_tree(data_dir / OFFICIAL_TREE, {EASY: b"q0\n0\n", TEST: TEXT[TEST]})
    archive(data_dir / SMALL_ARCHIVE, "arithmetic-regen")
    assert find(data_dir).kind == "regenerated archive"
    assert caplog.messages[0].endswith("train-easy/m.txt: 1 pairs, 3 are wanted; looking further")
    write_tree(data_dir / OFFICIAL_TREE, {EASY: b"q0\n0\nq1", TEST: TEXT[TEST]})
    with pytest.raises(UserError, match=r"train-easy/m\.txt:3: question without an answer"):
        find(data_dir)


def test_the_release_is_asked_first_and_hours_are_not_spent_unasked(data_dir: Path, asked: list[str]) -> None:
    for options, before in (({}, ["download"]), ({"download": False}, [])):
        with pytest.raises(UserError, match="no generator"):
            find_texts(WANTED, data_dir, **options)
        assert asked == [*before, "generator"]
        asked.clear()
    wanted = {"train-easy/algebra__linear_1d_composed.txt": 666_666}
    with pytest.raises(Missing, match=r"666,666 pairs .*v1.0.tar.gz there, .*allow_generation=true, which takes hours"):
        find_texts(wanted, data_dir)
    with pytest.raises(UserError, match="no generator"):
        find_texts(wanted, data_dir, allow_generation=True)


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


def test_the_generator_writes_what_is_missing_by_seeds_of_the_names(installed, caplog, monkeypatch) -> None:
    monkeypatch.setattr(mathematics, "LEAST", 300)
    texts = find_texts({TEST: 3, SUMS: 1}, installed)
    assert (texts.kind, len(texts.lines[SUMS])) == ("generator", 2 * 300)  # one order for every config
    seed = zlib.crc32(b"interpolate/m")
    draw = random.Random(seed)
    expected = [draw.randrange(10**6) for _ in range(5)]
    assert read(texts, TEST) == [(f"m {seed} {number}", str(number)) for number in expected[:3]]
    before = texts.lines[SUMS].path.stat().st_mtime_ns
    longer = find_texts({TEST: 5, SUMS: 2}, installed)
    assert [answer for _, answer in read(longer, TEST)] == list(map(str, expected))
    assert texts.lines[SUMS].path.stat().st_mtime_ns == before
    with pytest.raises(UserError, match=r"^the generator failed: KeyError: 'other'\.$"):
        find_texts({"interpolate/other.txt": 5}, installed)
    assert not [*installed.rglob("*.part"), *installed.rglob("other.txt")]


@pytest.mark.slow
def test_a_generator_that_cannot_be_had_is_one_line(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathematics, "PINS", ("mathematics-dataset==0",))
    for name in ("PIP_NO_INDEX", "PIP_NO_CACHE_DIR"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(Missing, match=r"cannot be had: pip: ERROR: .*mathematics-dataset==0; put .* instead\.$"):
        find(data_dir)
    assert not list(data_dir.glob(".generator"))


@pytest.mark.soak
def test_the_real_generator(tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(mathematics, "LEAST", 200)
    longer = "extrapolate/arithmetic__add_sub_multiple_longer.txt"
    try:
        generate({SUMS: 1, longer: 150}, tmp_path / "tree", tmp_path / "env")
    except Missing as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    generate({SUMS: 1, longer: 150}, tmp_path / "tree", tmp_path / "env")
    assert [line.split()[:2] for line in caplog.messages] == [
        ["installing", f"{mathematics.PINS[0]},"],
        ["generating", "350"],
        ["generating", "0"],
    ]
    for name, count in ((SUMS, 200), (longer, 150)):
        lines = (tmp_path / "tree" / name).read_text().split("\n")
        pairs = list(zip(lines[:-1:2], lines[1::2], strict=True))
        assert len(pairs) == count
        assert all(answer_of(question) == answer for question, answer in pairs)
        # Seeded by the file's name alone, so the shorter file is a prefix of the one made elsewhere.
        unpack(data_root / SMALL_ARCHIVE, tmp_path / "whole", [name])
        assert (tmp_path / "whole" / name).read_bytes().startswith((tmp_path / "tree" / name).read_bytes())
