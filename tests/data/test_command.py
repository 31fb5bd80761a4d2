import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data.command import main
from ntl.data.files import sha256_of

ROOT = Path(__file__).parents[2]
TINY = ["noisy_numbers", "dataset.train_rows=40", "dataset.validation_rows=5", "dataset.test_rows=6"]


def run(data_dir: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
    command = [sys.executable, str(ROOT / "scripts" / "prepare_data.py"), *words, "--data-dir", str(data_dir)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_json(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TINY, "--data-dir", str(data_dir), "--json"]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)["noisy_numbers"]
    assert {split: entry["rows"] for split, entry in report["splits"].items()} == {
        "train": 40,
        "validation": 5,
        "test": 6,
    }
    for entry in report["splits"].values():
        assert entry["sha256"] == sha256_of(Path(report["folder"]) / entry["file"])
    assert (report["done"], report["source"]) == ("prepared", {"kind": "computed from the config"})
    main(arguments)
    again = json.loads(capsys.readouterr().out)["noisy_numbers"]
    assert again["done"] == "already prepared"
    assert again["splits"] == report["splits"]
    main([*arguments, "--verify"])
    assert json.loads(capsys.readouterr().out)["noisy_numbers"]["done"] == "verified"


def test_sizes_follow_the_scale(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["multiplication", "--data-dir", str(data_dir), "--json", "dataset.train_rows=50"]
    main([*arguments, "scale=tiny"])
    tiny = json.loads(capsys.readouterr().out)["multiplication"]["splits"]
    main(arguments)
    paper = json.loads(capsys.readouterr().out)["multiplication"]["splits"]
    assert paper["interpolate"]["rows"] == 11_340
    assert paper["extrapolate"]["rows"] == 5_500
    assert tiny["interpolate"]["rows"] < 1_000


def test_the_script(data_dir: Path) -> None:
    done = run(data_dir, *TINY)
    assert done.returncode == 0
    assert done.stderr == "noisy_numbers: computing 51 rows\n"
    assert [word for word in ("train", "validation", "test", "40", "5", "6") if word not in done.stdout] == []
    assert "noisy_numbers: prepared in" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["noisy_number"], "error: dataset=noisy_number: no such choice; dataset is one of arithmetic, "),
        (["noisy_numbers", "dataset.rows=1"], "error: dataset.rows: no such setting; dataset has "),
        (["noisy_numbers", "dataset.train_rows=0"], "error: dataset.train_rows=0: must be at least 1."),
        (["dataset.train_rows=1"], "error: no data set named; choose all, or some of arithmetic, "),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(data_dir: Path, words: list[str], message: str) -> None:
    done = run(data_dir, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_a_damaged_file_is_reported(data_dir: Path) -> None:
    main([*TINY, "--data-dir", str(data_dir)])
    path = next(data_dir.glob("noisy_numbers-*")) / "train.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(UserError, match=r"train\.jsonl:40: damaged"):
        main([*TINY, "--data-dir", str(data_dir)])


def test_no_torch(data_dir: Path) -> None:
    code = "import sys; from ntl.data.command import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(
        [sys.executable, "-c", code, *TINY, "--data-dir", str(data_dir)],
        check=True,
        env=environment,
        capture_output=True,
    )
