"""Which records a figure compares: tiny runs on one data set that differ in their loss and their seed alone."""

from collections.abc import Sequence

from ntl.config.table import RowSpec
from ntl.results.figures.style import LOSSES
from ntl.results.match import RowPlan
from ntl.results.match import row_records as matching
from ntl.results.record import RunRecord

ByLoss = dict[str, dict[int, RunRecord]]


def runs_by_loss(records: Sequence[RunRecord], dataset: str) -> ByLoss:
    """loss -> seed -> record, for the losses of ``LOSSES`` that have any, in their order.

    The rules are those of a table's row: a run that set anything else is another experiment. UserError where two
    records claim one seed.
    """
    pins = {"dataset": dataset, "scale": "tiny", "model": "gpt2_tiny", "tokenizer": "digit", "loss.weight": 0.3}
    seeds = tuple(sorted({record.seed for record in records}))
    found: ByLoss = {}
    for loss in LOSSES:
        all_pins = {**pins, "loss": loss}
        overrides = tuple(f"{key}={value}" for key, value in all_pins.items())
        plan = RowPlan(RowSpec(label=f"{dataset}, {loss}"), overrides, all_pins, seeds)
        if have := matching(plan, records):
            found[loss] = dict(sorted(have.items()))
    return found
