import gzip
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.data.dataset import dataset_named
from ntl.data.sets.official import MultiRC, RJokes
from ntl.system.files import sha256_of

SCRIPT = str(Path(__file__).resolve().parents[2] / "scripts" / "prepare_data.py")
main = runpy.run_path(SCRIPT)["main"]
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
    with open(Path(report["folder"]) / "train.jsonl", "a") as stream:
        stream.write("{}\n")
    with pytest.raises(UserError, match=r"train\.jsonl: not the file that was prepared"):
        main(arguments)


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
    report = json.loads(capsys.readouterr().out)
    assert report["noisy_numbers"]["done"] == "already prepared"
    assert report["multirc"]["error"] in shown


def test_what_is_named_must_be_there(three: Path) -> None:
    for words, line in (
        (["noisy_numbers", "multirc"], r"^no file .*multirc/train\.jsonl"),
        (["dataset.train_rows=1"], "^no data set named; choose all, or some of "),
    ):
        with pytest.raises(UserError, match=line):
            main([*words, "--data-dir", str(three), "--no-download"])


def test_a_damaged_file_fails_all_after_the_others(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (three / "rjokes/test.tsv.gz").write_bytes(b"no gzip")
    assert main(["all", "--data-dir", str(three), "--no-download"]) == 2
    assert "rjokes/test.tsv.gz: not the published file: its sha256 is" in capsys.readouterr().out
    assert (three / dataset_named("noisy_numbers").folder_name).is_dir()
