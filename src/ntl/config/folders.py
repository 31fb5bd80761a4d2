"""Where configs are read and results are written, the groups of settings, and YAML that holds values only."""

import re
from pathlib import Path
from typing import Any

from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import regular

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
    "extra_decodings": "further decodings: metrics as test/mae@expectation",
    "tracking": "where metrics are mirrored; auto: wandb if WANDB_API_KEY or WANDB_MODE is set, else nowhere",
    "experiment": "several of these choices at once",
    "hydra/launcher": "where the runs of a sweep (-m) are executed",
}
# A group's former name, which older commands, configs and records have -> the present one.
FORMER = {"beside": "extra_decodings"}
# The folder of ``--config-dir``, if there is one.
own_folders: list[Path] = []
INTERPOLATION = re.compile(r"(\\*)\$\{")


def use(folder: Path) -> None:
    """Take choices from a folder of the user's, too. UserError: it has none, or one that ``config/`` has as well."""
    with one_line_errors("read", folder):
        files = [regular(path) for group in GROUPS for path in sorted((folder / group).rglob("*.yaml"))]
    if not files:
        raise UserError(f"--config-dir {folder}: no YAML file in a folder named like a setting: {', '.join(GROUPS)}.")
    for path in files:
        place = path.relative_to(folder)
        if (CONFIG_DIR / place).is_file():
            raise UserError(f"{path}: {place.parent}={place.stem} exists already; give the file another name.")
        if place.parts[0] == "trainer" and (lost := sorted({*read_yaml(path)} & _set_by_scales())):
            raise UserError(f"{path}: scale= comes later and sets {', '.join(lost)}; write {folder}/scale/NAME.yaml.")
    own_folders[:] = [folder.absolute()]


def _set_by_scales() -> set[str]:
    """The settings of the trainer that files of config/scale have."""
    from yaml import safe_load

    files = [safe_load(path.read_text(encoding="utf-8")) for path in (CONFIG_DIR / "scale").rglob("*.yaml")]
    return {key for values in files for key in values.get("trainer", {})}


def choices(group: str) -> list[str]:
    """The names that ``group=`` accepts."""
    return sorted(path.stem for folder in (CONFIG_DIR, *own_folders) for path in (folder / group).glob("*.yaml"))


def renamed(override: str) -> str:
    """The override in the files' words: ``beside=readings`` is ``extra_decodings=all``, ``mean`` ``expectation``."""
    key, sign, value = override.partition("=")
    present = re.sub(r"^(\W*)beside\b", r"\1extra_decodings", key)
    value = re.sub(r"\breadings\b", "all", value) if present != key and "." not in key else value
    is_reading = present.lstrip("+") in ("decoding", "extra_decodings")
    return present + sign + (re.sub(r"\bmean\b", "expectation", value) if is_reading else value)


def literal(value: Any) -> Any:
    """A JSON-like value in whose texts ``${`` is no interpolation of OmegaConf's, but stands for itself."""
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return INTERPOLATION.sub(lambda match: rf"{match[1] * 2}\${{", value) if isinstance(value, str) else value


def check_plain(value: Any, where: str) -> None:
    """UserError for an interpolation such as ``${oc.env:HOME}`` in a text that was not typed here."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_plain(item, where)
    if isinstance(value, str) and any(len(match[1]) % 2 == 0 for match in INTERPOLATION.finditer(value)):
        raise UserError(f"{where}: it has an interpolation, ${{...}}, which is not resolved here; write the value.")


def read_yaml(path: Path) -> Any:
    """The lists, mappings and values of a YAML file. UserError for what cannot be read, and for an interpolation."""
    # Imported here: what reports a mistake must work without them.
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        values = OmegaConf.to_container(OmegaConf.create(regular(path).read_text(encoding="utf-8")))
    except (OSError, YAMLError, ValueError, OmegaConfBaseException) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())[:300]}") from error
    check_plain(values, str(path))
    return values
