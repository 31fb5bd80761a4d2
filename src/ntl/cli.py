"""The command ``ntl``: the commands by name, each imported when it is run. ``scripts/`` has them as files."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from ntl import __version__
from ntl.config.cli import BAD_INPUT, DONE, HELP_FLAGS, report
from ntl.config.own import OPTION, OPTION_HELP
from ntl.config.suggestions import nearest

AGAIN = "interrupted; the same command goes on where it stopped."


class Command(NamedTuple):
    """``target`` is the function by its dotted name; ``interrupted`` is the line that follows Ctrl-C."""

    target: str
    about: str
    interrupted: str = "interrupted."


COMMANDS = {
    "train": Command(
        "ntl.training.train:main",
        "train, decode, score and record one run",
        "interrupted; the same command continues from the last checkpoint.",
    ),
    "predict": Command("ntl.training.predictor:main", "answer questions, or decode the test splits of a run again"),
    "evaluate": Command("ntl.evaluation.evaluate:main", "recompute the metrics of a run from its predictions"),
    "compare": Command("ntl.results.compare_runs:main", "what differs between runs, and their metrics"),
    "errors": Command("ntl.training.errors:main", "the worst answers of a run, with their questions"),
    "attention": Command("ntl.training.attention:main", "what a decoder attends to: masked tokens, and the answer"),
    "calibrate": Command("ntl.training.calibration:main", "how far a run's distribution over digits can be believed"),
    "prepare": Command("ntl.data.prepare_command:main", "prepare data sets, check or describe them"),
    "reproduce": Command("ntl.launch.reproduce:main", "train the runs that a table lacks, and print it", AGAIN),
    "quickstart": Command("ntl.launch.reproduce:quickstart", "train 15 small runs and print their table", AGAIN),
    "tables": Command("ntl.results.make_tables:main", "compute the tables from records"),
    "figures": Command("ntl.results.figures.make_figures:main", "draw the figures from records"),
    "report": Command("ntl.results.report.make_report:main", "one HTML page of tables, figures and runs"),
    "publish": Command("ntl.launch.publish:main", "copy the record of a finished run into results/runs"),
    "push": Command("ntl.training.push:main", "write a model card for a run, and upload its checkpoint"),
    "loss-curves": Command("ntl.benchmarks.loss_curves:main", "the losses of Figures 1b and 2 as CSV files"),
    "benchmark-data": Command("ntl.benchmarks.data:main", "speed and memory of preparing and reading data"),
    "benchmark-decoding": Command("ntl.benchmarks.decoding:main", "speed of decodings"),
    "benchmark-losses": Command("ntl.benchmarks.losses:main", "speed and memory of losses"),
    "benchmark-mask": Command("ntl.benchmarks.mask:main", "what masking the input adds to a step"),
    "benchmark-mtp": Command("ntl.benchmarks.mtp:main", "time and memory of multi-token prediction by heads"),
    "benchmark-speculative": Command("ntl.benchmarks.speculative:main", "decoding with drafts against greedy decoding"),
    "benchmark-tracking": Command("ntl.benchmarks.training:main_tracking", "what a mirror of metrics costs a step"),
    "benchmark-training": Command("ntl.benchmarks.training:main", "speed of training steps"),
}


def help_text() -> str:
    """The commands, one a line."""
    lines = [f"  {name:<23}{command.about}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: ntl COMMAND ...",
            "",
            "Train and evaluate with the Number Token Loss.",
            "",
            *lines,
            "",
            f"  {OPTION} DIR    {OPTION_HELP}",
            "",
            "`ntl COMMAND --help` describes a command. Files are read and written in the working directory.",
        ]
    )


def run(name: str) -> int:
    """Run the command with the arguments of ``sys.argv``, and return its exit code."""
    command = COMMANDS[name]
    return report(command.target, command.interrupted)


def main(argv: Sequence[str] | None = None) -> int:
    """``ntl COMMAND ...``: returns the exit code of the command, 2 for an unknown one."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in (*HELP_FLAGS, "help"):
        print(help_text())
        return DONE
    name, *rest = words
    if name == "--version":
        print(f"ntl {__version__}")
        return DONE
    if name not in COMMANDS:
        meant = " Settings follow the command: ntl train loss=ce." if "=" in name else nearest(name, COMMANDS)
        print(f"error: {name}: no such command; choose one of {', '.join(COMMANDS)}.{meant}", file=sys.stderr)
        return BAD_INPUT
    sys.argv = [f"ntl {name}", *rest]
    return run(name)
