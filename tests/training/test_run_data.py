"""A run whose data is not what it was when it began."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from ntl.config import UserError, run_id
from ntl.results import read_record
from ntl.training import run
from ntl.training.predictor import predict


def write_manifest_again(file: Path) -> None:
    """As a preparation from another source would: the manifest vouches for the file."""
    path = file.with_name("manifest.json")
    manifest = json.loads(path.read_text())
    entry = manifest["splits"][file.stem]
    entry |= {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "bytes": file.stat().st_size}
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("how", "split"),
    [
        pytest.param("grown", "train", marks=pytest.mark.slow),
        pytest.param("one digit", "test", marks=pytest.mark.slow),
        ("one digit", "train"),
        pytest.param("prepared anew", "train", marks=pytest.mark.slow),
        pytest.param("elsewhere", "test", marks=pytest.mark.slow),
    ],
)
def test_data_that_changed_before_a_resume(
    how: str, split: str, small, prepared, run_interrupted, tmp_path: Path
) -> None:
    """Refused with both fingerprints, before anything is trained; the file restored, the run ends as it would have."""
    data, settings = tmp_path / "data", ["trainer.max_steps=8"]
    config = small(*settings, f"data_dir={data}")
    run_interrupted(config, 5)
    checkpoints = Path(config.output_dir) / run_id(config) / "checkpoints"
    file = prepared(config) / f"{split}.jsonl"
    before = file.read_bytes()
    digit = re.search(rb'"answer":"(\d)', before)
    assert digit
    changed = bytearray(before)
    changed[digit.start(1)] = ord("1") if digit[1] != b"1" else ord("2")
    file.write_bytes(before + b"\n" if how == "grown" else changed)
    if how in ("prepared anew", "elsewhere"):
        write_manifest_again(file)
    if how == "elsewhere":
        data = data.rename(tmp_path / "moved")
    with pytest.raises(UserError) as raised:
        run(small(*settings, f"data_dir={data}"))
    digests = [
        hashlib.sha256(content).hexdigest()
        for content in (before, (data / file.relative_to(tmp_path / "data")).read_bytes())
    ]
    assert str(raised.value) == (
        f"{checkpoints / 'checkpoint-5'}: the data is not what it was trained on: {split}.jsonl had sha256 "
        f"{digests[0]} and has {digests[1]}; restore it, or start over with resume=never."
    )
    assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-5"]
    if how in ("grown", "one digit"):
        file.write_bytes(before)
        again, straight = run(config), run(small(*settings, f"output_dir={tmp_path / 'straight'}"))
        assert read_record(again).metrics == read_record(straight).metrics


@pytest.mark.slow
def test_other_data_is_trained_on_with_resume_never(small, prepared, run_interrupted, tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = small("trainer.max_steps=8", f"data_dir={data}")
    run_interrupted(config, 5)
    file = prepared(config) / "train.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"answer":"1', b'"answer":"2'))
    write_manifest_again(file)
    record = read_record(run(small("trainer.max_steps=8", f"data_dir={data}", "resume=never")))
    assert record.data["files"]["train.jsonl"] == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("beside", [[], ["beside=expectation"]])
def test_a_finished_run_of_other_data_is_not_finished_in_silence(
    beside: list[str],
    small,
    prepared,
    finished: Path,
    data_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where only another reading of it is asked for, which would decode other questions."""
    data = Path(shutil.copytree(data_dir, tmp_path / "data"))
    config = small(f"data_dir={data}", *beside)
    file = prepared(config) / "test.jsonl"
    before, manifest = file.read_bytes(), (file.parent / "manifest.json").read_bytes()
    file.write_bytes(before.replace(b'"answer":"1', b'"answer":"2'))
    write_manifest_again(file)
    record = (finished / "record.json").read_bytes()
    digests = [hashlib.sha256(content).hexdigest() for content in (before, file.read_bytes())]
    with pytest.raises(UserError) as raised:
        run(config)
    assert str(raised.value) == (
        f"{finished / 'record.json'}: this run is finished, but the data has changed: test.jsonl had "
        f"sha256 {digests[0]} and has {digests[1]}; restore the data, or remove the run's folder to train it on the "
        "changed data."
    )
    assert (finished / "record.json").read_bytes() == record
    assert "finished" not in capsys.readouterr().out
    file.write_bytes(before)
    (file.parent / "manifest.json").write_bytes(manifest)
    assert run(config) == finished / "record.json"
    assert "this run is finished" in capsys.readouterr().out
    # Nowhere prepared: nothing is known of it, and nothing is prepared to find out.
    shutil.rmtree(file.parent)
    assert run(config) == finished / "record.json"
    assert not file.exists()


def test_a_run_is_not_decoded_on_other_data(small, prepared, finished: Path, data_dir: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(data_dir, tmp_path / "data"))
    file = prepared(small(f"data_dir={data}")) / "test.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"answer":"1', b'"answer":"2'))
    write_manifest_again(file)
    before = (finished / "predictions.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"checkpoint-12: the data is not what it was trained on: test\.jsonl had"):
        predict(finished, [f"data_dir={data}"])
    assert (finished / "predictions.jsonl").read_bytes() == before
    assert predict(finished, [f"data_dir={data_dir}"]).read_bytes() == before
