"""`scripts/predict.py`: decode test splits with a trained model and score its answers, or answer questions."""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.config.cli import Parser
from ntl.config.composition import CHANGEABLE, read_config
from ntl.config.identity import plain
from ntl.config.legality import HUB_ID
from ntl.evaluation.evaluate import PREDICTIONS, print_tables
from ntl.evaluation.evaluate import plain as plain_number
from ntl.results.load import find_run
from ntl.system.errors import UserError, one_line_when_full
from ntl.system.hub import CONFIG
from ntl.system.secrets import redact
from ntl.training.ask import ask, read_questions
from ntl.training.checkpoints import digest, step_of
from ntl.training.folder import best_step, only_one

if TYPE_CHECKING:
    from ntl.training.parts import RunParts, Say
    from ntl.training.tracking import NoMirror

SETTING = re.compile(r"[+~]*[A-Za-z_][\w./@]*=")
DATASET = "dataset="


def main(argv: Sequence[str] | None = None) -> int:
    """Print metrics as scripts/evaluate.py does, or answers; progress goes to standard error. UserError: bad input."""
    parser = Parser(
        description="Answer questions with the newest whole checkpoint of a run, or, without a question, decode its "
        "test splits again and score its answers. RUN may also be a model that transformers loads.",
        epilog=f"The file of answers is {PREDICTIONS} if the decoding is the run's own, else "
        "predictions-NAME-BEAMS.jsonl in the same folder. The name of another data set, or of a checkpoint before the "
        "last step, is appended.",
    )
    given = "run folder, the id of a run under --outputs, a folder written by save_pretrained, or a hub id owner/name"
    parser.add_argument("run", metavar="RUN", help=given)
    settings = f"a question, or a setting as decoding.num_beams=1 or dataset=gsm8k; of {', '.join(CHANGEABLE)}"
    parser.add_argument("words", metavar="QUESTION|KEY=VALUE", nargs="*", default=[], help=settings)
    parser.add_argument("--file", default="", help="questions, one a line; - is standard input")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    lines = 'print {"<split>/<metric>": value} instead of tables, and each answer as a JSON object on a line'
    parser.add_argument("--json", action="store_true", help=lines)
    chosen = parser.parse_intermixed_args(argv)
    overrides = [word for word in chosen.words if _is_setting(word)]
    words = [word for word in chosen.words if not _is_setting(word)]
    model = _model_named(chosen.run, chosen.outputs)
    if words or chosen.file:
        if any(override.startswith("dataset") for override in overrides):
            raise UserError("a question and dataset=: give one of them; a data set has questions of its own.")
        questions = read_questions(words, chosen.file)
        ask(_parts(model, overrides), questions, as_json=chosen.json)
        return 0
    from ntl.evaluation.scores import score_predictions

    if isinstance(model, str):
        path = predict_plain(model, overrides, chosen.outputs, say=_to_stderr)
    else:
        path = predict(model, overrides, say=_to_stderr)
    metrics = score_predictions(path).metrics
    if chosen.json:
        print(json.dumps({name: plain_number(value) for name, value in metrics.items()}, allow_nan=False, indent=1))
    else:
        print_tables(metrics)
    return 0


def _is_setting(word: str) -> bool:
    # "x=3 and y=4: what is x+y?" is a question, "decoding.splits=[test, interpolate]" is none.
    found = SETTING.match(word)
    known = found and found[0].strip("+~=").split(".")[0] in CHANGEABLE
    return bool(known or (found and not re.search(r"\s", word)))


def _model_named(name: str, outputs: Path) -> Path | str:
    """The folder of a run; or, as text, what transformers loads: a folder with config.json, or a hub id."""
    if Path(name).is_dir() and (Path(name) / CONFIG).is_file() and not (Path(name) / "config.yaml").is_file():
        return name
    # A path with a mistake in it looks like a hub id.
    is_path = Path(name).exists() or (outputs / name).is_dir() or Path(name).parent.is_dir()
    if HUB_ID.fullmatch(name) and not is_path and Path(name).parent != outputs:
        return name
    return find_run(name, outputs)


def _parts(model: Path | str, overrides: Sequence[str]) -> "RunParts":
    """The parts of what questions are put to. Nothing is written, and no training data is needed."""
    if isinstance(model, str):
        from ntl.training.plain import plain_parts

        return plain_parts(model, overrides, _to_stderr)
    config = read_config(model, overrides)  # reports mistakes before torch is imported
    from ntl.training.decode import restore

    parts, checkpoint = restore(model, overrides, _to_stderr, own_data=False)
    _tell_step(checkpoint, config.trainer.max_steps, _to_stderr)
    return parts


def _tell_step(checkpoint: Path, max_steps: int, say: "Say") -> bool:
    """Whether the checkpoint is before the last step; a line says so."""
    if step_of(checkpoint) >= max_steps:
        return False
    say(f"{checkpoint}: not the last of the {max_steps:,} steps.")
    return True


def predict(folder: Path, overrides: Sequence[str] = (), say: "Say" = print) -> Path:
    """Decode the newest whole checkpoint of a run again, with other ``decoding`` settings, or on another data set.

    Returns:
        The predictions file: ``predictions.jsonl`` if decoding and data are the run's own and training is complete, so
        that the record of a finished run still describes it; else a file of another name in the same folder.

    Raises:
        Busy: Another process is training or decoding this run.
    """
    # Report mistakes before torch is imported.
    config, own = read_config(folder, overrides), read_config(folder)
    elsewhere = plain(config.dataset) != plain(own.dataset)
    with only_one(folder.resolve()):
        from ntl.models.lora import parameters
        from ntl.training import decode
        from ntl.training.tracking import Tracked, mirror

        tracker = mirror(config.tracking, say)
        parts, checkpoint = decode.restore(folder, overrides, say, own_data=not elsewhere)
        more = [parts.dataset.folder_name] if elsewhere else []
        if _tell_step(checkpoint, best_step(folder) or config.trainer.max_steps, say):
            more.append(checkpoint.name)
        name = decode.predictions_name(config.decoding, *more)
        if not more and plain(config.decoding) == plain(own.decoding):
            name = PREDICTIONS
        if elsewhere and config.dataset.name == own.dataset.name:
            say(f"{config.dataset.name} with other settings: its test questions may be among those of training.")
        decode.check_lengths(parts, decode.splits_of(parts, config.decoding) if elsewhere else ())
        job = f"{folder.name}-{Path(name).stem}"
        with closing(tracker):
            tracker.start(Tracked.of(config, job, folder, parameters(parts.model), job="predict"))
            return _decode(parts, folder / name, digest(checkpoint), say, tracker)


def predict_plain(model: str, overrides: Sequence[str], outputs: Path, say: "Say" = print) -> Path:
    """Decode the test splits of ``dataset=`` with a model that transformers loads; the file is in ``outputs``."""
    if not any(override.startswith(DATASET) for override in overrides):
        raise UserError(f"{model}: a model without a run: ask it a question, or name a data set by dataset=.")
    from ntl.training import decode
    from ntl.training.plain import plain_parts

    parts = plain_parts(model, overrides, say)
    splits = decode.splits_of(parts, parts.config.decoding)
    decode.check_lengths(parts, splits)
    named = f"{parts.config.model.name}-{parts.loaded.get('sha256', '')[:8]}"
    name = decode.predictions_name(parts.config.decoding, named, parts.dataset.folder_name)
    return _decode(parts, outputs / name, str(parts.loaded), say)


def _decode(parts: "RunParts", path: Path, weights: str, say: "Say", tracker: "NoMirror | None" = None) -> Path:
    from ntl.training import decode
    from ntl.training.tracking import SAMPLE_COLUMNS, sample

    with one_line_when_full(path.parent):
        splits = decode.splits_of(parts, parts.config.decoding)
        if cut := sum(parts.encoded(split).about["truncated"] for split in splits):
            say(f"{cut:,} questions are longer than trainer.max_input_length: their beginning is cut off.")
        scores = decode.decode_splits(parts, splits, path, weights=weights)
        if tracker is not None:
            tracker.table("test/predictions", SAMPLE_COLUMNS, sample(parts, path))
            tracker.finish(scores.metrics)
    decode.forget_answers(path.parent, path.stem)
    say(f"Predictions: {path}")
    return path


def _to_stderr(message: str) -> None:
    print(redact(message), file=sys.stderr, flush=True)
