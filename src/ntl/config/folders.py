"""Where configs are read and results are written, and the groups of settings."""

from pathlib import Path

from ntl.system.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
CONFIG_DIR, RESULTS = ROOT / "config", ROOT / "results"
PAPER_FOLDER = RESULTS / "paper"

GROUPS = {
    "model": "what is trained",
    "tokenizer": "how text becomes ids",
    "loss": "CE, and the term on number tokens",
    "objective": "which tokens are predicted",
    "dataset": "what is read",
    "trainer": "on one device, or in several processes: ddp, fsdp",
    "scale": "tiny, hour: minutes, an hour of a CPU core; small: a GPU; finetune, real: given weights; paper",
    "decoding": "how answers are decoded",
    "beside": "further decodings: metrics as test/mae@expectation",
    "tracking": "where metrics are mirrored; auto: wandb if WANDB_API_KEY or WANDB_MODE is set, else nowhere",
    "experiment": "several of these choices at once",
    "hydra/launcher": "where the runs of a sweep (-m) are executed",
}
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


def choices(group: str) -> list[str]:
    """The names that ``group=`` accepts."""
    return sorted(path.stem for folder in (CONFIG_DIR, *own_folders) for path in (folder / group).glob("*.yaml"))
