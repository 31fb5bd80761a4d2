"""A checkpoint whose files are what its manifest says may still hold nothing to continue from: one line then.

What transformers reads of it with ``torch.load`` it reads with ``weights_only=True``: a pickle in it is not executed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerState

from ntl.config import UserError
from ntl.results.check import check

# Of the trainer's state: what it counts with. Its own class takes whatever the file holds.
STATE: dict[str, Any] = {
    "global_step": int,
    "max_steps": int,
    "epoch": float | None,
    "num_train_epochs": int,
    "num_input_tokens_seen": int,
    "total_flos": float,
    "log_history": list[dict[str, Any]],
    "stateful_callbacks": dict[str, dict[str, Any]],
}


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
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        for name, kind in STATE.items():
            check(name, getattr(state, name), kind)
        if "TrainerControl" not in (state.stateful_callbacks or ()):  # what the next checkpoint is written from
            raise ValueError("stateful_callbacks without TrainerControl")
        for entry in state.log_history:
            check("log_history.step", entry.get("step"), int)
            check("log_history.probe", entry.get("probe"), dict[str, float] | None)
            # A norm of gradients that is not finite is logged as it is.
            if wrong := [name for name, value in entry.items() if name != "probe" and type(value) not in (int, float)]:
                raise ValueError(f"log_history: {wrong[0]} is no number")
