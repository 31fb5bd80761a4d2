"""A checkpoint whose files are what its manifest says may still hold nothing to continue from: one line then.

What transformers reads of it with ``torch.load`` it reads with ``weights_only=True``: a pickle in it is not executed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import TrainerState

from ntl.config import UserError


@contextmanager
def one_line_when_damaged(checkpoint: Path) -> Iterator[None]:
    """Raise a ``UserError`` naming ``checkpoint`` for whatever the libraries that read its files raise."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # pickle, safetensors, json, torch and transformers each raise their own kinds here
        reason = (str(error).splitlines() or [""])[0][:160]
        raise UserError(
            f"{checkpoint}: cannot be continued from ({type(error).__name__}: {reason}); remove this folder, and the "
            "same command takes the checkpoint before it."
        ) from error


def check_state(checkpoint: Path) -> None:
    """UserError unless the trainer's state, which is read first, is one."""
    with one_line_when_damaged(checkpoint):
        TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
