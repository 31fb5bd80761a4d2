"""A session around a run that was trained before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ntl.config import UserError
from ntl.config.restore import read_config
from ntl.models.hub import source
from ntl.tokenizers import load_tokenizer
from ntl.training.checkpoints import newest_whole
from ntl.training.session import Session


def restore(folder: Path, overrides: Sequence[str] = ()) -> Session:
    """The session of ``folder`` with its own tokenizer and the weights of its newest whole checkpoint.

    Raises:
        UserError: The folder is no run, or has no whole checkpoint.
    """
    config = read_config(folder, overrides)
    checkpoint, damaged = newest_whole(folder / "checkpoints")
    if checkpoint is None:
        found = f"{len(damaged)} damaged checkpoints" if damaged else "no checkpoint"
        raise UserError(f"{folder}: {found}; train it again: its config is in config.yaml.")
    config.tokenizer.path = str(folder / "tokenizer")
    config.model.path = str(checkpoint)
    config.model.pretrained = True
    assert source(config.model) == str(checkpoint)
    session = Session(config, folder)
    session.tokenizer = load_tokenizer(config.tokenizer.path, kind=config.tokenizer.kind)
    if config.device != "cpu":
        import torch

        model: Any = session.model
        model.to("cuda" if torch.cuda.is_available() else "cpu")
    return session
