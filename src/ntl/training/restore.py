"""A session around a run that was trained before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ntl.config import UserError
from ntl.config.restore import read_config
from ntl.training.checkpoints import check_data, digest, newest_whole
from ntl.training.session import Say, Session


def restore(folder: Path, overrides: Sequence[str] = (), say: Say = print) -> tuple[Session, Path]:
    """The session of ``folder`` with its own tokenizer and the weights of its newest whole checkpoint, and that.

    Raises:
        UserError: The folder is no run, or has no whole checkpoint, or the data is not what it was trained on.
    """
    config = read_config(folder, overrides)
    checkpoint, damaged = newest_whole(folder / "checkpoints")
    if checkpoint is None:
        found = f"{len(damaged)} damaged checkpoints" if damaged else "no checkpoint"
        raise UserError(f"{folder}: {found}; train it again: its config is in config.yaml.")
    config.tokenizer.path = str(folder / "tokenizer")
    config.model.path = str(checkpoint)
    config.model.pretrained = True
    config.model.lora.rank = 0  # a checkpoint's weights have the adapters merged into them
    session = Session(config, folder, say=say)
    # Other questions would be decoded under the run's name.
    check_data(checkpoint, session.fingerprint["files"])
    session.weights = digest(checkpoint)
    model: Any = session.model
    model.to(session.device)
    return session, checkpoint
