"""Extra decodings of one model, the choice among decodings, and the probability of the right answer."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.nn.functional import cross_entropy

from ntl.config import DecodingConfig
from ntl.decoding.batches import checked
from ntl.evaluation.metrics import metric_of
from ntl.losses.rows import IGNORE_INDEX
from ntl.results.readings import OWN_ERROR
from ntl.training.decode import decode_splits, decoded_examples, predictions_name, splits_of
from ntl.training.parts import RunParts

# The metrics that a record keeps of extra decodings.
EXTRA_METRICS = (
    *("accuracy", "mae", "rmse", "r2", "pearson", "mape_clipped", "mape_median", "within_1_percent", "rmse_truth"),
    *("covered", "represented", "coverage_90", "width_90", "crps", "ape_clipped_10", "log_ape", "unparsable"),
)


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
        parts.say(f"decoding by {name or own.name}:")
        tests, at = splits_of(parts, decoding) if name else (), f"@{name}" if name else ""
        for splits, more in ((tests, []), (("validation",) if validates else (), ["validation"])):
            path = folder / predictions_name(decoding, *more, name=name)
            if splits and path not in searches:
                searches[path] = decode_splits(parts, splits, path, decoding, searches)
            if scores := searches.get(path):
                wanted = [f"{split}/{metric}" for split in splits for metric in EXTRA_METRICS]
                metrics |= {f"{key}{at}": scores.metrics[key] for key in wanted if key in scores.metrics}
                errors |= {f"{split}{at}": each for split, each in scores.errors.items()}
    return metrics, errors


def choose_decoding(parts: RunParts, folder: Path, searches: dict[Any, Any]) -> None:
    """Of ``decoding=auto``: decode validation rows greedily and by each of ``extra_decodings``, and take the best.

    It becomes ``config.decoding``, and greedy decoding one of ``extra_decodings``; ``parts.validation_errors`` has the
    errors. An answer without a number counts as if it were the median of the training answers. Ties go to the first.
    """
    config, error, found = parts.config, OWN_ERROR.get(parts.dataset.name, "mae"), dict[str, float]()
    decodings = {"greedy": replace(config.decoding, name="greedy"), **config.extra_decodings}
    for name, decoding in decodings.items():
        path = folder / predictions_name(decoding, "validation", name=name)
        if scores := searches.setdefault(path, decode_splits(parts, ["validation"], path, decoding, searches)):
            mine = {key.removeprefix("validation/"): value for key, value in scores.metrics.items()}
            lacking = mine["unparsable"] if error == "mae" else 0.0  # clipped errors count them
            found[name] = lacking * mine[f"{error}:median"] + (lacking < 1 and (1 - lacking) * mine[error])
    box = [found]
    if distributed.is_initialized():
        distributed.broadcast_object_list(box)
    best, of = min(box[0], key=box[0].__getitem__), metric_of(f"validation/{error}").label
    told = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in box[0].items())
    parts.say(f"decoding=auto: {best.replace('_', ' ')}, by the {of} of validation: {told}")
    intervals = {"interval_rows": config.decoding.interval_rows, "interval_scale": config.decoding.interval_scale}
    config.decoding = replace(decodings[best], **intervals)
    config.extra_decodings = config.extra_decodings if best == "greedy" else decodings
    parts.validation_errors = box[0]


@torch.no_grad()
def answer_bits(parts: RunParts, splits: Iterable[str]) -> dict[str, float]:
    """Bits of the right answer as it is written, its end included, and its mean probability, by split.

    "<split>/bits" and "<split>/probability"; empty where answers are no numbers, or the model has no head over tokens.
    """
    if parts.dataset.metrics != "number" or parts.config.model.head != "lm":
        return {}
    model: Any = parts.model.eval()
    size, found = parts.config.trainer.eval_batch_size, dict[str, float]()
    for split in splits:
        examples, bits = decoded_examples(parts, split), list[float]()
        for start in range(0, len(examples), size):
            batch = parts.collator([examples[index] for index in range(start, min(start + size, len(examples)))])
            inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
            labels, _ = inputs.pop("labels"), inputs.pop("loss_weights", None)
            logits = checked(model(**inputs, use_cache=False).logits.float())
            nats = cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=IGNORE_INDEX).sum(-1)
            bits += (nats.double() / math.log(2)).tolist()
        if bits:
            found |= {f"{split}/bits": fmean(bits), f"{split}/probability": fmean(0.5**each for each in bits)}
    return found
