"""Decode test splits again, or answer questions: python scripts/predict.py RUN [QUESTION] [KEY=VALUE ...]."""

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ntl.config.cli import Parser, report
from ntl.system.errors import UserError
from ntl.system.files import regular

SETTING = re.compile(r"([A-Za-z_][\w./]*)=")


def main(argv: Sequence[str] | None = None) -> None:
    """Print answers, or metrics as scripts/evaluate.py does; progress goes to standard error. UserError: bad input."""
    from ntl.config.composition import CHANGEABLE, read_config
    from ntl.evaluation.evaluate import PREDICTIONS, print_metrics

    parser = Parser(
        description="Answer questions with the last or best checkpoint of a run, or with a model that transformers "
        "loads. Without a question, decode the test splits of a run again and score the answers.",
        epilog=f"The file of answers is {PREDICTIONS} if the decoding is the run's own, else "
        "predictions-NAME-BEAMS.jsonl in the same folder. Other settings of the decoding, the name of another data "
        "set, and that of a checkpoint before the last step are appended.",
    )
    source = "run folder, the id of a run under --outputs, a folder written by save_pretrained, or a hub id owner/name"
    parser.add_argument("run", metavar="RUN", help=source)
    settings = f"a question, or a setting such as decoding=beam or dataset=gsm8k; groups: {', '.join(CHANGEABLE)}"
    parser.add_argument("words", metavar="QUESTION|KEY=VALUE", nargs="*", default=[], help=settings)
    parser.add_argument("--file", default="", help="questions, one a line; - is standard input")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    through = "put the questions through the chat template; a run trained with dataset.format=chat does so by itself"
    parser.add_argument("--chat", action="store_true", help=through)
    held = "print an interval of this level, such as 0.9, around each number, calibrated on validation answers"
    parser.add_argument("--interval", type=float, metavar="LEVEL", help=held)
    lines = 'print {"<split>/<metric>": value} instead of tables, and each answer as a JSON object on a line'
    parser.add_argument("--json", action="store_true", help=lines)
    chosen = parser.parse_intermixed_args(argv)
    overrides = [word for word in chosen.words if is_setting(word)]
    questions = [word for word in chosen.words if word not in overrides]
    if chosen.interval is not None and not 0 < chosen.interval < 1:
        raise UserError(f"--interval {chosen.interval}: the level is above 0 and below 1, such as 0.9.")
    if "-" in questions:
        raise UserError("-: no question; --file - reads questions from standard input, one a line.")
    if chosen.file:
        questions += read_questions(chosen.file)
    model = find(chosen.run, chosen.outputs)
    if isinstance(model, Path):
        read_config(model, overrides)  # reports mistakes before torch is imported
    from ntl.decoding import predictor

    if questions:
        if isinstance(model, str):
            if chosen.interval:
                raise UserError(f"--interval: {model} is a model without a run, so without validation answers.")
            loaded = predictor.stored(model, overrides, chat=chosen.chat)
            is_decoder, tokenizer = loaded.parts.config.model.family == "decoder", loaded.parts.tokenizer
            if is_decoder and tokenizer.chat_template and not chosen.chat:
                hint = "--chat asks through it, as models with one are trained"
                print(f"{model}: its tokenizer has a chat template; {hint}.", file=sys.stderr)
        else:
            options = {"chat": chosen.chat, "intervals": bool(chosen.interval)}
            loaded = predictor.of_run(model, overrides, **options)
        for answer in predictor.ask(loaded, questions, interval=chosen.interval or 0.0):
            print(json.dumps(answer, allow_nan=False) if chosen.json else as_text(answer))
    elif chosen.interval:
        raise UserError(
            "--interval: it is for questions; decoding.interval_rows=1000 scores the intervals of test splits."
        )
    elif chosen.chat:
        raise UserError("--chat: it is for questions; ask one, or set dataset.format=chat to decode test splits by it.")
    elif isinstance(model, str):
        raise UserError(f"{model}: a model without a run has no test splits; ask it a question.")
    else:
        print_metrics(predictor.predict(model, overrides), as_json=chosen.json)


def find(name: str, outputs: Path) -> Path | str:
    """The folder of a run; or, as text, what transformers loads: a folder with config.json, or a hub id."""
    from ntl.config.model import HUB_ID
    from ntl.results.record import find_run

    folder = Path(name)
    is_stored = (folder / "config.json").is_file() and not (folder / "config.yaml").is_file()
    # A path with a mistake in it looks like a hub id.
    is_hub_id = HUB_ID.fullmatch(name) and not folder.parent.is_dir() and folder.parent != outputs
    return name if is_stored or is_hub_id else find_run(name, outputs)


def is_setting(word: str) -> bool:
    """Whether a word sets something: "decoding.splits=[test, x]" does, "x=3 and y=4: what is x+y?" does not."""
    from ntl.config.composition import CHANGEABLE

    match = SETTING.match(word)
    return bool(match and (match[1].split(".")[0] in CHANGEABLE or not re.search(r"\s", word)))


def read_questions(file: str) -> list[str]:
    """The lines of a text file that are not empty; ``-`` is standard input. UserError: there is no file, or no line."""
    try:
        content = sys.stdin.buffer.read() if file == "-" else regular(Path(file)).read_bytes()
        questions = [line for line in re.split("[\r\n]", content.decode("utf-8-sig")) if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        remedy = "give a text file with one question on each line, or - for standard input"
        raise UserError(f"--file {file}: {reason}; {remedy}.") from error
    if not questions:
        raise UserError(f"--file {file}: no question in it; write one on each line.")
    return questions


def as_text(answer: dict[str, Any]) -> str:
    """The question, and below it the answer, its interval, and a line where it is of a part of the model."""
    from ntl.evaluation.metrics import COVERED

    text = answer["answer"] or "(no answer)"
    if "interval" in answer:
        low, high = answer["interval"]
        top = max(abs(low), abs(high))
        decimals = max(0, 3 - math.floor(math.log10(top))) if 0 < top < math.inf else 0
        ends = f"[{round(low, decimals):.12g}, {round(high, decimals):.12g}]"
        level = f"{100 * answer['level']:.12g}%" if "level" in answer else "central 95%"
        text += f", {level} in {ends}"
    if (part := answer.get("represented", 1.0)) < COVERED:
        text += f"\nNumbers hold {part:.2f} of the probability, the rest is text: this answer is that of the part."
    return "\n  ".join([answer["question"], *text.splitlines()])


if __name__ == "__main__":
    sys.exit(report(main))
