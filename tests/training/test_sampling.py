"""The order of the data: the same on any number of workers and ranks, other in every epoch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader
from transformers import TrainerState

from ntl.training import trainer as trainer_module
from ntl.training.parts import RunParts
from ntl.training.sampling import EpochOfSampler, EpochSampler, Permutation


class Dataset:
    """As many examples as asked for; example ``i`` is of length ``i % 7`` and holds ``i``."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> int:
        return index

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        return indices % 7


def test_an_epoch() -> None:
    sampler = EpochSampler(Dataset(100), seed=5)
    first = list(sampler)
    assert first == Permutation(100, 5, 0)(np.arange(100)).tolist()
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert sorted(sampler) == sorted(first)
    assert list(sampler) == Permutation(100, 5, 1)(np.arange(100)).tolist() != first
    assert len(sampler) == 100
    assert all(type(index) is int for index in first)


def test_by_length() -> None:
    sampler = EpochSampler(Dataset(700), seed=5, batch_size=10, by_length=True)
    batches = list(BatchSampler(sampler, 10, drop_last=False))
    assert sorted(index for batch in batches for index in batch) == list(range(700))
    assert np.mean([len({index % 7 for index in batch}) for batch in batches]) < 2


@pytest.mark.parametrize("workers", [1, 2])
def test_data_workers_do_not_change_the_order(workers: int) -> None:
    def batches(num_workers: int) -> list[list[int]]:
        loader = DataLoader(Dataset(60), 8, sampler=EpochSampler(Dataset(60), seed=1), num_workers=num_workers)
        return [batch.tolist() for batch in loader]

    assert batches(workers) == batches(0)


@pytest.mark.parametrize(("epoch", "expected"), [(None, 0), (0, 0), (1.0, 1), (3.97, 3)])
def test_a_resumed_run_s_sampler_learns_its_epoch(epoch: float | None, expected: int) -> None:
    sampler = EpochSampler(Dataset(4), seed=0)
    EpochOfSampler(sampler).on_epoch_begin(None, TrainerState(epoch=epoch), None)
    assert sampler.epoch == expected


def _inputs(config, workers: int = 0) -> list[torch.Tensor]:
    """Every batch that a training run sees, as the model gets it."""
    parts = RunParts(config, say=lambda line: None)
    trainer = parts.trainer(Path(parts.config.output_dir) / "run" / "checkpoints")
    trainer.args.dataloader_num_workers = workers
    seen: list[torch.Tensor] = []
    original = trainer.compute_loss

    def watched(model, inputs, *args, **kwargs):
        seen.append(inputs["input_ids"].clone())
        return original(model, inputs, *args, **kwargs)

    trainer.compute_loss = watched
    trainer.train()
    return seen


@pytest.mark.parametrize("bucketing", ["false", "true"])
def test_a_run_visits_every_example_once_an_epoch(bucketing: str, small, monkeypatch: pytest.MonkeyPatch) -> None:
    """96 examples in six batches of 16: twelve steps are two epochs."""
    monkeypatch.setattr(trainer_module, "SHUFFLED_IN_MEMORY", 0)
    settings = [f"trainer.length_bucketing={bucketing}", "trainer.save_steps=0"]
    config = small(*settings, dataset="multiplication")
    encoded = RunParts(config, say=lambda line: None).encoded("train")
    batches = _inputs(config)
    sampler = EpochSampler(encoded, seed=config.seed, batch_size=16, by_length=bucketing == "true")
    expected = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected += list(BatchSampler(sampler, 16, drop_last=False))
    assert len(batches) == len(expected) == 12
    for batch, indices in zip(batches, expected, strict=True):
        assert batch.shape[1] == int(encoded.lengths(np.array(indices)).max()) - 1
        for row, index in zip(batch, indices, strict=True):
            question = encoded[index]["question_ids"]
            assert row[: len(question)].tolist() == question.tolist()


@pytest.mark.slow
def test_bucketing_saves_padding_and_workers_change_nothing(small) -> None:
    settings = ["trainer.save_steps=0", "dataset.train_rows=960", "trainer.max_steps=60"]
    plain = _inputs(small(*settings, dataset="multiplication"))
    bucketed = _inputs(small(*settings, "trainer.length_bucketing=true", dataset="multiplication"))
    assert sum(batch.numel() for batch in bucketed) < 0.95 * sum(batch.numel() for batch in plain)
    again = _inputs(small(*settings, "trainer.length_bucketing=true", dataset="multiplication"), workers=2)
    assert all(torch.equal(one, two) for one, two in zip(bucketed, again, strict=True))
