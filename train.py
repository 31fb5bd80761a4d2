"""Train, decode, score and record one run; see ``python train.py --help``."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.config.cli import HELP_FLAGS, Parser, report
from ntl.config.folders import CONFIG_DIR, GROUPS, choices, use
from ntl.system.errors import Diverged, UserError, redact
from ntl.system.messages import printed

if TYPE_CHECKING:
    from omegaconf import DictConfig

HELP = """Train one model, decode its test sets, score the answers, write outputs/<run id>/record.json.

Choices (group=name):
{choices}

Any value of the composed config can be set the same way: trainer.lr=1e-3 loss.weight=0.5 seed=2.
`python train.py --help trainer` says what each setting of a group means, `--help dataset=gsm8k` those of a choice.
`python train.py --dry-run` trains nothing and prints the memory and hours that the run needs on a GPU (--gpu h100).
`python train.py --cfg job` prints the config, `-m` sweeps over comma-separated values.
`--config-dir DIR` takes further choices from your own files, such as DIR/loss/NAME.yaml.

Examples:
  python train.py
  python train.py dataset=noisy_numbers loss=ce seed=1
  python train.py model=t5_base loss=ntl_was dataset=arithmetic scale=paper
  python train.py -m dataset=noisy_numbers loss=ce,ce_digits,ntl_was seed=1,2,3,4
"""
failures: list[Exception] = []
swept: dict[Path, list[str]] = {}  # the folders of a sweep's runs, and their overrides


def help_text() -> str:
    """The text of ``--help``, from the files of the config folders."""
    lines = [f"  {group:<14}  {meaning}\n{'':<20}{' '.join(choices(group))}" for group, meaning in GROUPS.items()]
    return HELP.format(choices="\n".join(lines))


def task(raw: "DictConfig") -> None:
    """Train the run of a composed config. Its errors are raised by ``main``, in one line."""
    if "SUBMITIT_EXECUTOR" in os.environ:  # a job of a cluster
        from ntl.config.composition import config_of_job
        from ntl.launch.workers import train_job

        return train_job(*config_of_job(raw))
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    from ntl.config.composition import config_of_job
    from ntl.config.identity import run_id
    from ntl.training.train import train

    is_sweep = HydraConfig.get().mode is RunMode.MULTIRUN
    try:
        config, overrides = config_of_job(raw)
        if is_sweep:
            swept[Path(config.output_dir) / run_id(config)] = overrides
        with printed():  # also in a process that a launcher starts
            train(config, overrides)
    except (UserError, Diverged, OmegaConfBaseException, BrokenPipeError) as error:
        if is_sweep:
            raise
        failures.append(error)  # an error raised here would make Hydra print a second line


def price(words: list[str]) -> None:
    """Print what the run of these overrides takes of a GPU. UserError: unknown GPU, or as composing them does."""
    parser = Parser(prog="train.py --dry-run", allow_abbrev=False)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--config-dir", "-cd")  # is in use already
    parser.add_argument("overrides", nargs="*")
    chosen = parser.parse_intermixed_args(words)
    from ntl.config.composition import compose
    from ntl.launch.capacity import capacity

    print(capacity([compose(chosen.overrides)], chosen.gpu))


def main() -> None:
    """Train what ``sys.argv`` says. UserError, or an error of Hydra or OmegaConf, for bad input."""
    words = sys.argv[1:]
    options = Parser(add_help=False, allow_abbrev=False)
    options.add_argument("--config-dir", "-cd", type=Path)  # Hydra's own
    options.add_argument("--cfg", "-c")  # otherwise -c would be read as -cd
    if folder := options.parse_known_args(words)[0].config_dir:
        use(folder)
    if any(word in HELP_FLAGS for word in words):  # Hydra's own help would first copy every config
        from ntl.config.cli import help_asked

        print(help_text() if len(words) == 1 else help_asked(words) or help_text())
        return
    if "--dry-run" in words:
        return price([word for word in words if word != "--dry-run"])
    # Makes Hydra raise its exceptions instead of exiting, so that they are printed as one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    if is_sweep := not {"-m", "--multirun"}.isdisjoint(words):  # in W&B, the runs of a sweep are a group
        os.environ.setdefault("WANDB_RUN_GROUP", redact(" ".join(word for word in words if "," in word))[:128])
    # Imported here, so that --help is there at once.
    import hydra
    from hydra._internal.utils import get_args_parser

    from ntl.config.composition import quoted, register

    flags = get_args_parser()
    flags.error = options.error  # one line, where Hydra's own has eight
    flags.parse_args(words)
    register()
    sys.argv[1:] = [quoted(word, sweep=is_sweep) for word in words]
    try:
        hydra.main(version_base="1.3", config_path=str(CONFIG_DIR), config_name="train")(task)()
    finally:
        if swept:  # also where some of them failed
            from ntl.results.readings import show_sweep
            from ntl.runs.folder import is_first

            if is_first():
                show_sweep(swept)
    for error in failures:
        raise error


if __name__ == "__main__":
    without = ", without resume=," * any(word.startswith("resume=") for word in sys.argv)
    interrupted = f"interrupted; the same command{without} continues from the last checkpoint."
    sys.exit(report(main, interrupted, messages="stdout"))
