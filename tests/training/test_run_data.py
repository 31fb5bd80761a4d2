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


@pytest.mark.parametrize("anew", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_data_that_changed_before_a_resume(anew: bool, small, prepared, run_interrupted, tmp_path: Path) -> None:
    """One digit, also where the data was prepared anew: refused with both fingerprints, before anything is trained.

    The file restored, the run ends as it would have; ``resume=never`` trains on the other data.
    """
    settings = ["trainer.max_steps=8", f"data_dir={tmp_path / 'data'}"]
    config = small(*settings)
    run_interrupted(config, 5)
    checkpoints = Path(config.output_dir) / run_id(config) / "checkpoints"
    file = prepared(config) / "train.jsonl"
    before = file.read_bytes()
    digit = re.search(rb'"answer":"(\d)', before)
    assert digit
    changed = bytearray(before)
    changed[digit.start(1)] = ord("1") if digit[1] != b"1" else ord("2")
    file.write_bytes(changed)
    if anew:
        write_manifest_again(file)
    digests = [hashlib.sha256(content).hexdigest() for content in (before, changed)]
    told = f"train.jsonl had sha256 {digests[0]} and has {digests[1]}; restore it, or start over with resume=never."
    with pytest.raises(UserError, match=re.escape(told)):
        run(config)
    assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-5"]
    if anew:
        record = read_record(run(small(*settings, "resume=never")))
        assert record.data["files"]["train.jsonl"] == digests[1]
    else:
        file.write_bytes(before)
        again, straight = run(config), run(small(*settings, f"output_dir={tmp_path / 'straight'}"))
        assert read_record(again).metrics == read_record(straight).metrics


def test_a_finished_run_of_other_data_is_not_finished_in_silence(
    small, prepared, finished: Path, data_dir: Path, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(data_dir, tmp_path / "data"))
    config = small(f"data_dir={data}")
    file = prepared(config) / "test.jsonl"
    before, manifest = file.read_bytes(), (file.parent / "manifest.json").read_bytes()
    file.write_bytes(before.replace(b'"answer":"1', b'"answer":"2'))
    write_manifest_again(file)
    record = (finished / "record.json").read_bytes()
    digests = [hashlib.sha256(content).hexdigest() for content in (before, file.read_bytes())]
    told = f"the data has changed: test.jsonl had sha256 {digests[0]} and has {digests[1]}"
    with pytest.raises(UserError, match=told):
        run(config)
    assert (finished / "record.json").read_bytes() == record
    file.write_bytes(before)
    (file.parent / "manifest.json").write_bytes(manifest)
    assert run(config) == finished / "record.json"
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
