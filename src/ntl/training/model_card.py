"""The model card of a finished run, written from its record. No text of a data set is ever in it."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ntl.config import build
from ntl.config.composition import from_values
from ntl.evaluation.evaluate import PREDICTIONS
from ntl.evaluation.predictions import read_predictions
from ntl.evaluation.rules import RULES
from ntl.results.record import RunRecord
from ntl.results.statistics import DRAWS, bootstrap_difference
from ntl.system.files import sha256_of
from ntl.system.secrets import redact

CARD = "README.md"
METRICS = ("accuracy", "mae", "rmse", "bleu", "rougeL", "exact_match", "unparsable")
SUFFIXES = ("", "@paper")

_LANGUAGE = """\
from transformers import {auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{repo}")
model = {auto}.from_pretrained("{repo}")
inputs = tokenizer(question, return_tensors="pt"{plain})
output = model.generate(**inputs, max_new_tokens=40, do_sample=False)[0]
print(tokenizer.decode(output{skip}, skip_special_tokens=True))"""
_VALUE = """\
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{repo}")
model = AutoModelForSequenceClassification.from_pretrained("{repo}")
print(model(**tokenizer(question, return_tensors="pt"{plain})).logits.item())"""
_OURS = """\
import {module}
from huggingface_hub import snapshot_download
from ntl.tokenizers import load_tokenizer
from transformers import {auto}

folder = snapshot_download("{repo}")
tokenizer = load_tokenizer(folder, kind="{kind}")
model = {auto}.from_pretrained(folder)"""
_STOCK = "transformers loads it; this project is not needed."
_NOT_STOCK = "The model and its tokenizer are classes of this project: transformers alone cannot load it."
_DECODER = {"plain": ", add_special_tokens=False", "skip": "[inputs.input_ids.shape[1] :]"}
# Family of a model -> (a line, code, what is put into the code).
LOADING: dict[str, tuple[str, str, dict[str, str]]] = {
    "t5": (_STOCK, _LANGUAGE, {"auto": "AutoModelForSeq2SeqLM", "plain": "", "skip": ""}),
    "decoder": (
        f"{_STOCK} `add_special_tokens=False` is needed: no end token followed a question in training.",
        _LANGUAGE,
        {"auto": "AutoModelForCausalLM", **_DECODER},
    ),
    "t5_regression": (f"{_STOCK} The single logit is the answer.", _VALUE, {"plain": ""}),
    "decoder_regression": (
        f"{_STOCK} The single logit is the answer. `add_special_tokens=False` is needed, as in training.",
        _VALUE,
        {"plain": _DECODER["plain"]},
    ),
    "rt": (_NOT_STOCK, _OURS, {"module": "ntl.models.rt", "kind": "rt", "auto": "AutoModelForSeq2SeqLM"}),
    "xval": (_NOT_STOCK, _OURS, {"module": "ntl.models.xval", "kind": "xval", "auto": "AutoModel"}),
}


def intervals(record: RunRecord, path: Path) -> dict[str, tuple[float, float]]:
    """95% percentile bootstrap intervals over test examples, by metric: "test/mae", "test/mae@paper".

    Empty unless ``path`` is the predictions file that the record's metrics were computed from, and for text answers.
    """
    if not path.is_file() or sha256_of(path) != record.predictions_sha256:
        return {}
    header, rows = read_predictions(path)
    found: dict[str, tuple[float, float]] = {}
    if header["metrics"] != "number":
        return found
    for split in dict.fromkeys(row["split"] for row in rows):
        chosen = [row for row in rows if row["split"] == split]
        for suffix, rule in zip(SUFFIXES, RULES.values(), strict=True):
            answers = [value for row in chosen if (value := rule.extract(row["answer"])) is not None]
            pairs = rule.compare([rule.extract(row["prediction"]) for row in chosen], answers)
            errors = pairs.error[np.isfinite(pairs.error)]
            found[f"{split}/accuracy{suffix}"] = _interval(pairs.correct, "accuracy")
            if len(errors) and len(errors) == pairs.valid.sum():
                found[f"{split}/mae{suffix}"] = _interval(errors, "mae")
                low, high = _interval(errors**2, "mae")
                found[f"{split}/rmse{suffix}"] = math.sqrt(low), math.sqrt(high)
    return found


def _interval(scores: np.ndarray, metric: str) -> tuple[float, float]:
    _, low, high = bootstrap_difference(np.zeros(len(scores)), scores, draws=DRAWS[metric])
    return low, high


def model_card(record: RunRecord, folder: Path, repo: str) -> str:
    """The card of the run in ``folder``, as the README of the repository ``repo``, with the hub's metadata."""
    from huggingface_hub import EvalResult, ModelCardData

    config = from_values(record.config, str(folder))
    dataset: Any = build(config.dataset)
    origin = dataset.origin
    is_open = origin is None or origin.publishable
    base = config.model.hub_id if config.model.pretrained and not config.model.path else ""
    within = intervals(record, folder / PREDICTIONS)
    shown = [
        (split, name, [record.metrics.get(f"{split}/{name}{suffix}") for suffix in SUFFIXES])
        for split in dataset.test_splits
        for name in METRICS
        if f"{split}/{name}" in record.metrics
    ]
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=dataset.name,
            dataset_name=dataset.name,
            dataset_split=split,
            metric_type=name,
            metric_name=name if not suffix else f"{name}, parsed and compared by the paper's rule",
            metric_value=value,
        )
        for split, name, values in shown
        for suffix, value in zip(SUFFIXES, values, strict=True)
        if value is not None
    ]
    is_mit = is_open and not config.model.pretrained
    data = ModelCardData(
        license="mit" if is_mit else "other",
        license_name=None if is_mit else "see-model-card",
        base_model=base or None,
        datasets=[dataset.name],
        library_name="transformers",
        tags=["number-token-loss", config.loss.name],
        model_name=record.id if results else None,
        eval_results=results or None,
    )
    rows = [
        [split, name, *(_cell(value, within.get(f"{split}/{name}{s}")) for value, s in zip(values, SUFFIXES))]  # noqa: B905
        for split, name, values in shown
    ]
    return redact(
        "\n".join(["---", data.to_yaml(), "---", *_text(record, config, dataset, rows, bool(within), repo), ""])
    )


def _cell(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "undefined"
    return f"{value:.4g}" + (f" [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |" for cells in lines] + [""]


def _text(record: RunRecord, config: Any, dataset: Any, rows: list[list[str]], known: bool, repo: str) -> list[str]:
    origin, rows_of = dataset.origin, record.data.get("rows", {})
    start = "other weights" if config.model.path else config.model.hub_id
    trained = f"from {start if config.model.pretrained else 'random weights'}"
    kind = (
        "Intervals: 95% percentile bootstrap over the test examples of this run; they do not cover the seed."
        if known
        else "There are no intervals: answers are text, or the predictions of the record were not at hand."
    )
    line, code, values = LOADING.get(config.model.family, ("See the project for how to load it.", "", {}))
    chosen = record.model.get("best", {})
    best = f", the best by validation {chosen['metric']} at {record.scored_step}" if chosen.get("step") else ""
    settings = {
        "model": f"{config.model.name}, {record.model.get('parameters', 0):,} parameters, trained {trained}",
        "loss": f"{config.loss.name}, weight {config.loss.weight}",
        "tokenizer": config.tokenizer.name,
        "scale": config.scale.name,
        "seed": record.seed,
        "steps": f"{record.steps}{best}",
        "examples seen": f"{record.examples_seen:,}",
        "batch, rate": f"{config.trainer.batch_size} × {config.trainer.accumulation_steps}, {config.trainer.lr}",
        "decoding": config.decoding.name,
        "source": record.git.get("commit", "unknown") + " with uncommitted changes" * bool(record.git.get("dirty")),
        "versions": ", ".join(f"{name} {version}" for name, version in record.packages.items()),
    }
    lines = [f"# {record.id}", "", f"Trained on {dataset.name}; a checkpoint for research on losses for numbers.", ""]
    lines += ["## Results", "", *_table(["split", "metric", "default rule", "paper's rule"], rows), kind, ""]
    lines += ["## Data", "", f"- set: {dataset.name}, rows {json.dumps(rows_of)}"]
    if origin is None:
        lines.append("- licence: computed by the project itself, no licence of others applies")
    else:
        lines += [f"- licence: {origin.licence}", f"- home: {origin.home}", f"- cite: {origin.cite}"]
    if origin is not None and not origin.publishable:
        lines.append(
            "- **The data has no open licence.** None of its text is in this repository, but weights can reproduce "
            "what they were trained on; whoever passes them on must respect the terms above."
        )
    if reason := record.data.get("reason"):
        lines.append(f"- {reason}")
    lines += [f"- {name}: sha256 {digest}" for name, digest in record.data.get("files", {}).items()]
    lines += ["", "## Settings", "", *_table(["setting", "value"], list(settings.items()))]
    lines += ["## Limits", "", "- One run with one seed: another seed gives other values."]
    lines.append(f"- It answers questions in the form of {dataset.name} and nothing else.")
    lines += [f"- {limit}" for limit in _below_constants(record, dataset.test_splits)]
    lines += [
        f"- {share:.0%} of the examples of {split} are longer than any training example."
        for split, share in record.data.get("longer_than_train", {}).items()
        if share
    ]
    if config.model.pretrained:
        lines.append("- The licence of the weights that it started from applies, too.")
    return [*lines, "", "## Loading", "", line, "", "```python", code.format(repo=repo, **values), "```"]


def _below_constants(record: RunRecord, splits: Sequence[str]) -> list[str]:
    found = []
    for split in splits:
        value, constants = record.metrics.get(f"{split}/rmse"), []
        constants = [record.metrics.get(f"{split}/rmse:{name}") for name in ("mean", "median", "mode")]
        best = min((each for each in constants if each is not None), default=None)
        if best is not None and (value is None or value >= best):
            found.append(f"On {split} its RMSE is no better than that of a constant answer, {best:.4g}.")
    return found
