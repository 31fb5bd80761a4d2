"""The one list of metrics: every score has a line in it, and one without a line is an error that names the file."""

import json

import pytest

from ntl.config import UserError
from ntl.config.folders import RESULTS
from ntl.evaluation.metrics import Better, metric_of


def test_the_metric_of_a_key() -> None:
    for key, name, better in (
        ("interpolate/accuracy@paper", "accuracy", Better.higher),
        ("test/rmse_truth:median", "rmse_truth", Better.lower),
        ("validation/ce/head2", "ce", Better.lower),
        ("interpolate/accepted/head3", "accepted", Better.higher),
        ("validation/steps_until_ce_1.0", "steps_until_ce", Better.lower),
        ("test/unparsable", "unparsable", Better.neither),
    ):
        assert (metric_of(key).name, metric_of(key).better) == (name, better)
    for key in ("test/closeness", "test/closeness@paper", "closeness", "test/accuracy_at_1", "test/"):
        with pytest.raises(UserError, match=r"unknown metric .*src/ntl/evaluation/metrics\.py which values .* are"):
            metric_of(key)


def test_every_published_metric_is_in_the_list() -> None:
    lines = [line for path in (RESULTS / "runs").glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    names = {metric_of(key).name for line in lines for key in json.loads(line)["metrics"]}
    assert {"accuracy", "mae", "bleu", "ce", "ntl"} <= names
