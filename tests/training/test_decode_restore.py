"""A trained run, read back from its folder alone."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from ntl.config import UserError
from ntl.training.decode import restore


def test_its_weights_tokenizer_and_data(finished: Path) -> None:
    parts, checkpoint = restore(finished, ["device=cpu"])
    assert checkpoint == finished / "checkpoints" / "checkpoint-12"
    stored = load_file(checkpoint / "model.safetensors")
    weights = parts.model.state_dict()
    assert stored
    assert all(torch.equal(weights[name], tensor) for name, tensor in stored.items())
    vocab = json.loads((finished / "tokenizer" / "tokenizer.json").read_text())["model"]["vocab"]
    assert parts.tokenizer.get_vocab() == {piece: index for index, (piece, _) in enumerate(vocab)}
    assert len(parts.rows("test")) == 30


def test_the_run_folder_is_enough(finished: Path, tmp_path: Path) -> None:
    """Moved, without the cache that its tokenizer was trained into, and with a token that only its folder knows."""
    moved = finished.rename(tmp_path / "elsewhere")
    tokenizer = AutoTokenizer.from_pretrained(moved / "tokenizer")
    tokenizer.add_tokens(["marked"])
    tokenizer.save_pretrained(moved / "tokenizer")
    parts, _ = restore(moved, [f"data_dir={tmp_path / 'no-cache'}"])
    assert "marked" in parts.tokenizer.get_vocab()
    assert not (tmp_path / "no-cache" / ".tokenizers").exists()


def test_a_damaged_checkpoint_is_passed_over(finished: Path) -> None:
    (finished / "checkpoints" / "checkpoint-12" / "model.safetensors").write_bytes(b"cut")
    assert restore(finished)[1].name == "checkpoint-6"


def test_without_a_whole_checkpoint_it_is_one_line(finished: Path) -> None:
    for checkpoint in (finished / "checkpoints").iterdir():
        (checkpoint / "manifest.json").unlink()
    with pytest.raises(UserError, match="2 damaged checkpoints; train it again"):
        restore(finished)
    shutil.rmtree(finished / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint; train it again"):
        restore(finished)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.yaml: not found"):
        restore(tmp_path)


def test_only_the_reading_may_change(finished: Path) -> None:
    parts, _ = restore(finished, ["decoding=beam", "decoding.num_beams=3"])
    assert (parts.config.decoding.name, parts.config.decoding.num_beams) == ("beam", 3)
    with pytest.raises(UserError, match="loss=ce"):
        restore(finished, ["loss=ce"])
