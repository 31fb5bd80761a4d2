"""Legal combinations of choices in whole runs."""

import random
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from ntl.config import compose, run_id
from ntl.config.composition import known_datasets
from ntl.config.folders import choices
from ntl.config.legality import FAMILIES
from ntl.results import read_record
from ntl.training import run

GROUPS = ("model", "tokenizer", "loss", "dataset")
MODELS = [name for name in choices("model") if "tiny" in name]
SMALLEST = {
    "t5": "t5_tiny",
    "decoder": "gpt2_tiny",
    "rt": "rt_tiny",
    "t5_regression": "t5_tiny_regression",
    "decoder_regression": "gpt2_tiny_regression",
    "xval": "xval_tiny",
}
Choice = tuple[str, str, str, str]

# As little of each data set as its test sets allow.
FEW_ROWS = {
    "noisy_numbers": ["dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=8"],
    "multiplication": ["dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows_per_cell=1"],
    "arithmetic": [
        "dataset.train_rows_per_difficulty=64",
        "dataset.validation_rows_per_difficulty=8",
        "dataset.test_rows=8",
    ],
    "mathematics": ["dataset.rows_per_file=20", "dataset.test_rows_per_file=1"],
    "gsm8k": ["dataset.test_rows=8"],
    "rjokes": ["dataset.allow_dev_training=true", "dataset.train_rows=64", "dataset.test_rows=8"],
    "multirc": [],
    "melting_points": ["dataset.train_rows=8", "dataset.validation_rows=4", "dataset.test_rows=4"],
    "sentiment": ["dataset.train_rows=8", "dataset.validation_rows=4", "dataset.test_rows=4"],
    **{
        name: ["dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=1"]
        for name in ("polynomial", "induction", "star_graph", "needle", "key_values")
    },
}
FEW_ROWS["induction"] += ["dataset.sentences=2"]  # so that a story fits the shortest model
SHORT = [
    *("trainer.max_steps=3", "trainer.warmup_steps=1", "trainer.batch_size=4", "trainer.eval_rows=8"),
    *("trainer.save_steps=0", "trainer.logging_steps=1", "decoding.max_new_tokens=4"),
    *("tracking=none", "device=cpu"),
]


@cache
def family(model: str) -> str:
    return compose([f"model={model}"]).model.family


@cache
def legal() -> list[Choice]:
    """All that fit by the one table (``ntl.config.legality``), read off one composed config for each choice."""
    losses = {name: OmegaConf.load(f"config/loss/{name}.yaml").get("heads", ["lm"]) for name in choices("loss")}
    answers = {name: compose([f"dataset={name}"]).dataset.answers for name in known_datasets()}
    return [
        (model, tokenizer, loss, dataset)
        for model, tokenizer, loss, dataset in product(MODELS, choices("tokenizer"), losses, answers)
        if tokenizer in FAMILIES[family(model)].tokenizers
        and FAMILIES[family(model)].head in losses[loss]
        and answers[dataset] in FAMILIES[family(model)].answers
    ]


@pytest.mark.slow
@pytest.mark.data
def test_each_choice_runs(data_root: Path, tmp_path: Path, packages: Callable[[Path], None]) -> None:
    """Each model and each data set at least once, in a legal combination that is drawn for it."""
    packages(tmp_path / "data")
    torch.set_num_threads(1)
    draw = random.Random(0)
    chosen = {
        draw.choice([choice for choice in legal() if choice[place] == name])
        for place in (GROUPS.index("model"), GROUPS.index("dataset"))
        for name in sorted({choice[place] for choice in legal()})
    }
    for choice in sorted(chosen):
        named = [f"{group}={name}" for group, name in zip(GROUPS, choice, strict=True)]
        places = [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}"]
        config = compose([*named, *FEW_ROWS[choice[3]], *SHORT, *places])
        record = read_record(run(config))
        assert (record.id, record.steps) == (run_id(config), 3)
        assert record.metrics


# Those that have labels at every token: each without and with masked input.
OBJECTIVES = [
    [*objective, *mask]
    for objective in (
        ["objective=next_token"],
        ["objective=mtp", "objective.keep_depth=true"],
        ["objective=mtp", "objective.kind=sequential"],
    )
    for mask in ([], ["objective.mask.fraction=0.3"])
]
