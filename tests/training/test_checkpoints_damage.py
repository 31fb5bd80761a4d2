"""A crafted pickle in any file that a run reads back: never executed, and one line says what is wrong.

The manifests are rewritten, too: whoever crafts a file can do that, and sha256 is there against damage alone.
"""

import io
import json
import os
import pickle
import random
import re
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from ntl.config import Config, UserError, compose
from ntl.data import store
from ntl.evaluation import score_predictions
from ntl.results import read_record
from ntl.training import run
from ntl.training.checkpoints import Meters, check_state, one_line_when_damaged, write_manifest
from ntl.training.predictor import predict


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def _torch(evil: _Evil) -> bytes:
    buffer = io.BytesIO()
    torch.save(evil, buffer)
    return buffer.getvalue()


def _numpy(evil: _Evil) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([evil], dtype=object), allow_pickle=True)
    return buffer.getvalue()


CRAFTS: dict[str, Callable[[_Evil], bytes]] = {"pickle": pickle.dumps, "torch": _torch, "numpy": _numpy}


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Path]:
    """What would be there, had a crafted pickle been executed."""
    path = tmp_path / "executed"
    yield path
    assert not path.exists()


@pytest.fixture(params=[pytest.param(how, marks=pytest.mark.slow) if how != "torch" else how for how in CRAFTS])
def crafted(request: pytest.FixtureRequest, marker: Path) -> bytes:
    return CRAFTS[request.param](_Evil(marker))


def test_the_crafted_files_would_be_executed(tmp_path: Path) -> None:
    loads: dict[str, Callable[[io.BytesIO], object]] = {
        "pickle": pickle.load,
        "torch": lambda file: torch.load(file, weights_only=False),
        "numpy": lambda file: np.load(file, allow_pickle=True),
    }
    for how, craft in CRAFTS.items():
        loads[how](io.BytesIO(craft(_Evil(tmp_path / how))))
        assert (tmp_path / how).is_dir()


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


def test_every_file_of_a_checkpoint_is_named_here(unfinished: Path, finished: Path) -> None:
    """And in its manifest; it is a folder of which anyone reads model and tokenizer."""
    names = {*RESUMED, *UNREAD} - {"scaler.pt"}
    assert {path.name for path in unfinished.iterdir()} == {*names, "manifest.json"}
    assert json.loads((unfinished / "manifest.json").read_text()).keys() == names
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (unfinished, finished / "tokenizer")]
    assert tokenizers[0].get_vocab() == tokenizers[1].get_vocab()


@pytest.mark.parametrize("name", RESUMED)
def test_a_resume_executes_nothing(name: str, crafted: bytes, unfinished: Path, small: Callable[..., Config]) -> None:
    (unfinished / name).write_bytes(crafted)
    write_manifest(unfinished)
    message = _one_line(lambda: run(small()))
    assert message.startswith(f"{unfinished}: cannot resume from this checkpoint (")
    assert message.endswith("; remove this folder, and the same command resumes from the checkpoint before it.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("global_step", "6"),
        ("max_steps", None),
        ("epoch", "one"),
        ("log_history", {}),
        ("log_history", [3]),
        ("log_history", [{"loss": 1.0}]),
        ("log_history", [{"step": 4, "loss": "1.0"}]),
        ("stateful_callbacks", []),
        ("unheard_of", 1),
        ("seen", [96]),
        ("seen", "9"),
        ("seen", [[1], [2]]),
        ("meters", [1.0, 2.0]),
        ("since", None),
        ("seconds", "1"),
    ],
)
def test_a_state_of_other_kinds_of_values(name: str, value: object, unfinished: Path, small) -> None:
    path = unfinished / ("meters.json" if name in Meters._fields else "trainer_state.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    write_manifest(unfinished)
    message = _one_line(lambda: run(small()))
    assert message.startswith(f"{unfinished}: cannot resume from this checkpoint (")


@pytest.mark.parametrize("text", ['{"global_step": "six"}', "[]", "{}", "[" * 100_000, "\0"])
def test_a_named_checkpoint_that_does_not_say_its_step(text: str, unfinished: Path, small) -> None:
    (unfinished / "trainer_state.json").write_text(text)
    write_manifest(unfinished)
    message = _one_line(lambda: run(small(f"resume={unfinished}", "trainer.max_steps=14")))
    assert message.startswith(f"{unfinished / 'trainer_state.json'}: no step of a training (")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no room"), MemoryError(), PermissionError(13, "no")])
def test_what_is_no_damage_is_told_as_it_is(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)), one_line_when_damaged(tmp_path):
        raise error


def test_a_crafted_file_without_its_manifest_is_passed_over(crafted: bytes, finished: Path, small, capsys) -> None:
    (finished / "record.json").unlink()
    (finished / "checkpoints" / "checkpoint-12" / "optimizer.pt").write_bytes(crafted)
    run(small())
    said = capsys.readouterr().out
    assert "checkpoint-12: damaged or incomplete; skipped." in said
    assert "Continuing from" in said


def test_files_that_transformers_would_read_beside_ours(crafted: bytes, unfinished: Path, small) -> None:
    names = ["pytorch_model.bin", "adapter_model.bin", "training_args.bin", "pytorch_model_fsdp.bin"]
    for name in [*UNREAD, *names]:
        (unfinished / name).write_bytes(crafted)
    write_manifest(unfinished)
    assert run(small()).is_file()


@pytest.mark.parametrize(
    "name", ["checkpoints/checkpoint-12/model.safetensors", "checkpoints/checkpoint-12/config.json"]
)
def test_decoding_again_executes_nothing(name: str, crafted: bytes, finished: Path) -> None:
    path = finished / name
    path.write_bytes(crafted)
    write_manifest(path.parent)
    assert "Give another folder by model.path=." in _one_line(lambda: predict(finished, say=[].append))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_folder_executes_nothing(name: str, crafted: bytes, finished: Path) -> None:
    (finished / "tokenizer" / name).write_bytes(crafted)
    assert "is not UTF-8 text" in _one_line(lambda: predict(finished, say=[].append))


@pytest.mark.parametrize("name", ["config.yaml", "predictions.jsonl", "record.json"])
def test_a_run_folder_executes_nothing(name: str, crafted: bytes, finished: Path, small: Callable[..., Config]) -> None:
    path = finished / name
    path.write_bytes(crafted)
    if name == "config.yaml":
        _one_line(lambda: predict(finished, say=[].append))
    else:
        _one_line(lambda: score_predictions(path) if name == "predictions.jsonl" else run(small()))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "config.json"])
def test_a_folder_of_pretrained_weights_executes_nothing(
    name: str, crafted: bytes, finished: Path, settings: Callable[..., list[str]], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished / "checkpoints" / "checkpoint-12", tmp_path / "pretrained"))
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(crafted)
    others = [word for word in settings() if not word.startswith("model.")]
    places = [f"model.path={folder}", "model.pretrained=true", f"output_dir={tmp_path / 'other'}"]
    assert f"{folder}: " in _one_line(lambda: run(compose([*others, *places])))


@pytest.fixture
def data(small: Callable[..., Config], finished: Path, data_dir: Path, tmp_path: Path) -> tuple[Config, Path]:
    """A run to make, on prepared and encoded data of its own."""
    folder = Path(shutil.copytree(data_dir, tmp_path / "data"))
    return small(f"data_dir={folder}", f"output_dir={tmp_path / 'new'}"), folder


@pytest.mark.parametrize("split", ["train", "test"])
def test_prepared_data_executes_nothing(split: str, crafted: bytes, prepared, data: tuple[Config, Path]) -> None:
    config, root = data
    manifest = prepared(config) / "manifest.json"
    found = json.loads(manifest.read_text())
    for suffix in ("jsonl", "arrow"):
        (manifest.parent / f"{split}.{suffix}").write_bytes(crafted)
    digest = {"bytes": len(crafted), "sha256": sha256(crafted).hexdigest()}
    found["splits"][split] |= digest
    found["splits"][split]["arrow"] |= digest
    manifest.write_text(json.dumps(found))
    store.read_manifest(manifest.parent)
    shutil.rmtree(root / ".encoded")
    shutil.rmtree(root / ".tokenizers")
    message = _one_line(lambda: run(config))
    # Read by a process that tokenizes, or here.
    assert re.fullmatch(r"(prepared data|\S+/train\.jsonl): a line is no JSON; delete \w+ folder .* again.", message)


@pytest.mark.parametrize("name", ["tokens.npy", "offsets.npy", "about.json"])
def test_encoded_data_executes_nothing(name: str, crafted: bytes, data: tuple[Config, Path], capsys) -> None:
    """It is made again, and a line says so."""
    config, root = data
    for path in (root / ".encoded").glob(f"*/{name}"):
        path.write_bytes(crafted)
    run(config)
    told = [line for line in capsys.readouterr().out.splitlines() if line.endswith(": tokenizing again")]
    assert len(told) == 3
    assert all(".encoded" in line and "damaged (" in line for line in told)


def test_bits_flipped_in_token_ids_change_no_run(data: tuple[Config, Path], finished: Path, capsys) -> None:
    config, root = data
    draw, paths = random.Random(0), sorted((root / ".encoded").glob("*/tokens.npy"))
    for path in paths:
        content = bytearray(path.read_bytes())
        for place in draw.sample(range(8 * 128, 8 * len(content)), 20):
            content[place // 8] ^= 1 << place % 8
        path.write_bytes(content)
    record = read_record(run(config))
    assert capsys.readouterr().out.count("has another checksum): tokenizing again") == 3
    known = read_record(finished / "record.json")
    assert (record.metrics, record.curves) == (known.metrics, known.curves)
    assert record.predictions_sha256 == known.predictions_sha256


def test_a_tokenizer_that_was_trained_executes_nothing(crafted: bytes, data: tuple[Config, Path]) -> None:
    config, root = data
    for path in (root / ".tokenizers").glob("*/tokenizer.json"):
        path.write_bytes(crafted)
    assert ".tokenizers" in _one_line(lambda: run(config))


def test_one_line(tmp_path: Path) -> None:
    message = r"^\S+: cannot resume from this checkpoint \(ValueError: a\); remove this folder"
    with pytest.raises(UserError, match=message), one_line_when_damaged(tmp_path):
        raise ValueError("a\nb")
    with pytest.raises(UserError, match=r"^as it is$"), one_line_when_damaged(tmp_path):
        raise UserError("as it is")
    with pytest.raises(UserError, match="FileNotFoundError"):
        check_state(tmp_path)
