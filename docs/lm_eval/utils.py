"""MAE and RMSE under both answer rules of ntl, as functions of lm_eval. Nothing here imports ntl.

``default``: the whole text if it is a number, else the number after the first ``####``, else the last number; compared
exactly, as decimals. ``paper``: the last match of the original code's pattern, as a float; predictions are clipped to
±1e10. The repository's tests compare both with ``ntl.evaluation``, whose docstrings explain them.
"""

import hashlib
import json
import math
import re
import unicodedata
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

RULES = {"default": 3, "paper": 1}  # name -> version, as in the record of a run
MAX_EXPONENT = 50_000
WIDE = Context(prec=50)
CLIP = 1e10

NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)\]}%])[+-])?"
    r"(?P<body>[0-9]++(?:,[0-9]++)*+(?:\.[0-9]*+)?|(?<![\w.])\.[0-9]++)"
    r"(?P<exponent>[eE][+-]?[0-9]++)?"
)
GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})++(?:\.[0-9]*+)?")
PAPER_NUMBER = re.compile(r"(?:[+-]\s*+)?\d++(?:\.\d++)?")

VULGAR, POWERS = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", "⁰¹²³⁴⁵⁶⁷⁸⁹"
SPECIAL = re.compile(rf"[/⁄{VULGAR}{POWERS}\u00a0\u2009\u202f]|[-−][$€£¥]")
GROUPS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:[\u00a0\u2009\u202f][0-9]{3})+(?![0-9])")
SPACED = re.compile(r"\A([^0-9]*)([1-9][0-9]{0,2}(?: [0-9]{3})+)(?![0-9])")
UNARY = r"(?<![\w.)\]}%])[-+−]"
SIGNED_AMOUNT = re.compile(rf"({UNARY})[$€£¥](?=[0-9.])")
NUMERAL = r"[0-9]{1,18}(?:,[0-9]{3}){0,6}(?:\.[0-9]{1,18})?"
COMPOUND = re.compile(
    rf"(?P<sign>{UNARY})?(?<![0-9])(?:"
    rf"(?:(?P<mixed>[0-9]{{1,18}}) )?(?P<top>{NUMERAL}) ?[/⁄] ?(?P<bottom>{NUMERAL})(?P<chain>(?: ?[/⁄] ?[0-9]+)*)"
    rf"|(?P<whole>[0-9]{{0,18}}) ?(?P<vulgar>[{VULGAR}])"
    rf"|{NUMERAL}[{POWERS}]+)"
)


def load(data: str = "", dataset: str = "", split: str = "", **options: Any) -> dict[str, Any]:
    """The rows of a split from ``data``, the folder that scripts/prepare_data.py has printed.

    ``options`` holds --model_args. ValueError: it is not a folder of this data set, its file is not the one that was
    prepared, or nothing says whether the tokenizer adds its special tokens, with which our decoders were never trained.
    """
    from datasets import Dataset  # not needed to score

    if "pretrained" in options and "add_bos_token" not in options:
        raise ValueError("--model_args: add add_bos_token=False for a model of ntl, add_bos_token=True for others.")
    manifest = Path(data) / "manifest.json"
    if not data or not manifest.is_file():
        raise ValueError(f"{manifest}: not found; give --metadata data=FOLDER, the prepared folder of {dataset}.")
    about = json.loads(manifest.read_text(encoding="utf-8"))
    if about["dataset"] != dataset:
        raise ValueError(f"{data} holds {about['dataset']}, not {dataset}; give the prepared folder of {dataset}.")
    if split not in about["splits"]:
        raise ValueError(f"{data} has no {split}, but {', '.join(about['splits'])}.")
    content = (Path(data) / f"{split}.jsonl").read_bytes()
    if hashlib.sha256(content).hexdigest() != about["splits"][split]["sha256"]:
        raise ValueError(f"{data}/{split}.jsonl has changed since it was prepared; delete {data} and prepare it again.")
    return {"test": Dataset.from_list([json.loads(line) for line in content.splitlines()])}


def by_default(responses: Any, docs: Any) -> list[dict[str, Any]]:
    """Filter: the first response to each document, parsed and compared by the default rule."""
    return [_compared(extract_default, _distance, each[0], doc) for each, doc in zip(responses, docs, strict=True)]


def by_paper(responses: Any, docs: Any) -> list[dict[str, Any]]:
    """Filter: the same by the paper's rule."""
    return [_compared(extract_paper, _clipped, each[0], doc) for each, doc in zip(responses, docs, strict=True)]


def _compared(extract: Any, distance: Any, response: str, doc: dict[str, Any]) -> dict[str, Any]:
    value, answer = extract(response), extract(doc["answer"])
    if answer is None:
        raise ValueError(f"{doc['id']}: the answer {doc['answer']!r} holds no number; this is no regression data set.")
    return {"value": str(value), "error": math.nan if value is None else distance(value, answer)}


def _distance(value: Decimal, answer: Decimal) -> float:
    return float(WIDE.abs(WIDE.subtract(value, answer)))


def _clipped(value: Decimal, answer: Decimal) -> float:
    return abs(min(max(float(value), -CLIP), CLIP) - float(answer))


def scores(doc: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, float]:
    """What is aggregated of one document; NaN where its prediction could not be parsed."""
    error = results[0]["error"]
    return {"mae": error, "rmse": error, "unparsable": float(math.isnan(error))}


def mean(errors: list[float]) -> float:
    """MAE over the predictions that could be parsed; NaN if there are none."""
    parsed = [error for error in errors if not math.isnan(error)]
    return float(np.mean(parsed)) if parsed else math.nan


def root_mean_square(errors: list[float]) -> float:
    """RMSE over the predictions that could be parsed; NaN if there are none."""
    return math.sqrt(mean(list(np.square(errors))))


def extract_default(text: str) -> Decimal | None:
    """The answer by the default rule, or None."""
    match = NUMBER.fullmatch(_fold(text).strip())
    if match and len(whole := _split(match)) == 1 and (value := _decimal(whole[0])) is not None:
        return value
    _, mark, tail = text.partition("####")
    marked = read_numbers(SPACED.sub(lambda match: match[1] + match[2].replace(" ", ""), tail)) if mark else []
    if marked:
        return marked[0]
    numbers = read_numbers(text)
    return numbers[-1] if numbers else None


def extract_paper(text: str) -> Decimal | None:
    """The answer by the paper's rule, or None."""
    found = PAPER_NUMBER.findall(text)
    try:
        return Decimal(repr(float(found[-1].replace(" ", "")))) if found else None
    except ValueError:
        return None


def read_numbers(text: str) -> list[Decimal | None]:
    """All numbers of a text, fractions by their value; None for one that is no finite decimal."""
    if not SPECIAL.search(text):
        return find_numbers(text)
    text = GROUPS.sub(lambda match: re.sub(r"\s", "", match[0]), text)
    text = SIGNED_AMOUNT.sub(r"\1", text)
    values: list[Decimal | None] = []
    rest = 0
    for match in [*COMPOUND.finditer(text), None]:
        part = text[rest : match.start() if match else len(text)]
        # A sign right after a fraction is a minus, as after any word.
        values += find_numbers(f"x{part}" if rest else part)
        if match:
            values += _compound(match)
            rest = match.end()
    return values


def find_numbers(text: str) -> list[Decimal | None]:
    """The plain numbers of a text."""
    values = [_decimal(numeral) for match in NUMBER.finditer(_fold(text)) for numeral in _split(match)]
    return [value for value in values if value is not None]


def _fold(text: str) -> str:
    return text.replace("\N{MINUS SIGN}", "-")


def _split(match: re.Match[str]) -> list[str]:
    sign, body, exponent = match.groups(default="")
    numerals = [body.replace(",", "")] if GROUPED.fullmatch(body) else body.split(",")
    numerals[0] = sign + numerals[0]
    numerals[-1] += exponent
    return numerals


def _decimal(numeral: str) -> Decimal | None:
    try:
        value = Decimal(numeral)
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value.adjusted()) <= MAX_EXPONENT else None


def _compound(match: re.Match[str]) -> list[Decimal | None]:
    before: list[Decimal | None] = []
    value = None
    if match["vulgar"]:
        top, _, bottom = unicodedata.normalize("NFKC", match["vulgar"]).partition("⁄")
        value = int(match["whole"] or 0) + Fraction(int(top), int(bottom))
    elif match["top"] and not match["chain"]:
        over, under = (Fraction(match[name].replace(",", "")) for name in ("top", "bottom"))
        value = over / under if under else None
        if match["mixed"] and value is not None and value < 1:
            value += int(match["mixed"])
        elif match["mixed"]:
            before.append(Decimal(match["mixed"]))
    if value is None:
        return [*before, None]
    value *= -1 if match["sign"] in ("-", "−") and not before else 1
    places, bottom = 0, value.denominator
    while (factor := math.gcd(bottom, 10)) > 1:
        bottom //= factor
        places += 1
    return [*before, Decimal(f"{(value * 10**places).numerator}E-{places}") if bottom == 1 else None]
