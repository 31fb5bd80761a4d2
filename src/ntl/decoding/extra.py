"""All scores of a run: by its decoding, by extra ones, by the one that validation chooses."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import distributed

from ntl.config import DecodingConfig
from ntl.decoding.checks import RULE, splits_of
from ntl.decoding.likelihood import answer_bits
from ntl.decoding.predictions import decode_splits, decoded_examples, predictions_name
from ntl.evaluation import Scores, read_predictions
from ntl.evaluation.evaluate import PREDICTIONS
from ntl.evaluation.metrics import metric_of
from ntl.results.readings import OWN_ERROR
from ntl.runs.parts import RunParts
from ntl.system.messages import logger

# The metrics that a record keeps of extra decodings.
EXTRA_METRICS = (
    *("accuracy", "mae", "rmse", "r2", "pearson", "mape_clipped", "mape_median", "within_1_percent", "rmse_truth"),
    *("covered", "represented", "coverage_90", "width_90", "crps", "ape_clipped_10", "log_ape", "unparsable"),
)


def score_run(parts: RunParts, folder: Path) -> Scores | None:
    """Decode the test splits by the run's decoding and the extra ones, write the predictions, and score them.

    Of several processes, the first one has the scores, and the others None; every rank must call this.
    """
    searches: dict[Any, Any] = {}
    if parts.config.decoding.name == "auto":
        choose_decoding(parts, folder, searches)
    splits = splits_of(parts, parts.config.decoding)
    scores = decode_splits(parts, splits, folder / PREDICTIONS, searches=searches)
    metrics, errors = decode_extra(parts, parts.config.extra_decodings, folder, searches)
    metrics |= answer_bits(parts, {split: decoded_examples(parts, split) for split in ("validation", *splits)})
    if scores is not None:
        scores.metrics.update(metrics)
        scores.errors.update(errors)
    return scores


def decode_extra(
    parts: RunParts, decodings: Mapping[str, DecodingConfig], folder: Path, searches: dict[Any, Any] | None = None
) -> tuple[dict[str, float], dict[str, NDArray[np.float64]]]:
    """Decode by each of these, too: "<split>/<metric>@<name>" for each of ``EXTRA_METRICS``, and errors.

    Where answers are numbers, the validation examples of an evaluation are decoded, too, by these and by the run's own
    decoding, so that one can be chosen without the tests: "validation/<metric>" and "validation/<metric>@<name>".
    ``searches``: what was found, and by their path the scores of predictions that were made, as by `choose_decoding`.
    """
    searches = {} if searches is None else searches
    own, metrics, errors = parts.config.decoding, dict[str, float](), dict[str, NDArray[np.float64]]()
    validates = parts.dataset.metrics == "number" and "validation" not in parts.dataset.test_splits
    decodings = {"": own, **decodings} if decodings and validates else decodings
    for name, decoding in decodings.items():
        tests, at = splits_of(parts, decoding) if name else (), f"@{name}" if name else ""
        for splits, more in ((tests, []), (("validation",) if validates else (), ["validation"])):
            path = folder / predictions_name(decoding, *more, name=name)
            if splits and path not in searches:
                searches[path] = decode_splits(parts, splits, path, decoding, searches)
            if scores := searches.get(path):
                wanted = [f"{split}/{metric}" for split in splits for metric in EXTRA_METRICS]
                metrics |= {f"{key}{at}": scores.metrics[key] for key in wanted if key in scores.metrics}
                errors |= {f"{split}{at}": of_split for split, of_split in scores.errors.items()}
    return metrics, errors


def mae_of_all(path: Path) -> float:
    """The MAE of a predictions file of numbers; an answer without one counts as the median of the training answers."""
    header, rows = read_predictions(path)
    predicted, answers = ([RULE.extract(row[name]) for row in rows] for name in ("prediction", "answer"))
    median, known = Decimal(header["baselines"]["median"]), [answer for answer in answers if answer is not None]
    return float(RULE.compare([median if number is None else number for number in predicted], known).error.mean())


def choose_decoding(parts: RunParts, folder: Path, searches: dict[Any, Any]) -> None:
    """Of ``decoding=auto``: decode validation rows greedily and by each of ``extra_decodings``, and take the best.

    It becomes ``config.decoding``, and greedy decoding one of ``extra_decodings``; ``parts.validation_errors`` has the
    errors, by ``mae_of_all`` but for errors that are clipped. Ties go to the first.
    """
    config, error, errors = parts.config, OWN_ERROR.get(parts.dataset.name, "mae"), dict[str, float]()
    decodings = {"greedy": replace(config.decoding, name="greedy"), **config.extra_decodings}
    for name, decoding in decodings.items():
        path = folder / predictions_name(decoding, "validation", name=name)
        if scores := searches.setdefault(path, decode_splits(parts, ["validation"], path, decoding, searches)):
            # Clipped errors count every answer.
            errors[name] = mae_of_all(path) if error == "mae" else scores.metrics[f"validation/{error}"]
    box = [errors]
    if distributed.is_initialized():
        distributed.broadcast_object_list(box)
    best, of = min(box[0], key=box[0].__getitem__), metric_of(f"validation/{error}").label
    listed = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in box[0].items())
    logger.info(f"decoding=auto: {best.replace('_', ' ')}, by the {of} of validation: {listed}")
    own, chosen = config.decoding, decodings[best]
    kept: Any = {"interval_rows": own.interval_rows, "interval_scale": own.interval_scale}
    config.decoding = replace(chosen, **kept, max_new_tokens=chosen.max_new_tokens or own.max_new_tokens)
    config.extra_decodings = config.extra_decodings if best == "greedy" else decodings
    parts.validation_errors = box[0]
