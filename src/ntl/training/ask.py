"""Questions of a user's own, put to a trained run or to a model that transformers loads."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ntl.config.decoding import TreeConfig
from ntl.system.errors import UserError

if TYPE_CHECKING:
    from ntl.training.parts import RunParts

LEVEL = 0.95  # of the interval around an expectation
# Longest answer in tokens, by the kind of answers, where no training data says how long they are.
LONGEST = {"number": 32, "reasoning": 256, "text": 64}
ANSWER = "0"  # in the place of the unknown one; a number head predicts what stands there
BATCHES_AT_ONCE = 4  # answers are printed whenever so many batches are done


class Question(NamedTuple):
    """A question, and where it stands: ``question 2``, ``questions.txt:7``."""

    text: str
    where: str


def read_questions(words: Sequence[str], file: str = "") -> list[Question]:
    """The questions of a command line and of a file, one a line; ``-`` is standard input, empty lines are skipped.

    In a file ``*.jsonl`` each line is an object with the key "question". UserError for a file that cannot be read, or
    has no question.
    """
    found = [Question(word.strip(), f"question {number}") for number, word in enumerate(words, 1)]
    if file:
        found += _read_file(file)
    for question in found:
        if not question.text:
            raise UserError(f"{question.where} is empty; ask something.")
    if not found:
        raise UserError(f"{file}: no question in it; write one on each line.")
    return found


def _read_file(file: str) -> list[Question]:
    name = "standard input" if file == "-" else file
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        lines = content.decode("utf-8-sig").split("\n")
    except OSError as error:
        raise UserError(f"--file {file}: {error.strerror}; give a text file with one question on each line.") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name}:{line}: not UTF-8 text; convert the file.") from error
    found = [Question(line.strip(), f"{name}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    return [each._replace(text=_of_json(each)) for each in found] if file.endswith(".jsonl") else found


def _of_json(line: Question) -> str:
    try:
        value = json.loads(line.text)
    except ValueError as error:
        raise UserError(f"{line.where}: not a line of JSON ({error}).") from error
    if not isinstance(value, dict) or not isinstance(value.get("question"), str):
        raise UserError(f'{line.where}: not an object with a text under "question".')
    return value["question"].strip()


def answers(parts: "RunParts", questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """An object for each question, in order, with "question", "answer" and what the decoding knows of the answer.

    A decoding from the distribution over numbers adds "mean", "interval" (the central 95%), "sd" and "covered", the
    probability of all numbers that it found. UserError, before anything is decoded, for a question that is too long.
    """
    from ntl.data.encode import encode_rows, settings_for
    from ntl.decoding.batches import decode
    from ntl.training.decode import DecodingLines, positions_of

    config, limit = parts.config.decoding, longest_answer(parts)
    settings = settings_for(parts.tokenizer, decoder_only=not parts.model.config.is_encoder_decoder, max_length=1 << 30)
    examples = encode_rows([{"question": question.text, "answer": ANSWER} for question in questions], settings)
    room = positions_of(parts.model)
    for question, example in zip(questions, examples, strict=True):
        tokens = len(example["question_ids"]) + len(parts.prefix)
        # The last generated token is not an input.
        most = parts.config.trainer.max_input_length if room is None else room + 1 - limit
        if tokens > min(most, parts.config.trainer.max_input_length):
            _too_long(parts, question, tokens, room, limit)
    options: dict[str, Any] = {"interval": LEVEL} if isinstance(config, TreeConfig) else {}
    lines, done = DecodingLines(parts.say, "questions", len(questions)), 0
    while done < len(questions):
        chunk = slice(done, done + BATCHES_AT_ONCE * config.batch_size)
        found = decode(
            config,
            model=parts.model,
            tokenizer=parts.tokenizer,
            examples=examples[chunk],
            collate=parts.collator.prompts,
            max_new_tokens=limit,
            progress=lambda count, before=done: lines(before + count),
            **options,
        )
        for question, answer in zip(questions[chunk], found, strict=True):
            yield {"question": question.text, "answer": answer.text, **answer.about}
        done += len(found)


def _too_long(parts: "RunParts", question: Question, tokens: int, room: int | None, limit: int) -> None:
    trained = parts.config.trainer.max_input_length
    if tokens > trained:
        why = f"questions have at most {trained:,} (trainer.max_input_length of this run); shorten it."
    else:
        why = (
            f"the model reads {room:,}, {limit:,} of them for the answer; shorten it, or lower decoding.max_new_tokens."
        )
    raise UserError(f"{question.where} is too long: {tokens:,} tokens, and {why}")


def longest_answer(parts: "RunParts") -> int:
    """``decoding.max_new_tokens``; else the longest training answer and a margin, where the data is prepared here.

    Without the data it is ``LONGEST``, and a line says so.
    """
    from ntl.config import build
    from ntl.data.prepared import Prepared
    from ntl.training.decode import max_new_tokens
    from ntl.training.plain import PlainParts

    config = parts.config
    if config.decoding.max_new_tokens or not parts.model.can_generate():
        return config.decoding.max_new_tokens or 1
    if not isinstance(parts, PlainParts) and Prepared(build(config.dataset), parts.data_dir).find():
        return max_new_tokens(parts)
    kind = "text" if isinstance(parts, PlainParts) and not config.decoding.answers else config.dataset.answers
    parts.say(f"An answer has at most {LONGEST[kind]} tokens; decoding.max_new_tokens= sets another number.")
    return LONGEST[kind]


def as_text(answer: dict[str, Any]) -> str:
    """The question, and the answer below it, indented: ``7.2 [5, 9]`` with an interval."""
    text = answer["answer"] or "(no answer)"
    if "interval" in answer:
        text += " [{:.12g}, {:.12g}]".format(*answer["interval"])
    return "\n  ".join([answer["question"], *text.splitlines()])


def ask(parts: "RunParts", questions: Sequence[Question], *, as_json: bool = False) -> None:
    """Print the answers, as text or as JSON lines."""
    doubtful = 0
    for answer in answers(parts, questions):
        print(json.dumps(answer, allow_nan=False) if as_json else as_text(answer), flush=True)
        doubtful += answer.get("covered", 1.0) < 0.5
    if doubtful:
        parts.say(
            f"{doubtful:,} of {len(questions):,} answers: most of the probability is not on numbers that were found; "
            "their mean and interval describe the rest."
        )
