"""Train, decode, score and record one run; see ``python train.py --help``."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.config.cli import report
from ntl.system.errors import Diverged, UserError
from ntl.system.secrets import redact

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Makes Hydra, imported later, raise its exceptions instead of exiting, so that report() prints them as one line.
os.environ["HYDRA_FULL_ERROR"] = "1"
failures: list[Exception] = []
swept: list[Path] = []  # the folders of a sweep's runs


def task(raw: "DictConfig") -> None:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    from ntl.config.composition import config_of_job
    from ntl.config.identity import run_id

    try:
        config, overrides = config_of_job(raw)
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            swept.append(Path(config.output_dir) / run_id(config))
        from ntl.training import run

        run(config, overrides=overrides)
    except (UserError, Diverged, OmegaConfBaseException) as error:
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            raise
        failures.append(error)  # an error raised here would make Hydra print a second line


def compare_swept() -> None:
    """Print how the runs of a sweep compare, also where some of them failed."""
    if swept and os.environ.get("RANK", "0") == "0":
        from ntl.results.compare_runs import show_sweep

        show_sweep(swept)


def main() -> None:
    # Imported here, so that report() prints one line if a package is not installed.
    import hydra

    from ntl.config.composition import quoted, register
    from ntl.config.help import help_asked

    if (text := help_asked(sys.argv[1:])) is not None:
        print(text)  # Hydra's own help would first copy every config
        return
    if not {"-m", "--multirun"}.isdisjoint(sys.argv[1:]):  # in W&B, the runs of a sweep are a group
        os.environ.setdefault("WANDB_RUN_GROUP", redact(" ".join(word for word in sys.argv[1:] if "," in word))[:128])
    register()
    sys.argv[1:] = map(quoted, sys.argv[1:])
    try:
        hydra.main(version_base="1.3", config_path="config", config_name="train")(task)()
    except Exception:
        compare_swept()
        raise
    compare_swept()
    for error in failures:
        raise error


if __name__ == "__main__":
    sys.exit(report(main, "interrupted; the same command continues from the last checkpoint."))
