"""A crafted pickle in any file that a run reads back: never executed, and one line says what is wrong.

The manifests are rewritten, too: whoever crafts a file can do that, and sha256 is there against damage alone.
"""

import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ntl.config import Config, UserError, compose
from ntl.evaluation import score_predictions
from ntl.training import run
from ntl.training.checkpoints import Meters, one_line_when_damaged, write_manifest
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


def _one_line(action: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


RESUMED = ["data.json", "meters.json", "model.safetensors", "optimizer.pt", "rng_state.pth", "run.json", "scaler.pt"]
RESUMED += ["scheduler.pt", "trainer_state.json"]
# Written for from_pretrained; a resume takes the model and the tokenizer from the run's own config.
UNREAD = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture
def unfinished(finished: Path) -> Path:
    """A checkpoint to continue from: that of step 6, the only one."""
    (finished / "record.json").unlink()
    shutil.rmtree(finished / "checkpoints" / "checkpoint-12")
    return finished / "checkpoints" / "checkpoint-6"


@pytest.mark.parametrize("name", RESUMED)
def test_a_resume_executes_nothing(name: str, crafted: bytes, unfinished: Path, small: Callable[..., Config]) -> None:
    (unfinished / name).write_bytes(crafted)
    write_manifest(unfinished)
    message = _one_line(lambda: run(small()))
    assert message.startswith(f"{unfinished}: cannot resume from this checkpoint (")
    assert message.endswith("; remove this folder, and the same command resumes from the checkpoint before it.")


def test_files_that_transformers_would_read_beside_ours(crafted: bytes, unfinished: Path, small) -> None:
    names = ["pytorch_model.bin", "adapter_model.bin", "training_args.bin", "pytorch_model_fsdp.bin"]
    for name in [*UNREAD, *names]:
        (unfinished / name).write_bytes(crafted)
    write_manifest(unfinished)
    assert run(small()).is_file()


def test_every_file_of_a_checkpoint_is_named_here(unfinished: Path) -> None:
    names = {*RESUMED, *UNREAD} - {"scaler.pt"}
    assert {path.name for path in unfinished.iterdir()} == {*names, "manifest.json"}
    assert json.loads((unfinished / "manifest.json").read_text()).keys() == names


@pytest.mark.parametrize(
    ("name", "value"),
    [("global_step", "6"), ("log_history", [{"step": 4, "loss": "1.0"}]), ("seen", [96]), ("meters", [1.0, 2.0])],
)
def test_a_state_of_other_kinds_of_values(name: str, value: object, unfinished: Path, small) -> None:
    path = unfinished / ("meters.json" if name in Meters._fields else "trainer_state.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    write_manifest(unfinished)
    assert f"{unfinished}: cannot resume from this checkpoint (" in _one_line(lambda: run(small()))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no room"), PermissionError(13, "no"), UserError("x")])
def test_what_is_no_damage_is_told_as_it_is(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)), one_line_when_damaged(tmp_path):
        raise error


@pytest.mark.parametrize(
    "name",
    [
        *("checkpoints/checkpoint-12/model.safetensors", "checkpoints/checkpoint-12/config.json"),
        *("tokenizer/tokenizer.json", "config.yaml", "predictions.jsonl", "record.json"),
    ],
)
def test_a_run_folder_executes_nothing(name: str, crafted: bytes, finished: Path, small: Callable[..., Config]) -> None:
    path = finished / name
    path.write_bytes(crafted)
    if "checkpoint-12" in name:
        write_manifest(path.parent)
    actions = {"predictions.jsonl": lambda: score_predictions(path), "record.json": lambda: run(small())}
    _one_line(actions.get(name, lambda: predict(finished, say=[].append)))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_folder_of_pretrained_weights_executes_nothing(
    name: str, crafted: bytes, finished: Path, settings: Callable[..., list[str]], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished / "checkpoints" / "checkpoint-12", tmp_path / "pretrained"))
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(crafted)
    others = [word for word in settings() if not word.startswith("model.")]
    places = ["model=hf", f"model.path={folder}", f"output_dir={tmp_path / 'other'}"]
    assert str(folder) in _one_line(lambda: run(compose([*others, *places])))


def test_a_trained_tokenizer_executes_nothing(
    crafted: bytes, finished: Path, small: Callable[..., Config], data_dir: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(data_dir, tmp_path / "data"))
    config = small(f"data_dir={root}", f"output_dir={tmp_path / 'new'}", "trainer.max_steps=1")
    for path in (root / ".tokenizers").glob("*/tokenizer.json"):
        path.write_bytes(crafted)
    assert ".tokenizers" in _one_line(lambda: run(config))
