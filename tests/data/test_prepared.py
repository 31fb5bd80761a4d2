import gzip
import hashlib
import json
import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ntl
from ntl.config import UserError, compose
from ntl.config.composition import known_datasets
from ntl.data import dataset_named, load_dataset
from ntl.data.prepared import Lines, Prepared, SplitRows, write_split
from ntl.data.sets.noisy_numbers import NoisyNumbers
from ntl.data.sets.official import MultiRC, RJokes
from ntl.system.files import sha256_of

# Prepares the data set of the fixture `small` and stops in the middle of writing.
CHILD = """
import sys, time
from ntl.data import prepared
from ntl.data.sets.noisy_numbers import NoisyNumbers

def stop(path, rows):
    path.touch()
    print("reached", flush=True)
    time.sleep(60)

prepared.write_split = stop
data = NoisyNumbers(train_rows=30, validation_rows=10, test_rows=20)
prepared.Prepared(data, sys.argv[1]).prepare()
"""


def environment() -> dict[str, str]:
    source = str(Path(ntl.__file__).parents[1])
    return {**{key: value for key, value in os.environ.items() if key != "NTL_DATA_DIR"}, "PYTHONPATH": source}


def parts(data_dir: Path) -> list[Path]:
    return [path for path in data_dir.iterdir() if ".part-" in path.name]


def test_a_kill_in_the_middle_leaves_nothing_taken_for_whole(small, data_dir: Path, caplog) -> None:
    """A second process waits for the first, then makes it anew."""
    command = [sys.executable, "-c", CHILD, str(data_dir)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n"
        second = pool.submit(small.prepare)
        with pytest.raises(TimeoutError):
            second.result(timeout=1)
        assert len(caplog.messages) == 1
        assert caplog.messages[0].startswith("waiting for another process")
        assert len(parts(data_dir)) == 1
        with pytest.raises(UserError, match=r"is not prepared: no folder .*; run python scripts/prepare_data.py noisy"):
            small.rows("train")
        process.kill()
        assert len(list(second.result(timeout=60).glob("*.jsonl"))) == 3
    assert parts(data_dir) == []
    assert len(small.rows("train")) == 30
    assert small.digests() == small.fingerprint()["files"]


def test_the_shared_folder_is_read_and_never_written(small, data_dir: Path, tmp_path: Path, monkeypatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    assert small.prepare().parent == data_dir
    assert list(shared.iterdir()) == []
    other = NoisyNumbers(seed=7)
    monkeypatch.delenv("NTL_DATA_DIR")
    Prepared(other, shared).prepare()
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    assert Prepared(other, data_dir).prepare().parent == shared
    assert len(Prepared(other, data_dir).rows("test")) == 2000


def test_load_dataset_prepares_on_first_use(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_dataset("noisy_numbers", "test", data_dir)
    assert data.column_names == ["id", "question", "answer"]
    rows = [*Prepared(dataset_named("noisy_numbers"), data_dir).rows("test")]
    assert data.to_list() == rows
    assert {row["answer"] for row in rows} >= {"07", "70"}  # texts, as they are
    # Without a folder, into data.
    monkeypatch.chdir(data_dir)
    assert len(load_dataset("noisy_numbers", "validation")) == 500
    made = [path.name for path in (data_dir / "data").glob("[!.]*")]
    assert made == [dataset_named("noisy_numbers").folder_name]


def test_a_column_of_dates_is_loaded_as_it_is_written(data_dir: Path, tmp_path: Path) -> None:
    path, dates = tmp_path / "a.csv", [f"2020-01-{day:02}" for day in range(1, 30)]
    path.write_text("question,answer\n" + "".join(f"{date},1\n" for date in dates))
    prepared = Prepared(dataset_named("file", path=str(path)), data_dir)
    prepared.prepare()
    assert {date for split in ("train", "validation", "test") for date in prepared.load(split)["question"]} == {*dates}


def test_text_comes_without_torch_and_without_datasets(data_dir: Path) -> None:
    code = (
        "import sys; sys.modules['datasets'] = None; sys.modules['pyarrow'] = None\n"
        "from ntl.data import Prepared, dataset_named\n"
        "p = Prepared(dataset_named('noisy_numbers', train_rows=9), sys.argv[1]); p.prepare()\n"
        "assert len(p.rows('train')) == 9 and p.train_targets()\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(data_dir)], check=True, env=environment())


def test_rows_are_a_sequence_over_lines_of_ascii(tmp_path: Path) -> None:
    questions = ["plain", 'quote " and \\', "line\nfeed", "é ² \u2028 \x85", "\U0001f600"]
    examples = [{"id": f"train/{i:05d}", "question": each, "answer": str(i)} for i, each in enumerate(questions)]
    entry, rows = write_split(tmp_path / "train.jsonl", examples), SplitRows(tmp_path / "train.jsonl")
    assert list(rows) == examples
    assert (rows[0], rows[-1], len(rows), entry["rows"]) == (examples[0], examples[4], 5, 5)
    with pytest.raises(IndexError):
        rows[5]
    data = (tmp_path / "train.jsonl").read_bytes()
    assert data.isascii()
    assert data.startswith(b'{"id":"train/00000","question":"plain","answer":"0"}\n{"id"')
    assert (entry["bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def test_an_edited_file_is_named(small: Prepared) -> None:
    path = small.prepare() / "train.jsonl"
    path.write_bytes(path.read_bytes().replace(b"flat", b"farm", 1))
    for read in (lambda: small.rows("train"), lambda: small.load("train")):
        with pytest.raises(UserError, match=rf"^{path}: not the file that was prepared: .*; delete the folder "):
            read()
    path.unlink()
    with pytest.raises(UserError, match=r"train\.jsonl: .*, or it is gone; delete the folder"):
        small.prepare()


ADDED = """
from dataclasses import dataclass
from ntl.data.dataset import Material, TextDataset, numbered

@dataclass
class Added(TextDataset):
    name: str = "added"

    def material(self, data_dir, *, download=True):
        return Material({split: numbered(split, [("q", "1")]) for split in self.all_splits})
"""


def test_an_edited_class_of_one_s_own_is_prepared_again(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(code: str) -> str:
        module = ModuleType("added")
        module.__file__ = str(data_dir / "added.py")
        Path(module.__file__).write_text(code)
        monkeypatch.setitem(sys.modules, "added", module)
        exec(code, vars(module))
        found = Prepared(module.Added(), data_dir)
        found.prepare()
        return found.rows("train")[0]["answer"]

    with pytest.raises(UserError, match=r"^dataset=added: material\(\) and splits do not both have test, tst\.$"):
        answer(ADDED.replace("in self.all_splits", "in ('train', 'validation', 'tst')"))

    assert [answer(ADDED), answer(ADDED.replace('"1"', '"2"')), answer(ADDED)] == ["1", "2", "1"]
    assert len([path for path in data_dir.iterdir() if path.is_dir()]) == 2


@given(data=st.binary())
def test_only_line_feeds_end_a_line_and_the_last_is_optional(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("lines") / "a"
    path.write_bytes(data)
    expected = data.removesuffix(b"\n").split(b"\n") if data else []
    assert list(Lines(path)) == expected


def test_the_folder_is_named_by_the_values() -> None:
    name = NoisyNumbers().folder_name
    assert name.startswith("noisy_numbers-")
    assert NoisyNumbers(_target_="elsewhere.NoisyNumbers").folder_name == name
    assert NoisyNumbers(noise_sd=6).folder_name == name  # int and float of one value
    assert NoisyNumbers(seed=1).folder_name != name

    class Next(NoisyNumbers):
        version = 2

    assert Next().folder_name != name


@pytest.mark.parametrize("name", known_datasets())
@pytest.mark.slow
def test_the_defaults_are_the_paper_scale(name: str) -> None:
    by_config = compose([f"dataset={name}", "scale=paper"]).dataset
    dataset = dataset_named(name)
    assert dataset == by_config
    assert dataset.name == name
    assert set(dataset.test_splits) < set(dataset.all_splits)


# ---- scripts/prepare_data.py

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "prepare_data.py"))["main"]
TINY = ["noisy_numbers", "dataset.train_rows=40", "dataset.validation_rows=5", "dataset.test_rows=6"]


def test_json(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TINY, "--data-dir", str(data_dir), "--json"]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)["noisy_numbers"]
    rows = {split: entry["rows"] for split, entry in report["splits"].items()}
    assert rows == {"train": 40, "validation": 5, "test": 6}
    for entry in report["splits"].values():
        assert entry["sha256"] == sha256_of(Path(report["folder"]) / entry["file"])
    assert (report["done"], report["source"]) == ("prepared", {"kind": "computed from the config"})
    main(arguments)
    again = json.loads(capsys.readouterr().out)["noisy_numbers"]
    assert again["done"] == "already prepared"
    assert again["splits"] == report["splits"]


@pytest.fixture
def three(release: Any, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``all`` means one data set that can be made, one without its training file, and one without any file."""
    jokes = gzip.compress(b"".join(b"%d\tsecret %d\n" % (i % 12, i) for i in range(50)))
    release(RJokes, validation=jokes, test=jokes)
    release(MultiRC)
    monkeypatch.setattr("ntl.config.composition.known_datasets", lambda: ["multirc", "noisy_numbers", "rjokes"])
    return data_dir


def test_all_prepares_what_it_can_and_says_what_is_missing(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["all", "--data-dir", str(three), "--no-download"]) == 0
    shown = capsys.readouterr().out
    for name, path, home in (
        ("multirc", "multirc/train.jsonl", "MultiRC/train.jsonl of "),
        ("rjokes", "rjokes/train.tsv.gz", ""),
    ):
        assert f"{name}: no file {three}/{path}; it is to be had as {home}http://127.0.0.1" in shown
    assert "noisy_numbers: prepared in" in shown
    main(["all", "--data-dir", str(three), "--no-download", "--json"])
    assert json.loads(capsys.readouterr().out)["multirc"]["error"] in shown
    # A damaged file fails all, after the others.
    (three / "rjokes/test.tsv.gz").write_bytes(b"no gzip")
    assert main(["all", "--data-dir", str(three), "--no-download"]) == 2
    assert "rjokes/test.tsv.gz: not the published file: its sha256 is" in capsys.readouterr().out
    assert (three / dataset_named("noisy_numbers").folder_name).is_dir()
