"""Whether the place that a sweep writes to is fit for it, told before it begins."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ntl.config.root import Config
from ntl.costs.runs import Costs
from ntl.launch.ledger import gigabytes
from ntl.launch.plan import Run
from ntl.system.errors import UserError
from ntl.system.locks import tell_without_locks


def tell_room(
    todo: Sequence[Run],
    configs: Mapping[str, Config],
    *,
    costs: Costs,
    at_once: int,
    outputs: Path,
    say: Callable[[str], None],
) -> None:
    """Say how much disk the runs still take, how much is free where they go, and whether locks are missing there.

    Args:
        todo: the runs to make; what they have on disk already is not needed again.
        configs: theirs, by id.
        at_once: how many train at the same time, each with its earlier checkpoints beside the newest.

    UserError where there is not that much: a sweep that ends by a full disk after days helps nobody.
    """
    if not todo:
        return
    held = sum(path.stat().st_size for run in todo for path in run.folder.rglob("*") if path.is_file())
    needed = max(0, costs.disk_needed([configs[run.id] for run in todo], at_once) - held)
    free = shutil.disk_usage(_existing(outputs)).free
    runs = f"{len(todo)} run{'' if len(todo) == 1 else 's'}"
    if needed > free:
        raise UserError(
            f"outputs={outputs}: the {runs} need about {gigabytes(needed)} of disk, and {gigabytes(free)} are free "
            "there; make room, or choose another place by outputs=."
        )
    tell_without_locks(outputs, "outputs", say)
    say(f"Disk: about {gigabytes(needed)} for {runs}, {gigabytes(free)} free in {outputs}.")


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
