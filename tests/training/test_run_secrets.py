"""Secrets of the environment are planted, a run is made and read in every way, and whatever was written is searched."""

import os
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import compose, run_id
from ntl.config.folders import CONFIG_DIR

PLANTED = {
    "WANDB_API_KEY": "5ec4e7" * 6 + "beef",
    "HF_TOKEN": "hf_planted5ec4e7planted5ec4e7planted",
    "HUGGING_FACE_HUB_TOKEN": "hf_other5ec4e7other5ec4e7other5ec4e7",
    "AWS_SECRET_ACCESS_KEY": "aws+planted/5ec4e7",
    "MY_PASSWORD": "correct-horse-5ec4e7",
}
make_tables = runpy.run_path(str(CONFIG_DIR.parent / "scripts" / "make_tables.py"))["main"]
PROXY = "http://me:proxy5ec4e7@127.0.0.1:9"


@pytest.fixture
def train(command) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **PLANTED}
    return lambda words, **more: command("train.py", *words, env={**environment, **more})


@pytest.mark.slow
def test_nothing_that_a_run_writes_or_says_holds_a_secret(
    settings: Callable[..., list[str]], tmp_path: Path, trained_once: Path, train, monkeypatch, capsys
) -> None:
    # Also where somebody typed one: as the name of a group, which W&B alone is told, and in a path that is recorded.
    tokenizer = shutil.copytree(trained_once / "tokenizer", tmp_path / PLANTED["HF_TOKEN"] / "tokenizer")
    words = settings("tracking=wandb", f"tracking.group={PLANTED['HF_TOKEN']}", f"tokenizer.path={tokenizer}")
    done = train(words, WANDB_MODE="offline", https_proxy=PROXY, http_proxy=PROXY)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "outputs" / run_id(compose(words))
    places = ("--records", str(folder.parent), "--out", str(tmp_path / "tables"))
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    make_tables(["quickstart", *places])
    said = done.stdout + done.stderr + "".join(capsys.readouterr())
    assert "Record: " in said
    assert "5ec4e7" not in said
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"record.json", "config.yaml", "metrics.jsonl", "predictions.jsonl"} <= {path.name for path in written}
    assert "group: <HF_TOKEN>" in (folder / "config.yaml").read_text()
    assert f"path: {tmp_path}/<HF_TOKEN>/tokenizer" in (folder / "config.yaml").read_text()
    found = [path.relative_to(tmp_path) for path in written if b"5ec4e7" in path.read_bytes()]
    # W&B's own file of the run is told the name of its group, and the command line.
    assert {path.parts[2] for path in found} <= {"wandb"}
    for name, value in PLANTED.items():
        if name != "HF_TOKEN":
            assert not any(value.encode() in path.read_bytes() for path in written), name
