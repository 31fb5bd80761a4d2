"""A crafted pickle in any file that a run reads back is never executed.

The manifests are rewritten, too: whoever crafts a file can do that, and sha256 is there against damage alone.
"""

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from ntl.config import UserError, compose
from ntl.evaluation import score_predictions
from ntl.training import run
from ntl.training.checkpoints import write_manifest
from ntl.training.predictor import predict


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def crafted(tmp_path: Path) -> Iterator[bytes]:
    """A file of torch that would make a folder if it were unpickled."""
    executed, buffer = tmp_path / "executed", io.BytesIO()
    torch.save(_Evil(executed), buffer)
    torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    executed.rmdir()
    yield buffer.getvalue()
    assert not executed.exists()


RESUMED = ["data.json", "meters.json", "model.safetensors", "optimizer.pt", "rng_state.pth", "run.json", "scaler.pt"]
RESUMED += ["scheduler.pt", "trainer_state.json"]
UNREAD = ["config.json", "pytorch_model.bin", "adapter_model.bin", "training_args.bin", "pytorch_model_fsdp.bin"]


@pytest.mark.parametrize("names", [[name] for name in RESUMED] + [UNREAD], ids=[*RESUMED, "unread"])
def test_a_resume_executes_nothing(names: list[str], crafted: bytes, finished: Path, small) -> None:
    (finished / "record.json").unlink()
    shutil.rmtree(finished / "checkpoints" / "checkpoint-12")
    unfinished = finished / "checkpoints" / "checkpoint-6"
    for name in names:
        (unfinished / name).write_bytes(crafted)
    write_manifest(unfinished)
    with suppress(Exception):  # whatever the libraries make of it
        run(small())
    assert (finished / "record.json").is_file() == (names == UNREAD)


@pytest.mark.parametrize(
    "name",
    [
        *("checkpoints/checkpoint-12/model.safetensors", "checkpoints/checkpoint-12/config.json"),
        *("tokenizer/tokenizer.json", "config.yaml", "predictions.jsonl", "record.json"),
    ],
)
def test_a_run_folder_executes_nothing(name: str, crafted: bytes, finished: Path, small) -> None:
    path = finished / name
    path.write_bytes(crafted)
    if "checkpoint-12" in name:
        write_manifest(path.parent)
    actions = {"predictions.jsonl": lambda: score_predictions(path), "record.json": lambda: run(small())}
    with pytest.raises(UserError):
        actions.get(name, lambda: predict(finished, say=[].append))()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_folder_of_pretrained_weights_executes_nothing(
    name: str, crafted: bytes, finished: Path, settings, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished / "checkpoints" / "checkpoint-12", tmp_path / "pretrained"))
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(crafted)
    others = [word for word in settings() if not word.startswith("model.")]
    places = ["model=hf", f"model.path={folder}", f"output_dir={tmp_path / 'other'}"]
    with pytest.raises(UserError, match=str(folder)):
        run(compose([*others, *places]))
