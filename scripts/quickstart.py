"""Train a few small runs and print their table: `make quickstart`, or with a real model `make quickstart-real`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import Parser, report
from ntl.config.folders import CONFIG_DIR

REAL = str(CONFIG_DIR / "quickstart_real.yaml")
FACTORS = ((7, 8), (12, 34), (99, 99), (123, 45), (678, 912))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when a run failed. Published records are ignored: what is shown was trained here."""
    parser = Parser(
        description="Train CE, the control and NTL-WAS on two small tasks and print the table; with --real, fine-tune "
        "SmolLM2-135M by CE and by NTL-WAS on multiplication, which takes half an hour on two cores."
    )
    parser.add_argument("--real", action="store_true", help="SmolLM2-135M, from the hub or from `make weights`")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), metavar="DIR", help="default: outputs")
    parser.add_argument("--seeds", type=int, nargs="+", default=(), metavar="N", help="seeds to run (default: all)")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one per core, or 2)")
    chosen = parser.parse_args(argv)
    from ntl.launch.table import complete_tables

    common = {"records": [chosen.outputs], "outputs": chosen.outputs, "seeds": chosen.seeds}
    if not chosen.real:
        return complete_tables(["quickstart"], "tiny", **common, workers=chosen.workers)
    from ntl.config import compose
    from ntl.config.model import source
    from ntl.system.hub import require
    from ntl.system.machine import available_cores

    config = compose(["model=smollm2_135m"])
    require(source(config.model), data_dir=config.data_dir)
    # Two runs: more workers would leave cores without work.
    workers = min(2, available_cores()) if chosen.workers is None else chosen.workers
    code = complete_tables([REAL], "finetune", **common, workers=workers)
    if not code:
        show_answers(chosen.outputs)
    return code


def show_answers(outputs: Path) -> None:
    """Print what each run of the real quickstart answers to a few questions."""
    from rich.console import Console
    from rich.table import Table

    from ntl.decoding.predictor import ask, of_run
    from ntl.launch.plan import demands

    (demand,) = demands([REAL], "finetune", [], outputs)
    questions = [f"What is {a} times {b}?" for a, b in FACTORS]
    columns = {"question": questions, "product": [str(a * b) for a, b in FACTORS]}
    for run in demand.runs.values():
        answers = ask(of_run(run.folder), questions)
        columns[f"loss={run.config.loss.name}"] = [answer["answer"] or "(no answer)" for answer in answers]
    table = Table(*columns)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(report(main, "interrupted; rerun the same command to resume.", messages="stdout"))
