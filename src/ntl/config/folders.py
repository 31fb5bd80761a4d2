"""Where configs are read, where commands read and write by default, and how they are typed. Standard library only.

In a clone this is the clone itself. A wheel has copies of ``config/`` and ``results/paper``, and everything else is
read and written in the working directory.
"""

import re
from pathlib import Path

from ntl.system.errors import UserError

_CLONE, _COPY = Path(__file__).resolve().parents[3], Path(__file__).resolve().parents[1] / "_clone"
IN_WHEEL = _COPY.is_dir()
_SHIPPED = _COPY if IN_WHEEL else _CLONE
CONFIG_DIR, PAPER_FOLDER = _SHIPPED / "config", _SHIPPED / "results" / "paper"
ROOT = Path() if IN_WHEEL else _CLONE
RESULTS = ROOT / "results"

GROUPS = {
    "model": "what is trained",
    "tokenizer": "how text becomes ids",
    "loss": "CE, and the term on number tokens",
    "objective": "which tokens are predicted",
    "dataset": "what is read",
    "trainer": "on one device, or in several processes: ddp, fsdp",
    "scale": "tiny, hour: minutes, an hour of a CPU core; small: one GPU; finetune: given weights; paper: the paper's",
    "decoding": "how answers are decoded",
    "beside": "further decodings: metrics as test/mae@expectation",
    "tracking": "where metrics are mirrored; auto: wandb if WANDB_API_KEY or WANDB_MODE is set, else nowhere",
    "experiment": "several of these choices at once",
    "hydra/launcher": "where the runs of a sweep (-m) are executed",
}
_TORCHRUN = re.compile(r"(torchrun [^`]*?)\btrain\.py")
_SCRIPT = re.compile(r"(?:python )?(?<![\w/.-])(?:scripts/(\w+)|(train|prepare_data))\.py\b")
# The folder of ``--config-dir``, if there is one.
own_folders: list[Path] = []


def use(folder: Path) -> None:
    """Take choices from a folder of the user's, too. UserError: it has none, or one that ``config/`` has as well."""
    found = [path.relative_to(folder) for group in GROUPS for path in sorted((folder / group).rglob("*.yaml"))]
    if not found:
        raise UserError(f"--config-dir {folder}: no YAML file in a folder named like a setting: {', '.join(GROUPS)}.")
    for path in found:
        if (CONFIG_DIR / path).is_file():
            choice = f"{path.parent}={path.stem}"
            raise UserError(f"{folder / path}: {choice} exists already; give the file another name.")
    own_folders[:] = [folder.absolute()]


def config_file(group: str, name: str) -> Path | None:
    """The file of the choice ``group=name``; None if there is none."""
    places = [folder / group / f"{name}.yaml" for folder in (CONFIG_DIR, *own_folders)]
    return next((path for path in places if path.is_file()), None)


def choices(group: str) -> list[str]:
    """The names that ``group=`` accepts."""
    return sorted(path.stem for folder in (CONFIG_DIR, *own_folders) for path in (folder / group).glob("*.yaml"))


def as_typed(text: str) -> str:
    """The text with its commands as they are typed here: from a wheel ``ntl predict`` for ``scripts/predict.py``."""
    return _SCRIPT.sub(_command, _TORCHRUN.sub(r"\1-m ntl train", text)) if IN_WHEEL else text


def _command(script: re.Match[str]) -> str:
    name = (script[1] or script[2]).removeprefix("make_").replace("_", "-")
    return "ntl prepare" if name == "prepare-data" else f"ntl {name}"
