"""Train, decode, score and record one run; see ``python train.py --help``."""

import os
import sys
from typing import TYPE_CHECKING

from ntl.config.cli import report
from ntl.system.errors import Diverged, UserError
from ntl.system.secrets import redact

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Makes Hydra, imported later, raise its exceptions instead of exiting, so that report() prints them as one line.
os.environ["HYDRA_FULL_ERROR"] = "1"
failures: list[Exception] = []


def task(raw: "DictConfig") -> None:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    from ntl.config.composition import config_of_job

    try:
        config, overrides = config_of_job(raw)
        from ntl.training import run

        run(config, overrides=overrides)
    except (UserError, Diverged, OmegaConfBaseException) as error:
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            raise
        failures.append(error)  # an error raised here would make Hydra print a second line


def main() -> None:
    # Imported here, so that report() prints one line if a package is not installed.
    import hydra

    from ntl.config.composition import help_text, register

    if not {"-h", "--help"}.isdisjoint(sys.argv[1:]):
        print(help_text())  # Hydra's own help would first copy every config
        return
    if not {"-m", "--multirun"}.isdisjoint(sys.argv[1:]):  # in W&B, the runs of a sweep are a group
        os.environ.setdefault("WANDB_RUN_GROUP", redact(" ".join(word for word in sys.argv[1:] if "," in word))[:128])
    register()
    hydra.main(version_base="1.3", config_path="config", config_name="train")(task)()
    for error in failures:
        raise error


if __name__ == "__main__":
    sys.exit(report(main, "interrupted; the same command continues from the last checkpoint."))
