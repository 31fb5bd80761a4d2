import gzip
import io
import tarfile
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data import raw
from ntl.data.files import Pairs
from ntl.data.raw import Missing
from ntl.data.sets import deepmind
from ntl.data.sets.deepmind import GENERATED_TREE, OFFICIAL_ARCHIVE, OFFICIAL_TREE, Texts, find_texts

EASY, TEST = "train-easy/m.txt", "interpolate/m.txt"
WANTED = {EASY: 3, TEST: 2}
TEXT = {EASY: b"q0\n0\nq1\n1\nq2\n2\nq3\n3\n", TEST: b"t0\n0\nt1\n1\n"}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Neither network nor generator; says in which order they were asked."""
    asked: list[str] = []

    def fetch(url: str, size: int, target: Path, log: object) -> bool:
        asked.append("download")
        return False

    def generate(wanted: object, tree: Path, environment: Path, log: object) -> None:
        asked.append("generator")
        raise UserError("no generator")

    monkeypatch.setattr(raw, "download_archive", fetch)
    monkeypatch.setattr(deepmind, "generate", generate)
    return asked


def tree(root: Path, texts: dict[str, bytes] = TEXT, suffix: str = "") -> None:
    for name, data in texts.items():
        path = root / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if suffix else data)


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
    return {name: list(pairs) for name, pairs in texts.pairs.items()}


PLACES = {
    "official tree": lambda root: tree(root / OFFICIAL_TREE),
    "official tree, packed files": lambda root: tree(root / "mathematics_dataset" / OFFICIAL_TREE, suffix=".gz"),
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
    def fetch(url: str, size: int, target: Path, log: object) -> bool:
        archive(target, OFFICIAL_TREE)
        return True

    monkeypatch.setattr(raw, "download_archive", fetch)
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
    return Texts({"a.txt": Pairs(data, "a.txt")}, {"a.txt": "tree/a.txt"}, {})


def test_an_order_is_decided_by_seed_and_stream_and_shorter_ones_are_prefixes() -> None:
    texts = texts_of(50)
    order = texts.shuffled("a.txt", 1, 2, 50)
    assert sorted(order.tolist()) == list(range(50))
    assert texts.shuffled("a.txt", 1, 2, 7).tolist() == order[:7].tolist() != list(range(7))
    others = [texts.shuffled("a.txt", *key, 50).tolist() for key in ((1, 3), (2, 2))]
    assert order.tolist() not in others
    assert others[0] != others[1]
