"""MAE and RMSE under both answer rules of ntl, as functions of lm_eval.

The rules are those of ``ntl.evaluation``, read from the clone that this folder is in: they need numpy alone, so that
lm_eval's environment needs no ntl.
"""

import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from ntl.evaluation.rules import RULES, AnswerRule


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
    return [_compared(RULES["default"], each[0], doc) for each, doc in zip(responses, docs, strict=True)]


def by_paper(responses: Any, docs: Any) -> list[dict[str, Any]]:
    """Filter: the same by the paper's rule."""
    return [_compared(RULES["paper"], each[0], doc) for each, doc in zip(responses, docs, strict=True)]


def _compared(rule: AnswerRule, response: str, doc: dict[str, Any]) -> dict[str, Any]:
    value, answer = rule.extract(response), rule.extract(doc["answer"])
    if answer is None:
        raise ValueError(f"{doc['id']}: the answer {doc['answer']!r} holds no number; this is no regression data set.")
    return {"value": str(value), "error": float(rule.compare([value], [answer]).error[0])}


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
