"""`scripts/predict.py`: decode the newest whole checkpoint of a run again, and score its answers."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.config.composition import CHANGEABLE, read_config
from ntl.config.identity import plain
from ntl.config.own import changed, code_of
from ntl.evaluation.evaluate import PREDICTIONS, print_tables
from ntl.evaluation.evaluate import plain as plain_number
from ntl.evaluation.scores import score_predictions
from ntl.results import read_record
from ntl.results.load import RECORD, find_run
from ntl.system.errors import UserError, one_line_when_full
from ntl.system.secrets import redact
from ntl.training.checkpoints import digest, step_of
from ntl.training.folder import only_one

if TYPE_CHECKING:
    from ntl.training.parts import Say


def main(argv: Sequence[str] | None = None) -> int:
    """Print the metrics as scripts/evaluate.py does; progress goes to standard error. UserError for bad input."""
    parser = argparse.ArgumentParser(
        description="Decode the newest whole checkpoint of a run again, and score its answers.",
        epilog=f"The file is {PREDICTIONS} if the decoding is the run's own, else predictions-NAME-BEAMS.jsonl in the "
        "same folder. The name of a checkpoint before the last step is appended.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder, or the id of a run under --outputs")
    settings = f"as decoding.num_beams=1; of {', '.join(CHANGEABLE)}"
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help=settings)
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("--json", action="store_true", help='print {"<split>/<metric>": value} instead of tables')
    arguments = parser.parse_intermixed_args(argv)
    path = predict(find_run(arguments.run, arguments.outputs), arguments.overrides, say=_to_stderr)
    metrics = score_predictions(path).metrics
    if arguments.json:
        print(json.dumps({name: plain_number(value) for name, value in metrics.items()}, allow_nan=False, indent=1))
    else:
        print_tables(metrics)
    return 0


def predict(folder: Path, overrides: Sequence[str] = (), say: "Say" = print) -> Path:
    """Decode the newest whole checkpoint of a run again, with other ``decoding`` settings.

    Returns:
        The predictions file: ``predictions.jsonl`` if the decoding is the run's own and training is complete, so that
        the record of a finished run still describes it; else a file of another name in the same folder.

    Raises:
        Busy: Another process is training or decoding this run.
    """
    # Report mistakes before torch is imported.
    config, own = read_config(folder, overrides), read_config(folder)
    with only_one(folder.resolve()):
        from ntl.training import decode

        parts, checkpoint = decode.restore(folder, overrides, say)
        name = decode.predictions_name(config.decoding)
        if step_of(checkpoint) < config.trainer.max_steps:
            name = decode.predictions_name(config.decoding, checkpoint.name)
            say(f"{checkpoint}: not the last of the {config.trainer.max_steps:,} steps.")
        elif plain(config.decoding) == plain(own.decoding):
            name = PREDICTIONS
            record = folder / RECORD
            stored = read_record(record).config.get("code", {}) if record.is_file() else code_of(own)
            if files := changed(stored, own, ["decoding"]):
                raise UserError(
                    f"{folder}: {', '.join(files)} changed since this run was decoded; put it back as it was, or give "
                    "the new decoding a name of its own."
                )
        path = folder / name
        decode.check_lengths(parts)
        with one_line_when_full(folder):
            splits = decode.splits_of(parts, config.decoding)
            decode.decode_splits(parts, splits, path, weights=digest(checkpoint))
        decode.forget_answers(folder, path.stem)
        say(f"Predictions: {path}")
        return path


def _to_stderr(message: str) -> None:
    print(redact(message), file=sys.stderr, flush=True)
