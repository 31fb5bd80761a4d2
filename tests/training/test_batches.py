"""The order of an epoch is a permutation, and parts of a batch have the loss, gradients and evaluation of the whole."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ntl.training.batches as order
from ntl.config import UserError, compose
from ntl.data.collate import CausalCollator, Seq2SeqCollator
from ntl.runs.parts import RunParts
from ntl.training.batches import epoch_order, micro_batches, permuted
from ntl.training.trainer import EVALUATION_TIMES, ObjectiveTrainer

SEEDS = st.integers(0, 2**32 - 1)


# Both ways of making it: drawn whole, and computed. What orders they give is pinned in tests/test_baseline.py.
@pytest.mark.parametrize("drawn", [0, 1 << 16], ids=["computed", "drawn"])
@given(n=st.integers(0, 3000), seed=SEEDS, epoch=st.integers(0, 100))
def test_every_example_comes_once(drawn: int, n: int, seed: int, epoch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "DRAWN", drawn)
        found = permuted(np.arange(n), n, seed, epoch)
        assert np.array_equal(np.sort(found), np.arange(n))
        blocks = list(epoch_order(n, seed, epoch))
        assert np.array_equal(np.concatenate([np.empty(0, np.int64), *blocks]), found)


@given(
    n=st.integers(0, 700), batch_size=st.integers(1, 9), seed=SEEDS, epoch=st.integers(0, 5), modulus=st.integers(1, 60)
)
def test_bucketing_keeps_every_example_and_sorts(n: int, batch_size: int, seed: int, epoch: int, modulus: int) -> None:
    def lengths(indices: np.ndarray) -> np.ndarray:
        return indices * 7919 % modulus

    def blocks() -> list[np.ndarray]:
        return list(epoch_order(n, seed, epoch, batch_size=batch_size, lengths=lengths))

    flat = np.concatenate([np.empty(0, np.int64), *blocks()])
    assert np.array_equal(np.sort(flat), np.arange(n))
    assert all(np.array_equal(one, two) for one, two in zip(blocks(), blocks(), strict=True))
    plain = np.concatenate([np.empty(0, np.int64), *epoch_order(n, seed, epoch)])
    size = order.SORTED_BATCHES * batch_size
    for start in range(0, n, size):
        # The batches of fifty are those examples that the plain order has there, and no two batches overlap in length.
        part = flat[start : start + size]
        assert set(part) == set(plain[start : start + size])
        batches = [lengths(part[i : i + batch_size]) for i in range(0, len(part), batch_size)]
        ranges = sorted((int(batch.min()), int(batch.max())) for batch in batches)
        assert all(before[1] <= after[0] for before, after in pairwise(ranges))
        assert all(len(batch) == batch_size for batch in batches[:-1])


LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12)


def examples(lengths: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [
        {"question_ids": torch.full((read,), 5).numpy(), "answer_ids": torch.full((written,), 7).numpy()}
        for read, written in lengths
    ]


@pytest.mark.parametrize("collate", [Seq2SeqCollator(0, 1), CausalCollator(0)])
@given(lengths=LENGTHS, max_tokens=st.integers(1, 60))
def test_every_row_is_in_one_part_and_no_part_is_too_large(collate: Any, lengths: Any, max_tokens: int) -> None:
    rows = examples(lengths)
    parts = micro_batches(collate(rows), max_tokens)
    assert sorted(int(row) for chosen, _ in parts for row in chosen) == list(range(len(rows)))
    for chosen, part in parts:
        # The part is what the collator makes of these rows alone: nothing else is padding.
        expected = collate([rows[row] for row in chosen])
        assert part.keys() == expected.keys()
        assert all(torch.equal(part[name], expected[name]) for name in part)
        size = part["input_ids"].numel() + (part["labels"].numel() if isinstance(collate, Seq2SeqCollator) else 0)
        assert size <= max_tokens or len(chosen) == 1


@pytest.fixture
def trained(parts: Callable[..., Any], tmp_path: Path) -> Callable[..., ObjectiveTrainer]:
    """``trained(*overrides)``: a trainer after some steps in float64; of one optimizer step, the gradients are kept."""

    def make(*overrides: str, family: str = "decoder") -> ObjectiveTrainer:
        settings = ["trainer.batch_size=8", "trainer.max_steps=4", "trainer.logging_steps=1", "trainer.max_grad_norm=9"]
        made = parts(*settings, *overrides, dataset="multiplication", family=family)
        made.model.to(torch.float64)
        trainer = ObjectiveTrainer(made, tmp_path / "checkpoints")
        seen: list[int] = []
        trainer.model.register_forward_hook(lambda module, args, joint: seen.append(1))
        trainer.train()
        trainer.forwards = len(seen)
        return trainer

    return make


@pytest.mark.parametrize(
    ("family", "overrides"),
    [
        ("decoder", ("loss=ntl_was", "objective=mtp", "objective.heads=2", "trainer.normalization=micro_batch")),
        ("t5", ("loss=ntl_was", "trainer.accumulation_steps=2")),
    ],
)
@pytest.mark.slow
def test_parts_learn_what_the_whole_batch_learns(
    family: str, overrides: tuple[str, ...], trained: Callable[..., ObjectiveTrainer]
) -> None:
    whole, cut = (trained(*overrides, f"trainer.max_tokens_per_batch={most}", family=family) for most in (0, 40))
    assert cut.forwards > 2 * whole.forwards
    logs = [[line for line in trainer.state.log_history if "loss" in line] for trainer in (whole, cut)]
    assert len(logs[0]) == 4
    for before, after in zip(*logs, strict=True):
        assert after.keys() == before.keys()
        assert after == pytest.approx(before, rel=1e-9)
    for before, after in zip(whole.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=1e-9)
    assert cut.examples_and_tokens_seen() == whole.examples_and_tokens_seen()
    expected, found = (
        {name: value for name, value in trainer.evaluate().items() if name not in EVALUATION_TIMES}
        for trainer in (whole, cut)
    )
    assert found == pytest.approx(expected, rel=1e-9)


def test_what_cannot_be_cut_is_refused(data_dir: Path, tmp_path: Path) -> None:
    settings = ["dataset=noisy_numbers", "dataset.train_rows=96", f"data_dir={data_dir}", "device=cpu"]
    made = RunParts(
        compose([*settings, "model=granite_moe_tiny", "trainer.max_tokens_per_batch=40"]), lambda line: None
    )
    with pytest.raises(UserError, match=r"max_tokens_per_batch=40 model=granite_moe_tiny: the router loss"):
        ObjectiveTrainer(made, tmp_path / "checkpoints")
    assert not (tmp_path / "checkpoints").exists()
