"""`MaskedInput` in a collator of transformers' form: by hand, and against what ``train.py`` masks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken
from torch import Tensor
from torch.utils.data import IterableDataset
from transformers import AutoConfig, AutoModelForCausalLM, DataCollatorWithFlattening, Trainer, TrainingArguments

from ntl.config.loss import MaskConfig
from ntl.data.collate import CausalCollator, training_collator
from ntl.objectives import MaskedInput
from ntl.objectives.masking import Masking

PAD, END, MASK, IGNORED = 0, 1, 39, -100


class _Tokenizer:
    """As much as `MaskedInput` reads: the ids 2 to 38 may be masked, 3 to 5 are digits."""

    all_special_ids, pad_token_id, eos_token_id = [PAD, END, MASK], PAD, END
    mask_token_id: int | None = MASK

    def __init__(self, *special: int) -> None:
        self.added_tokens_decoder = {each: AddedToken(str(each), special=each in special) for each in (*special, 7)}

    def __len__(self) -> int:
        return 40

    def convert_ids_to_tokens(self, ids: Any) -> list[str]:
        return [str(each) if each in (3, 4, 5) else "abc" for each in ids]

    def get_vocab(self) -> dict[str, int]:
        return {str(each) if each in (3, 4, 5) else f"word{each}x": each for each in range(40)}


def _collate(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    width = max(len(row["input_ids"]) for row in rows)
    padded = {
        "input_ids": [row["input_ids"] + [PAD] * (width - len(row["input_ids"])) for row in rows],
        "attention_mask": [[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in rows],
        "labels": [row["labels"] + [IGNORED] * (width - len(row["labels"])) for row in rows],
    }
    return {name: torch.tensor(each) for name, each in padded.items()}


def _row(ids: list[int], asked: int = 0) -> dict[str, list[int]]:
    return {"input_ids": ids, "labels": [IGNORED] * asked + ids[asked:]}


def _masked(**settings: Any) -> MaskedInput:
    return MaskedInput(_collate, _Tokenizer(), **settings)


def _long(first: int) -> dict[str, list[int]]:
    return _row([2 + (first + place * place) % 37 for place in range(200)])


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ("allow", [END, MASK, MASK, MASK, END]),
        ("forbid", [END, 3, MASK, 4, END]),
        ("only", [END, MASK, 9, MASK, END]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*digits")
def test_what_may_be_masked_is_masked_and_the_labels_stay(numbers: str, expected: list[int]) -> None:
    rows = [_row([END, 3, 9, 4, END]), _row([7, 8])]
    batch = _masked(fraction=1.0, numbers=numbers)(rows)
    assert batch["input_ids"][0].tolist() == expected
    assert batch["input_ids"][1, 1:].tolist() == [8, PAD, PAD, PAD]  # never the last position
    assert torch.equal(batch["labels"], _collate(rows)["labels"])


@pytest.mark.parametrize("variant", ["paper", "random"])
def test_a_row_is_masked_alike_in_every_batch_of_an_epoch(variant: str) -> None:
    masked = _masked(variant=variant, seed=4)
    rows = [_long(first) for first in range(6)]
    whole = masked(rows)["input_ids"]
    changed = (whole != _collate(rows)["input_ids"]).double()
    assert 0.1 < changed.mean() < 0.2
    assert not torch.equal(changed[0], changed[1])
    assert (whole == MASK).any() == (variant == "paper")
    longer = _row([*rows[2]["input_ids"], 5])
    assert torch.equal(masked([longer, rows[3]])["input_ids"][1, :200], whole[3])
    assert torch.equal(masked(rows[4:])["input_ids"], whole[4:])
    masked.set_epoch(1)
    assert not torch.equal(masked(rows)["input_ids"], whole)
    assert not torch.equal(_masked(variant=variant, seed=5)(rows)["input_ids"], whole)
    # Special tokens without a role, as Llama 3's <|start_header_id|>, are not masked, nor put in place of others.
    rows = [_row([*range(2, 39)])]
    special = MaskedInput(_collate, _Tokenizer(20, 21), fraction=1.0, variant=variant)(rows)["input_ids"][0]
    assert [place for place, token in enumerate(special.tolist(), 2) if token in (20, 21)] == [20, 21]


def _told(row: dict[str, list[int]], entropies: Any) -> dict[str, Any]:
    return {**row, "entropies": entropies}


def test_tokens_of_low_entropy_are_masked() -> None:
    """Half of each row by hand: of nine the four with at most 0.3, of which the last one of the row is not masked."""
    rows = [
        _told(_row([7, 8, 9, 10, 11, 12, 13, 14, 15]), [float("inf"), 0.1, 2.0, 0.5, 0.3, 0.1, 3.0, 0.9, 0.2]),
        _told(_row([5, 6, 7, 8]), [1.0, 1.0, 1.0, 1.0]),  # of equal ones, the first
    ]
    batch = _masked(fraction=1.0, entropies="entropies")(rows)
    assert (batch["input_ids"] == MASK).nonzero().tolist() == [[0, 1], [0, 4], [0, 5], [1, 0], [1, 1]]
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert torch.equal(batch["labels"], _collate(rows)["labels"])


@pytest.mark.parametrize("low", [0.1, 1.0])
def test_entropies_choose_from_what_is_drawn_without_them(low: float) -> None:
    """In every batch, and in a packed row; with a share of 1, from all."""
    generator = np.random.default_rng(2)
    rows = [_told(_long(first), generator.random(150 + first)) for first in range(6)]
    rows = [_told(_row(each["input_ids"][: 150 + first]), each["entropies"]) for first, each in enumerate(rows)]
    plain = [{name: each[name] for name in ("input_ids", "labels")} for each in rows]
    masked = _masked(fraction=0.5, entropies="entropies", low=low)
    whole, without = masked(rows), _masked(fraction=0.5)(plain)
    expected = torch.zeros(6, 155, dtype=torch.bool)
    for row, each in enumerate(rows):
        bound = np.sort(each["entropies"])[round(low * (150 + row)) - 1]
        expected[row, : 150 + row] = torch.from_numpy(each["entropies"] <= bound)
    assert torch.equal(whole["input_ids"] == MASK, (without["input_ids"] == MASK) & expected)
    assert torch.equal(masked(rows[4:])["input_ids"], whole["input_ids"][4:])
    packed = MaskedInput(DataCollatorWithFlattening(), _Tokenizer(), 0.5, entropies="entropies", low=low)(rows)
    assert torch.equal(packed["input_ids"][0], whole["input_ids"][whole["attention_mask"].bool()])


def test_the_fraction_rises_over_the_epochs() -> None:
    """0.8 / (1 + e^5) = 0.0054 at the beginning, half of 0.8 in the middle, 0.8 / (1 + e^-5) = 0.7946 at the end."""
    masked, rows = _masked(fraction=0.8, ramp=4), [_long(first) for first in range(37)]
    for epoch, expected in ((0, 0.0054), (2, 0.4), (4, 0.7946), (40, 0.8)):
        masked.set_epoch(epoch)
        share = (masked(rows)["input_ids"][:, :-1] == MASK).double().mean()
        assert share == pytest.approx(expected, abs=4 * (expected * (1 - expected) / (37 * 199)) ** 0.5), epoch


@pytest.mark.parametrize("copy", ["concatenate", "separate"])
def test_copies_are_those_of_train_py(copy: str) -> None:
    """With fraction 1; labels of a model's own shift, and the end token of a row without a copy is an input."""
    rows = [_row([5, 6, 10, 11, 12, END], asked=2), _row([7, 20, END], asked=1)]
    batch = _masked(fraction=1.0, copy=copy, min_answer=2)(rows)
    examples = [
        {"question_ids": np.array(row["input_ids"][:asked]), "answer_ids": np.array(row["input_ids"][asked:])}
        for row, asked in zip(rows, (2, 1), strict=True)
    ]
    config = MaskConfig(1.0, copy=copy, min_answer=2)
    ours = training_collator(CausalCollator(PAD), config)(examples)
    allowed = torch.tensor([token not in (PAD, END, MASK) for token in range(40)])
    masking = Masking(config, seed=0, length=16, maskable=allowed, mask_token_id=MASK)
    masking(ours, step=0, first_row=0, examples=torch.arange(2))
    shifted = torch.cat([batch["labels"][:, 1:], torch.full((len(batch["labels"]), 1), IGNORED)], dim=1)
    assert torch.equal(shifted, ours["labels"])
    both = ours["attention_mask"].bool()
    assert torch.equal(batch["input_ids"][both], ours["input_ids"][both])
    assert (batch["attention_mask"].sum() - both.sum()).item() == (1 if copy == "concatenate" else 2)


def test_copies_of_no_answer_are_told() -> None:
    with pytest.warns(UserWarning, match=r"^copy='separate': no answer .* more than min_answer=50 tokens, .*; lower "):
        _masked(fraction=1.0, copy="separate")([_row([7, 20, END], asked=1)])


def test_only_masked_tokens_of_a_copy_are_learned() -> None:
    batch = _masked(fraction=0.3, copy="separate")(
        [_long(first) | {"labels": [IGNORED] * 9 + _long(first)["input_ids"][9:]} for first in range(2)]
    )
    assert len(batch["input_ids"]) == 4
    learned = batch["labels"][2:] != IGNORED
    assert torch.equal(learned, batch["input_ids"][2:] == MASK)
    assert 0.2 < learned[:, 9:-1].double().mean() < 0.4
    assert not (batch["input_ids"][:2] == MASK).any()


def _trainer(folder: Path, rows: Any, see: Callable[[Any, dict[str, Tensor]], None], **how: Any) -> Trainer:
    """One of a tiny model, which calls ``see(model, inputs)`` before each forward pass."""
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", vocab_size=40, **shape))
    model.register_forward_pre_hook(lambda module, args, given: see(module, given), with_kwargs=True)
    arguments = TrainingArguments(str(folder), report_to="none", use_cpu=True, **how)
    return Trainer(model, arguments, _collate, rows, rows if isinstance(rows, list) else None)


def test_attached_to_a_trainer_it_masks_training_alone(tmp_path: Path) -> None:
    seen: list[tuple[bool, Tensor]] = []

    def see(module: Any, given: dict[str, Tensor]) -> None:
        seen.append((module.training, given["input_ids"]))

    trainer = _trainer(tmp_path, [_long(0)], see, eval_strategy="epoch", save_strategy="no", num_train_epochs=2)
    MaskedInput(trainer.data_collator, _Tokenizer()).attach(trainer)
    trainer.train()
    assert [training for training, _ in seen] == [True, False] * 2
    assert [bool((ids == MASK).any()) for _, ids in seen] == [True, False] * 2
    assert not torch.equal(seen[0][1], seen[2][1])  # drawn anew in the second epoch
    trainer.args.dataloader_persistent_workers = True
    with pytest.raises(ValueError, match="persistent_workers"):
        MaskedInput(_collate, _Tokenizer()).attach(trainer)


class _Stream(IterableDataset):
    """Eight rows, without a length."""

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        return map(_long, range(8))


def _passes(rows: Any, folder: Path, done: int, workers: int) -> list[int]:
    """Train with two steps a pass, from a checkpoint of ``done`` steps: the passes, whose masks the batches have."""
    masked, alone = _masked(fraction=0.5, ramp=3), _masked(fraction=0.5, ramp=3)
    found: list[int] = []

    def see(module: Any, given: dict[str, Tensor]) -> None:
        alone.set_epoch((done + len(found)) // 2)
        expected = alone([_row(ids) for ids in given["labels"].tolist()])
        assert torch.equal(given["input_ids"], expected["input_ids"])
        found.append(masked.epoch)

    how = {"save_steps": 1, "dataloader_num_workers": workers, "max_steps": 8, "per_device_train_batch_size": 4}
    trainer = _trainer(folder, rows, see, **how)
    masked.attach(trainer)
    trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-{done}" if done else None)
    return found


@pytest.mark.parametrize(
    ("rows", "kept", "workers"),
    [(_Stream(), 4, 1), (_Stream(), 4, 0), ([*_Stream()], 3, 0)],
    ids=["workers", "stream", "list"],
)
def test_attached_to_a_trainer_it_counts_passes(rows: Any, kept: int, workers: int, tmp_path: Path) -> None:
    """Also in a run that is resumed twice: between two passes of a stream, or in the middle of one of a list."""
    for done in (0, kept, kept + 2):
        assert _passes(rows, tmp_path, done, workers) == [0, 0, 1, 1, 2, 2, 3, 3][done:]


def _bare() -> _Tokenizer:
    bare = _Tokenizer()
    bare.mask_token_id = None
    return bare


FLAT: Any = DataCollatorWithFlattening()
REFUSED: dict[str, list[Callable[[], Any]]] = {
    "mask token": [lambda: MaskedInput(_collate, _bare())],
    "fraction": [lambda: _masked(fraction=0.0)],
    "low": [lambda: _masked(low=0.0)],
    "variant": [lambda: _masked(variant="code")],
    "entropies": [
        lambda: _masked(entropies="entropies", copy="separate"),
        lambda: _masked(entropies="entropies")([_long(0)]),
        lambda: _masked(entropies="entropies")([_told(_long(0), [1.0])]),
        lambda: _masked(entropies="entropies")([_told(_row([7, 8]), [float("nan"), 1.0])]),
    ],
    "position_ids": [lambda: MaskedInput(FLAT, _bare(), variant="random", copy="separate")([_long(0)])],
}


@pytest.mark.parametrize("named", REFUSED)
def test_wrong_uses(named: str) -> None:
    for call in REFUSED[named]:
        with pytest.raises(ValueError, match=named):
            call()
