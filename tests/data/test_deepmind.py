import io
import random
import shutil
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from ntl.config import UserError
from ntl.data import raw
from ntl.data.files import Lines, Pair
from ntl.data.raw import Missing
from ntl.data.sets import deepmind
from ntl.data.sets.arithmetic import answer_of
from ntl.data.sets.deepmind import (
    GENERATED_TREE,
    OFFICIAL_ARCHIVE,
    OFFICIAL_TREE,
    WORKER,
    Texts,
    core_hours,
    ensure_environment,
    find_texts,
    generate,
    members,
)

EASY, TEST = "train-easy/m.txt", "interpolate/m.txt"
WANTED = {EASY: 3, TEST: 2}
TEXT = {EASY: b"q0\n0\nq1\n1\nq2\n2\nq3\n3\n", TEST: b"t0\n0\nt1\n1\n"}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Neither network nor generator; says in which order they were asked."""
    asked: list[str] = []

    def fetch(url: str, target: Path, log: object, *, size: int) -> bool:
        asked.append("download")
        return False

    def generate(wanted: object, tree: Path, environment: Path, log: object) -> None:
        asked.append("generator")
        raise UserError("no generator")

    monkeypatch.setattr(raw, "download", fetch)
    monkeypatch.setattr(deepmind, "generate", generate)
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
    sizes = {name: len(lines) // 2 for name, lines in texts.lines.items()}
    return {name: list(texts.checked(name, np.arange(size), lambda *_: None)) for name, size in sizes.items()}


PLACES = {
    "official tree": lambda root: tree(root / OFFICIAL_TREE),
    "official tree, in a folder": lambda root: tree(root / "mathematics_dataset" / OFFICIAL_TREE),
    "official archive": lambda root: archive(root / OFFICIAL_ARCHIVE, OFFICIAL_TREE),
    "regenerated archive": lambda root: archive(
        root / "mathematics_dataset" / "arithmetic-regen.tar.gz", "arithmetic-regen"
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shared", [False, True], ids=["data folder", "NTL_DATA_DIR"])
def test_files_on_disk(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: list[str], place: str, shared: bool
) -> None:
    root = data_dir
    if shared:
        root = tmp_path / "shared"
        monkeypatch.setenv("NTL_DATA_DIR", str(root))
    PLACES[place](root)
    before = sorted(root.rglob("*"))
    texts = find(data_dir)
    assert read(texts) == {
        EASY: [("q0", "0"), ("q1", "1"), ("q2", "2"), ("q3", "3")],
        TEST: [("t0", "0"), ("t1", "1")],
    }
    assert place.startswith(texts.source["kind"])
    assert offline == []
    if shared:
        assert sorted(root.rglob("*")) == before


def test_the_official_archive_is_unpacked_once(data_dir: Path) -> None:
    archive(data_dir / OFFICIAL_ARCHIVE, OFFICIAL_TREE, {**TEXT, "extrapolate/other.txt": b"x\n1\n"})
    assert find(data_dir).source["kind"] == "official archive"
    assert sorted(path.name for path in (data_dir / OFFICIAL_TREE).iterdir()) == ["interpolate", "train-easy"]
    (data_dir / OFFICIAL_ARCHIVE).write_bytes(b"no longer read")
    assert find(data_dir).source["kind"] == "official tree"


def test_a_short_source_is_passed_over(data_dir: Path, offline: list[str]) -> None:
    tree(data_dir / OFFICIAL_TREE, {EASY: b"q0\n0\n", TEST: TEXT[TEST]})
    archive(data_dir / "mathematics_dataset" / "arithmetic-regen.tar.gz", "arithmetic-regen")
    lines: list[str] = []
    assert find(data_dir, lines).source["kind"] == "regenerated archive"
    assert lines[0].endswith("train-easy/m.txt: 1 pairs, 3 are wanted; looking further")
    assert offline == []


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_damaged_archive_leaves_nothing(data_dir: Path, share: float) -> None:
    path = data_dir / OFFICIAL_ARCHIVE
    archive(path, OFFICIAL_TREE)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError, match=r"v1\.0\.tar\.gz: truncated or damaged .*; fetch it again\.$"):
        find(data_dir)
    assert not list(data_dir.rglob("*.txt"))


def test_a_damaged_source_is_not_passed_over(data_dir: Path) -> None:
    tree(data_dir / OFFICIAL_TREE, {EASY: b"q0\n0\nq1", TEST: TEXT[TEST]})
    archive(data_dir / "mathematics_dataset" / "arithmetic-regen.tar.gz", "arithmetic-regen")
    with pytest.raises(UserError, match=r"train-easy/m\.txt:3: question without an answer"):
        find(data_dir)


def test_the_release_is_asked_before_the_generator(data_dir: Path, offline: list[str]) -> None:
    with pytest.raises(UserError, match="no generator"):
        find(data_dir)
    assert offline == ["download", "generator"]
    with pytest.raises(UserError, match="no generator"):
        find_texts(WANTED, data_dir, print, download=False)
    assert offline == ["download", "generator", "generator"]


def test_a_downloaded_release_is_used(data_dir: Path, monkeypatch: pytest.MonkeyPatch, offline: list[str]) -> None:
    def fetch(url: str, target: Path, log: object, *, size: int) -> bool:
        archive(target, OFFICIAL_TREE)
        return True

    monkeypatch.setattr(raw, "download", fetch)
    assert find(data_dir).source["kind"] == "official archive"
    assert offline == []


def test_what_the_generator_leaves_is_used_again(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(wanted: object, where: Path, environment: Path, log: object) -> dict[str, str]:
        tree(where)
        return {"pins": "some"}

    monkeypatch.setattr(deepmind, "generate", generate)
    first = find(data_dir)
    assert first.source["kind"] == "generator"
    assert first.source["made_by"] == {"pins": "some"}
    assert set(first.source["sha256"]) == {EASY, TEST}
    monkeypatch.setattr(deepmind, "generate", None)
    second = find(data_dir)
    assert read(second) == read(first)
    assert second.source["path"] == str(data_dir / GENERATED_TREE)


def test_the_generator_is_not_started_for_hours_unasked(data_dir: Path, offline: list[str]) -> None:
    wanted = {"train-easy/algebra__linear_1d_composed.txt": 666_666}
    with pytest.raises(
        Missing, match=r"666,666 pairs .*v1.0.tar.gz there or where NTL_DATA_DIR says, .*allow_generation=true .some 1 "
    ):
        find_texts(wanted, data_dir, print)
    assert offline == ["download"]
    with pytest.raises(UserError, match="no generator"):
        find_texts(wanted, data_dir, print, allow_generation=True)
    assert offline == ["download", "download", "generator"]


def texts_of(rows: int) -> Texts:
    data = "".join(f"q{i}\n{i}\n" for i in range(rows)).encode()
    return Texts({"a.txt": Lines(data)}, {"a.txt": "tree/a.txt"}, {})


def test_an_order_is_decided_by_seed_and_stream_and_shorter_ones_are_prefixes() -> None:
    texts = texts_of(50)
    order = texts.shuffled("a.txt", 1, 2, 50)
    assert sorted(order.tolist()) == list(range(50))
    assert texts.shuffled("a.txt", 1, 2, 7).tolist() == order[:7].tolist() != list(range(7))
    others = [texts.shuffled("a.txt", *key, 50).tolist() for key in ((1, 3), (2, 2))]
    assert order.tolist() not in others
    assert others[0] != others[1]


# ---- the generator

SUMS = "train-easy/arithmetic__add_sub_multiple.txt"
LONGER = "extrapolate/arithmetic__add_sub_multiple_longer.txt"

FAKE_WORKER = """
import sys
regime, module, count, path = sys.argv[1:5]
{before}
with open(path, "w") as stream:
    for i in range(int(count)):
        stream.write(f"{{regime}} {{module}} {{i}}\\n{{i}}\\n")
"""


def read_pairs(path: Path) -> list[Pair]:
    lines = path.read_text().split("\n")
    return list(zip(lines[:-1:2], lines[1::2], strict=True))


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Replaces the generator's program; the environment is this one."""

    def replace(before: str = "") -> None:
        path = tmp_path / "worker.py"
        path.write_text(FAKE_WORKER.format(before=before))
        monkeypatch.setattr(deepmind, "WORKER", path)
        monkeypatch.setattr(deepmind, "_python", lambda environment: Path(sys.executable))
        monkeypatch.setattr(deepmind, "ensure_environment", lambda environment, log: ("package==1",))

    return replace


def test_every_wanted_file_is_made_at_full_size(worker, tmp_path: Path, silent: list[str]) -> None:
    worker()
    made_by = generate(
        {SUMS: 5, LONGER: 12_000, "interpolate/other.txt": 1}, tmp_path / "tree", tmp_path, silent.append
    )
    assert len(read_pairs(tmp_path / "tree" / SUMS)) == 34_333
    assert len(read_pairs(tmp_path / "tree" / LONGER)) == 12_000
    # What is no part of arithmetic is made as long as it was asked for.
    assert read_pairs(tmp_path / "tree" / "interpolate/other.txt") == [("interpolate other 0", "0")]
    assert not list((tmp_path / "tree").rglob("*.part"))
    assert made_by["pins"] == ["package==1"]


def test_finished_files_of_an_interrupted_generation_are_kept(worker, tmp_path: Path, silent: list[str]) -> None:
    worker(before="if regime == 'train-easy': sys.exit('stopped')")
    with pytest.raises(UserError, match="stopped"):
        generate({SUMS: 1}, tmp_path, tmp_path, print)
    worker()
    generate({LONGER: 1}, tmp_path, tmp_path, print)
    before = (tmp_path / LONGER).stat().st_mtime_ns
    generate({SUMS: 1, LONGER: 1}, tmp_path, tmp_path, silent.append)
    assert silent[0].startswith("generating 34333 pairs")
    assert (tmp_path / LONGER).stat().st_mtime_ns == before
    generate({LONGER: 10_001}, tmp_path, tmp_path, print)
    assert len(read_pairs(tmp_path / LONGER)) == 10_001


def test_a_failure_of_the_generator_is_one_line_and_leaves_no_file(worker, tmp_path: Path) -> None:
    worker(before="raise TypeError('no such base')")
    with pytest.raises(UserError, match=r"the generator failed on train-easy/.*: TypeError: no such base"):
        generate({SUMS: 5}, tmp_path / "tree", tmp_path, print)
    assert not list((tmp_path / "tree").rglob("*.txt"))


@pytest.mark.soak
def test_the_real_generator(
    tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch, silent: list[str]
) -> None:
    try:
        ensure_environment(tmp_path / "env", silent.append)
    except UserError as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    made = ensure_environment(tmp_path / "env", silent.append)
    assert len(silent) == 1, "a whole environment is not made again"
    monkeypatch.setattr(deepmind, "LEAST", {SUMS: 200, LONGER: 100})
    record = generate({SUMS: 1, LONGER: 150}, tmp_path / "tree", tmp_path / "env", silent.append)
    assert record["pins"] == list(made)
    archive = data_root / "mathematics_dataset" / "arithmetic-regen.tar.gz"
    for name, count in ((SUMS, 200), (LONGER, 150)):
        pairs = read_pairs(tmp_path / "tree" / name)
        assert len(pairs) == count
        assert all(answer_of(question) == answer for question, answer in pairs)
        # Seeded by the file's name alone, so the shorter file is a prefix of the one made elsewhere.
        ((_, whole),) = members(archive, [name])
        assert whole.startswith((tmp_path / "tree" / name).read_bytes())
    shutil.rmtree(tmp_path / "env")


def test_core_hours_count_what_is_missing(tmp_path: Path) -> None:
    wanted = {"train-easy/numbers__place_value.txt": 3_600_000, "train-easy/algebra__linear_1d_composed.txt": 540_000}
    assert core_hours(wanted, tmp_path) == pytest.approx(2.0)
    (tmp_path / "train-easy").mkdir()
    (tmp_path / "train-easy" / "algebra__linear_1d_composed.txt").write_text("q\na\n" * 540_000)
    assert core_hours(wanted, tmp_path) == pytest.approx(1.0)
    assert core_hours({SUMS: 5}, tmp_path) == pytest.approx(34_333 / 1_000 / 3600)


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
