"""Normalization and logging of the loss, divergence, and what a checkpoint contains."""

import json
import math
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TrainerControl

import ntl.training.batches as order
from ntl.config import Diverged, compose
from ntl.data.collate import CausalCollator, Seq2SeqCollator
from ntl.decoding.batches import Answer
from ntl.objectives import next_token
from ntl.runs.parts import RunParts
from ntl.tokenizers import train_tokenizer
from ntl.training import callbacks
from ntl.training.batches import epoch_order, micro_batches, permuted
from ntl.training.callbacks import Probe, StopOnSignal, training_arguments
from ntl.training.record import METRICS
from ntl.training.trainer import EVALUATION_TIMES, ObjectiveTrainer


def _checkpoints(parts: RunParts) -> Path:
    return Path(parts.config.output_dir) / "run" / "checkpoints"


def _trainer(parts: RunParts) -> ObjectiveTrainer:
    return ObjectiveTrainer(parts, _checkpoints(parts))


def _trained(parts: RunParts, dtype: torch.dtype = torch.float64) -> ObjectiveTrainer:
    parts.model.to(dtype)
    trainer = _trainer(parts)
    trainer.train()
    return trainer


def _entries(trainer: ObjectiveTrainer, name: str) -> list[dict[str, float]]:
    return [entry for entry in trainer.state.log_history if name in entry]


def _parameters(trainer: ObjectiveTrainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


@pytest.mark.parametrize(("family", "loss"), [("decoder", "ntl_was"), ("t5", "gce_ntl_was")])
def test_accumulated_batches_equal_one_batch(family: str, loss: str, parts) -> None:
    settings = [f"loss={loss}", "trainer.max_steps=6", "trainer.max_grad_norm=0.5"]
    trainers = []
    for size, accumulated in ((16, 1), (4, 4)):
        batches = [f"trainer.batch_size={size}", f"trainer.accumulation_steps={accumulated}"]
        trainers.append(_trained(parts(*settings, *batches, dataset="multiplication", family=family)))
    whole, accumulated = ([entry["loss"] for entry in _entries(trainer, "loss")] for trainer in trainers)
    torch.testing.assert_close(*map(_parameters, trainers), rtol=0, atol=1e-6)
    np.testing.assert_allclose(accumulated, whole, rtol=1e-9)


@pytest.mark.slow
def test_weights_over_accumulated_batches_and_numbers_that_are_left_out(tmp_path: Path, caplog) -> None:
    """A row of weight 2 is the row twice, in validation as well."""
    tokenizer, trained = tmp_path / "tokenizer", []
    rows: list[dict[str, Any]] = [
        {"question": f"What is {n} and {n % 7}?", "answer": f"{n % 7} in {1990 + n}", "w": n % 3} for n in range(16)
    ]
    twice = [{**row, "w": 1} for row in rows for _ in range(row["w"])]
    train_tokenizer([row[name] for row in rows for name in ("question", "answer")], tokenizer, kind="digit")
    for own, size, accumulated, pattern, left in (
        (rows, 16, 1, "", 0),
        (rows, 4, 4, "", 0),
        (twice, len(twice), 1, "", 0),
        (rows, 16, 1, r"\d{4}", 64),
    ):
        path = tmp_path / f"{len(own)}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in own))
        data = ["dataset=file", *(f"dataset.{key}={path}" for key in ("path", "validation_path", "test_path"))]
        data += ["dataset.answers=text", "dataset.weight=w", f"tokenizer.path={tokenizer}"]
        data += [f"dataset.exclude_numbers={pattern}"] * bool(pattern)
        steps = [f"trainer.batch_size={size}", f"trainer.accumulation_steps={accumulated}", "trainer.max_steps=4"]
        places = [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}", "tracking=none", "device=cpu"]
        model = ["model.n_embd=16", "model.n_layer=1", "trainer.logging_steps=1"]
        trained.append(_trained(RunParts(compose([*data, *steps, *places, *model]))))
        line = f"dataset.exclude_numbers={pattern}: it leaves {left} of 80 number tokens of the training answers out of"
        told = [each.startswith(line) for each in caplog.messages if "exclude_numbers" in each]
        assert told == [True] * bool(pattern)
        caplog.clear()
    losses = [[entry["loss"] for entry in _entries(trainer, "loss")] for trainer in trained]
    for other in losses[1:3]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-6)
    found = [trainer.evaluate() for trainer in trained]
    for name in ("eval_ce", "eval_ntl"):
        assert found[2][name] == pytest.approx(found[0][name], rel=1e-6)
    assert found[3]["eval_ntl"] != pytest.approx(found[0]["eval_ntl"], rel=1e-3)


@pytest.mark.parametrize("normalization", ["step", "micro_batch"])
def test_what_each_normalization_divides_by(normalization: str, parts) -> None:
    settings = ["trainer.max_steps=1", "trainer.logging_steps=1", "trainer.batch_size=4", "loss.weight=2"]
    choice = f"trainer.normalization={normalization}"
    trainer = _trainer(parts(*settings, "trainer.accumulation_steps=3", choice, dataset="multiplication"))
    seen: list[list[float]] = []
    trainer.model.register_forward_hook(lambda module, args, parts: seen.append([float(part) for part in parts.flat]))
    trainer.train()
    found = np.array(seen)
    assert len(set(found[:, 1])) > 1, "the batches must differ in size for this test to tell"
    per_batch = found[:, 0] / found[:, 1] + 2 * found[:, 2] / found[:, 3]
    ce_sum, ce_count, ntl_sum, ntl_count, _ = found.sum(axis=0)
    expected = {"step": ce_sum / ce_count + 2 * ntl_sum / ntl_count, "micro_batch": per_batch.mean()}
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected[normalization], rel=1e-5)


@pytest.mark.slow
def test_what_is_told_beside_ce_changes_no_weight(parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a bit of it, through every implementation of the loss."""
    for implementation in ("reference", "linear"):
        settings = ["loss=ce", f"loss.implementation={implementation}", "model.dropout=0.1", "trainer.max_steps=6"]
        told = _trained(parts(*settings), torch.float32)
        with monkeypatch.context() as without:
            without.setattr(next_token, "ntl_was", lambda *args, **options: torch.zeros(()))
            without.setattr(next_token.NextToken, "_diagnose", lambda self, *args: None)
            silent = _trained(parts(*settings), torch.float32)
        assert torch.equal(_parameters(told), _parameters(silent))
        lines = [_entries(trainer, "loss") for trainer in (told, silent)]
        assert [(line["loss"], line["ce"]) for line in lines[0]] == [(line["loss"], line["ce"]) for line in lines[1]]
        assert all(line["ntl"] > 0 for line in lines[0])
        # CE says the same of itself as any other loss: its number term is NTL-WAS, over all steps since the last line.
        assert all({"ntl_was", "digit_accuracy", "digit_mae"} <= line.keys() for line in lines[0])
        assert not {"ntl_was", "digit_accuracy", "digit_mae"} & {key for line in lines[1] for key in line}


def test_evaluation_does_not_depend_on_the_batch_size(parts) -> None:
    reference, *others = (_trainer(parts(f"trainer.eval_batch_size={size}")).evaluate() for size in (6, 1, 7, 20))
    for other, name in product(others, ("eval_ce", "eval_ntl")):
        assert other[name] == pytest.approx(reference[name], rel=1e-6)


def test_the_plateau_watches_the_validation_ce(parts) -> None:
    settings = ["trainer.schedule=plateau", "trainer.eval_steps=1", "trainer.patience=1", "trainer.factor=0.25"]
    settings += ["trainer.lr=1e-6", "trainer.max_steps=8", "trainer.logging_steps=1", "trainer.warmup_steps=0"]
    trainer = _trained(parts(*settings))
    # At this rate nothing improves: the first evaluation stays the best, and every second one after divides it by 4.
    assert trainer.lr_scheduler.best == _entries(trainer, "eval_ce")[0]["eval_ce"]
    assert trainer.lr_scheduler.get_last_lr() == [pytest.approx(1e-6 / 4**3)] * 2


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found at the log line of step 8, it is of step 6, where a weight broke."""
    batches = ["trainer.batch_size=5", "trainer.accumulation_steps=2"]
    made = parts(*batches, "trainer.max_steps=9", "trainer.save_steps=4")
    trainer, original = _trainer(made), ObjectiveTrainer.training_step

    def training_step(self: ObjectiveTrainer, *args: Any) -> Any:
        if self.state.global_step == 5:
            with torch.no_grad():
                next(iter(made.model.parameters())).fill_(math.inf)
        return original(self, *args)

    monkeypatch.setattr(ObjectiveTrainer, "training_step", training_step)
    last = _checkpoints(made) / "checkpoint-4"
    with pytest.raises(Diverged, match=rf"^the training loss is nan at step 6; the last good checkpoint is {last}; "):
        trainer.train()
    assert [*_checkpoints(made).iterdir()] == [last]


TRAJECTORY = [
    *(4.5111756158, 4.5130613951, 4.4672496363, 4.3817697281, 4.2923503895),
    *(4.3533723691, 4.3091468975, 4.2228217936, 4.2592046909, 4.3148152377),
]


def test_ten_steps_give_the_losses_they_always_gave(parts) -> None:
    trainer = _trained(parts("trainer.max_steps=10", "trainer.logging_steps=1", "seed=3"))
    np.testing.assert_allclose([entry["loss"] for entry in _entries(trainer, "loss")], TRAJECTORY, rtol=1e-6)


# Signals and probes of a training, and the arguments of the Trainer.


ARGUMENTS = SimpleNamespace(device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def handlers() -> Iterator[Callable[[int, Any], None]]:
    """Puts back the handlers that a test sets; what it then finds is what ``StopOnSignal`` left."""
    before = {number: signal.getsignal(number) for number in callbacks.SIGNALS}
    own: dict[int, Any] = {}

    def listen(number: int, handler: Any) -> None:
        own[number] = handler
        signal.signal(number, handler)

    yield listen
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == {**before, **own}


def _after_a_step(stop: StopOnSignal) -> tuple[bool, bool]:
    control = TrainerControl()
    stop.on_step_end(ARGUMENTS, None, control)  # pyright: ignore[reportArgumentType]
    return control.should_save, control.should_training_stop


@pytest.mark.parametrize("number", callbacks.SIGNALS)
def test_the_step_is_finished_saved_and_the_last_and_a_second_signal_acts_at_once(number: signal.Signals) -> None:
    with StopOnSignal() as stop:
        assert _after_a_step(stop) == (False, False)
        signal.raise_signal(number)
        assert (stop.received, _after_a_step(stop)) == (number, (True, True))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_who_listened_before_is_told_at_the_end(handlers) -> None:
    told: list[int] = []
    handlers(signal.SIGUSR2, lambda number, frame: told.append(number))
    with StopOnSignal() as stop:
        signal.raise_signal(signal.SIGUSR2)
        assert (told, _after_a_step(stop)) == ([], (True, True))
    stop.call_previous_handler()
    assert told == [signal.SIGUSR2]
    signal.raise_signal(signal.SIGUSR2)
    assert len(told) == 2
    with StopOnSignal() as stop:
        stop.call_previous_handler()  # nothing came
        signal.raise_signal(signal.SIGTERM)
    stop.call_previous_handler()  # nobody listened
    assert len(told) == 2


def test_a_job_that_is_about_to_be_killed_saves_and_goes_on(handlers) -> None:
    """submitit lets SIGTERM pass: Slurm kills the job and requeues it, which it would not had the job ended itself."""
    handlers(signal.SIGTERM, lambda number, frame: None)
    with StopOnSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert _after_a_step(stop) == (True, False)
        assert _after_a_step(stop) == (False, False)
        assert not stop.requested(ARGUMENTS.device)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR2)  # the two may come together
        assert _after_a_step(stop) == (True, True)


def test_twenty_examples_of_each_group_and_their_error(parts, tmp_path: Path, monkeypatch) -> None:
    sizes = ["dataset.test_rows_per_cell=25", "dataset.max_digits=2", "dataset.extrapolate_digits=3"]
    made = Probe(parts(*sizes, dataset="multiplication"), 4, tmp_path / METRICS)
    assert {group: len(rows) for group, rows in made.in_group.items()} == {"1x1": 16, "1x2": 20, "2x1": 20, "2x2": 20}
    # Answers of which every second is 10 % too large, and no number at all in one group.
    answers = [made.rows[index]["answer"] for indices in made.in_group.values() for index in indices]
    written = [str(1.1 * int(answer)) if place % 2 else answer for place, answer in enumerate(answers[:-20])]
    texts = [Answer(text, []) for text in [*written, *["none"] * 20]]
    monkeypatch.setattr("ntl.training.callbacks.decode_in_training", lambda *args, **kwargs: texts)
    assert made.mape() == pytest.approx({"1x1": 5.0, "1x2": 5.0, "2x1": 5.0})


def test_a_constant_rate_has_a_warmup() -> None:
    config = compose(["dataset=noisy_numbers", "trainer.schedule=constant"]).trainer
    arguments = training_arguments(config, Path("checkpoints"), torch.device("cpu"), seed=1, watch="ce")
    assert arguments.lr_scheduler_type == "constant_with_warmup"


# ---- the order of an epoch, and parts of a batch

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
def test_parts_learn_what_the_whole_batch_learns(family: str, overrides: tuple[str, ...], trained) -> None:
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
