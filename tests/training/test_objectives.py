"""Objectives as runs build them: recomputed from the logits one example at a time, and heads in a checkpoint."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM

from ntl.config import UserError, compose
from ntl.config.loss import MaskConfig, MTPConfig
from ntl.data.collate import COPIES, CausalCollator, token_collator, training_collator
from ntl.models.mtp import add_heads
from ntl.numbers import NumberVocabulary
from ntl.objectives.masking import Masking, maskable
from ntl.results import read_record
from ntl.runs.parts import RunParts
from ntl.training.objective import build_objective
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train
from ntl.training.trainer import ObjectiveTrainer

FAMILIES = ["decoder", "t5"]


def _examples(parts: RunParts, count: int = 6) -> list[dict[str, np.ndarray]]:
    examples = list(parts.encoded("train").first(count))
    assert len({len(example["question_ids"]) for example in examples}) > 1
    assert len({len(example["answer_ids"]) for example in examples}) > 1
    return examples


def _collated(parts: RunParts, examples: list[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
    return token_collator(parts.model.config, parts.tokenizer)(examples)


@torch.no_grad()
def _log_probabilities(model: Any, example: dict[str, np.ndarray]) -> torch.Tensor:
    """(T, V): row t is what the model says of answer token t, from a forward over this example alone."""
    question, answer = (torch.tensor(example[name]).long()[None] for name in ("question_ids", "answer_ids"))
    if model.config.is_encoder_decoder:
        start = torch.tensor([[model.config.decoder_start_token_id]])
        logits = model(input_ids=question, decoder_input_ids=torch.cat([start, answer], dim=1)[:, :-1]).logits[0]
    else:
        everything = model(input_ids=torch.cat([question, answer], dim=1)).logits[0]
        logits = everything[question.shape[1] - 1 : -1]
    return logits.log_softmax(-1)


@pytest.mark.parametrize("loss", ["ntl_was", "ce"])
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_and_counts_by_hand(family: str, loss: str, parts: Callable[..., Any]) -> None:
    """CE of every answer token given what stands before it, and sum_k p_k |v_k - y| where that token is a digit.

    Beside CE alone the latter is told, too, and 0 would read as perfect.
    """
    made = parts(f"loss={loss}", dataset="multiplication", family=family)
    # Far from uniform, so that a label one place off costs something else.
    torch.manual_seed(7)
    for parameter in made.model.double().parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    objective = build_objective(made).eval()
    examples = _examples(made)
    digits = made.tokenizer.convert_tokens_to_ids(list("0123456789"))
    expected, diagnosed = [], []
    for example in examples:
        ce = ntl = mae = 0.0
        numbers = right = 0
        for row, label in zip(_log_probabilities(made.model, example), example["answer_ids"], strict=True):
            ce -= float(row[label])
            if label in digits:
                probabilities = row[digits].softmax(-1)
                distances = torch.tensor([abs(value - digits.index(label)) for value in range(10)])
                ntl += float((probabilities * distances).sum())
                mae += abs(float((probabilities * torch.arange(10.0)).sum()) - digits.index(label))
                right += digits.index(label) == int(probabilities.argmax())
                numbers += 1
        expected.append([ce, len(example["answer_ids"]), ntl, numbers, 0])
        diagnosed.append([ntl, right, mae, numbers])
    with torch.no_grad():
        found = objective(**_collated(made, examples))
    np.testing.assert_allclose(torch.stack(found.flat, dim=1).numpy(), expected, rtol=1e-5)
    assert all(numbers < length for _, length, _, numbers, _ in expected), "the end token is a label, too"
    np.testing.assert_allclose(objective.diagnosed, diagnosed, rtol=1e-5)
    assert 0 < sum(right for _, right, _, _ in diagnosed) < sum(numbers for *_, numbers in diagnosed)


@pytest.mark.slow
def test_a_checkpoint_is_decoded_and_continued(small: Callable[..., Any], tmp_path: Any) -> None:
    from ntl.decoding.predictor import restore

    own = ["objective=mtp", "model.n_layer=3", "objective.heads=3"]
    record = train(small(*own))
    parts, checkpoint = restore(record.parent)
    assert len(parts.model.mtp_heads) == 2
    assert parts.model.config.num_hidden_layers == 1
    stored = AutoModelForCausalLM.from_pretrained(checkpoint)  # an ordinary next-token model
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(stored(ids).logits, parts.model.eval()(ids).logits)
    with pytest.raises(UserError, match="it has 2 heads beside its own"):
        add_heads(stored, MTPConfig(heads=2), str(checkpoint))


@pytest.mark.slow
def test_shared_logits_fade_out_of_later_targets(small: Callable[..., Any]) -> None:
    """The number of weights is that of a next-token model; with the last heads gone, the loss is that of head 1."""
    own = ["objective=mtp", "objective.kind=shared", "objective.heads=3", "objective.head_schedule=annealed"]
    path = train(small(*own, "trainer.logging_steps=1"))
    first, *_, last = [line for line in read_metrics(path.parent / METRICS) if "loss" in line]
    assert first["loss"] > 2 * first["ce"]
    assert last["loss"] == pytest.approx(last["ce"] + 0.3 * last["ntl"], rel=1e-5)
    assert {"validation/ce/head2", "validation/ce/head3"} <= read_record(path).metrics.keys()
    with pytest.raises(UserError, match="no heads to draft with"):
        small(*own, "decoding=speculative")


# Which input tokens `objective.mask` masks: by hand, by the released code's rule, and in whole runs.


PAD, END, MASK, IGNORED = 0, 1, 39, -100
VOCABULARY = 40  # the ids 2 to 38 may be masked


def _masking(seed: int = 1, length: int = 16, **settings: Any) -> Masking:
    config = MaskConfig(**{"fraction": 0.15, **settings})
    allowed = torch.ones(VOCABULARY, dtype=torch.bool)
    allowed[[PAD, END, MASK]] = False
    token = None if config.variant == "random" else MASK
    return Masking(config, seed=seed, length=length, maskable=allowed, mask_token_id=token)


def _batch(rows: int = 3, width: int = 16, lengths: tuple[int, ...] = ()) -> dict[str, Tensor]:
    ids = torch.arange(2, 2 + width).repeat(rows, 1)
    ids[:, 0] = END  # begins a document
    mask = torch.ones_like(ids)
    for row, length in enumerate(lengths):
        ids[row, length:], mask[row, length:] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.roll(-1, dims=1)}


def _masked(masking: Masking, batch: dict[str, Tensor], step: int = 0, first_row: int = 0) -> Tensor:
    """(R, T) bool: what is another token afterwards."""
    before = batch["input_ids"].clone()
    masking(batch, step=step, first_row=first_row, examples=torch.arange(len(before)))
    return batch["input_ids"] != before


def _long(rows: int, width: int) -> dict[str, Tensor]:
    ids = torch.full((rows, width), 5)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
def test_batches_of_a_step_mask_what_one_batch_does(seed: int, step: int, ranks: int, micro_steps: int) -> None:
    """However a step's rows are dealt to ranks and micro-steps, and whatever the padding of their batch."""
    rows = 2 * ranks * micro_steps
    for variant in ("paper", "code"):
        masking = _masking(seed, variant=variant, fraction=0.4)
        whole = _masked(masking, _batch(rows), step)
        for first in range(0, rows, 2):
            part = _masked(masking, _batch(2, width=9), step, first)
            assert torch.equal(part[:, :8], whole[first : first + 2, :8])


def test_pre_training_as_the_released_code() -> None:
    """Its rule, on its seeds: the same positions in every row of all batches of a step, in 51 patterns, int(P * L)."""
    length = 41
    masking = _masking(variant="code", length=length)
    patterns = set()
    for step in range(110):
        random.seed(50 + step % 51)
        expected = random.sample(range(0, length - 1), max(1, int(length * 0.15)))
        for first_row in (0, 6):
            found = _masked(masking, _long(3, length), step, first_row)
            assert {tuple(np.flatnonzero(row)) for row in found} == {tuple(sorted(expected))}
            assert (found.sum(1) == int(0.15 * length)).all()
        patterns.add(tuple(sorted(expected)))
    assert len(patterns) == 51


def _example(question: list[int], answer: list[int]) -> dict[str, np.ndarray]:
    return {"question_ids": np.array(question, np.int32), "answer_ids": np.array([*answer, END], np.int32)}


def test_copies_by_hand() -> None:
    """An answer of three tokens has a copy, one of one token has none; with fraction 1 all of the copy is masked."""
    for copy, tokens, ids, labels in (
        (
            "separate",
            13,
            [[5, 6, 10, 11, 12, PAD], [7, 20, PAD, PAD, PAD, PAD], [5, 6, MASK, MASK, MASK, END]],
            [[IGNORED, 10, 11, 12, END, IGNORED], [20, END, *[IGNORED] * 4], [IGNORED, 10, 11, 12, IGNORED, IGNORED]],
        ),
        (
            "concatenate",
            14,
            [[5, 6, 10, 11, 12, END, 5, 6, MASK, MASK, MASK, END], [7, 20, *[PAD] * 10]],
            [[IGNORED, 10, 11, 12, END, IGNORED, IGNORED, 10, 11, 12, IGNORED, IGNORED], [20, END, *[IGNORED] * 10]],
        ),
    ):
        masking = _masking(fraction=1.0, copy=copy, min_answer=1)
        collate = training_collator(CausalCollator(PAD), masking.config)
        batch = collate([_example([5, 6], [10, 11, 12]), _example([7], [20])])
        assert collate.longest_input({"longest_answer": 4, "longest_example": 6}) == len(ids[0])
        assert masking(batch, step=0, first_row=0, examples=torch.arange(2)).tolist() == [3, tokens]
        assert {name: each.tolist() for name, each in batch.items()} == {
            "input_ids": ids,
            "attention_mask": [[int(token != PAD) for token in row] for row in ids],
            "labels": labels,
        }


def test_fine_tuning_as_the_released_code() -> None:
    """Its rule: of an answer of more than 50 tokens max(1, int(P * n)) positions, drawn once for each example."""
    examples = [_example([5, 6], [10 + place % 20 for place in range(size)]) for size in (50, 51, 87)]
    masking = _masking(seed=4, variant="code", copy="separate", fraction=0.1)
    collate = training_collator(CausalCollator(PAD), masking.config)
    for step in (0, 9):
        batch = collate(examples)
        before = batch["input_ids"].clone()
        masking(batch, step=step, first_row=step, examples=torch.tensor([100, 101, 102]))
        masked = batch["input_ids"] != before
        assert masked.sum(1).tolist() == [0, 0, 0, 5, 8]
        for row, (example, size) in enumerate([(101, 51), (102, 87)], start=3):
            expected = random.Random(f"4 {example}").sample(range(2, 2 + size), max(1, int(size * 0.1)))
            assert np.flatnonzero(masked[row]).tolist() == sorted(expected)
            assert (batch["labels"][row] != IGNORED).nonzero()[:, 0].tolist() == [
                place - 1 for place in sorted(expected)
            ]


class _Tokenizer:
    """As much as `maskable` reads."""

    all_special_ids, added_tokens_decoder = [PAD, END], {}
    tokens = ("<pad>", "</s>", "▁a", "7", "▁-", ".", "b2", "▁12", "▁,", "−", "Ġ", "x.y")

    def __len__(self) -> int:
        return len(self.tokens)

    def convert_ids_to_tokens(self, ids: Any) -> list[str]:
        return [self.tokens[token] for token in ids]


@pytest.mark.parametrize(
    ("numbers", "is_computed", "expected"),
    [
        ("only", True, {"7", "▁12"}),
        ("auto", True, {"▁a", "Ġ", "x.y"}),
        ("auto", False, {"▁a", "7", "▁-", ".", "b2", "▁12", "▁,", "−", "Ġ", "x.y"}),
    ],
)
def test_numbers_by_hand(numbers: str, is_computed: bool, expected: set[str]) -> None:
    values = {"7": 7.0, "▁12": 12.0}
    spare = 3  # rows of the embedding beyond the tokenizer
    vocab = NumberVocabulary.from_values(
        [values.get(each, float("nan")) for each in (*_Tokenizer.tokens, *"abc"[:spare])]
    )
    found = maskable(MaskConfig(numbers=numbers), _Tokenizer(), vocab, is_computed=is_computed)
    assert len(found) == len(_Tokenizer.tokens) + spare
    assert {_Tokenizer.tokens[place] for place in np.flatnonzero(found)} == expected


ON = "objective.mask.fraction=0.15"


def test_a_mask_token_leaves_learned_rows_as_they_are(trained_once: Path, settings: Any, tmp_path: Path) -> None:
    checkpoint = trained_once / "checkpoints" / "checkpoint-12"
    own = ["model=hf", "scale=tiny", "tokenizer=digit", f"model.path={checkpoint}", ON, "objective.mask.numbers=allow"]
    words = [word for word in settings(*own) if not word.startswith("model.n_")]
    built = RunParts(compose(words))
    learned = AutoModelForCausalLM.from_pretrained(checkpoint).transformer.wte.weight
    grown = built.model.transformer.wte.weight
    assert (len(grown), built.tokenizer.mask_token_id) == (len(learned) + 1, len(learned))
    assert torch.equal(grown[:-1], learned)
    assert built.model.lm_head.weight is grown  # tied as before
    # A run from its weights goes on with the same token.
    built.model.save_pretrained(tmp_path)
    built.tokenizer.save_pretrained(tmp_path)
    again = [word for word in words if "model.path" not in word]
    then = RunParts(compose([*again, f"model.path={tmp_path}"]))
    assert then.tokenizer.mask_token_id == len(learned)
    assert len(then.model.transformer.wte.weight) == len(grown)


def test_validation_and_prompts_are_never_masked(parts: Callable[..., Any], tmp_path: Path) -> None:
    built = parts(ON, "objective.mask.numbers=allow", "objective.mask.copy=separate", "objective.mask.min_answer=1")
    trainer = ObjectiveTrainer(built, tmp_path / "checkpoints")
    token = built.tokenizer.mask_token_id
    seen = list(trainer.get_eval_dataloader())
    assert seen
    for batch in seen:
        assert not (batch["input_ids"] == token).any()
        assert COPIES not in batch
    prompts = built.collator.prompts([built.encoded("validation")[place] for place in range(4)])
    assert not (prompts["input_ids"] == token).any()
    batches, counts = trainer.get_batch_samples(iter(trainer.get_train_dataloader()), 2, torch.device("cpu"))
    assert all((batch["input_ids"] == token).any() for batch in batches)
    assert counts[0] == sum((batch["labels"] != IGNORED).sum() for batch in batches)


@pytest.mark.slow
def test_mtp_and_ntl_and_masks_are_logged_apart_and_resume(small, run_interrupted, without_times, tmp_path) -> None:
    """A run interrupted in step 8 of 12 and started again is the run, as are smaller batches."""
    found = {}
    own = [ON, "objective.mask.numbers=allow", "objective=mtp", "model.n_layer=2", "trainer.logging_steps=5"]
    for name, size in (("whole", 8), ("again", 8), ("small", 4)):
        batches = [f"trainer.batch_size={size}", f"trainer.accumulation_steps={16 // size}"]
        config = small(*own, *batches, f"output_dir={tmp_path / name}")
        if name == "again":
            run_interrupted(config, 8)
        path = train(config)
        found[name] = without_times(path), read_metrics(path.parent / METRICS)
    assert found["whole"] == found["again"]
    line = found["whole"][1][0]
    assert {"ce", "ntl", "ce/head2", "ntl/head2", "masked"} <= line.keys()
    assert 0.08 < line["masked"] < 0.22
    assert found["small"][1][0]["masked"] == line["masked"]
    assert found["small"][0].metrics["validation/ce"] == pytest.approx(
        found["whole"][0].metrics["validation/ce"], rel=1e-4
    )
