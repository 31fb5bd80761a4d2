"""A run's id names what it computes, and stays what it was."""

from dataclasses import dataclass, field, replace

import pytest

from ntl.config import compose, run_id
from ntl.config.identity import canonical, differing, plain
from ntl.config.trainer import Schedule, TrainerConfig

# Ids of runs that were recorded: a change here orphans published records.
STORED = {
    ("dataset=noisy_numbers", "loss=ce", "seed=1"): "noisy_numbers-gpt2_tiny-ce-s1-",
    ("dataset=multiplication", "loss=ntl_was", "seed=3"): "multiplication-gpt2_tiny-ntl_was-s3-",
    ("model=t5_small", "dataset=arithmetic", "scale=paper", "loss.weight=0.8"): "arithmetic-t5_small-ntl_was-s1-",
}


@pytest.mark.parametrize("overrides", STORED)
def test_ids_of_recorded_runs_do_not_change(overrides: tuple[str, ...]) -> None:
    assert run_id(compose(overrides)) == STORED[overrides]


@pytest.mark.parametrize(
    "override",
    [
        "output_dir=elsewhere",
        "data_dir=elsewhere",
        "resume=never",
        "tracking=none",
        "device=cpu",
        "decoding=beam",
        "paper_compat=true",
    ],
)
def test_where_and_how_it_is_watched_is_left_out(override: str) -> None:
    assert run_id(compose([override])) == run_id(compose())


@pytest.mark.parametrize(
    "override",
    [
        "seed=2",
        "loss=ce",
        "loss.weight=0.5",
        "model=t5_tiny",
        "tokenizer=default",
        "dataset=noisy_numbers",
        "dataset.train_rows=10",
        "trainer.lr=1e-3",
        "trainer.normalization=micro_batch",
        "scale=small",
    ],
)
def test_what_is_computed_counts(override: str) -> None:
    assert run_id(compose([override])) != run_id(compose())


def test_a_default_written_out_changes_nothing() -> None:
    assert run_id(compose(["loss.weight=0.30", "seed=1", "trainer.weight_decay=1e-2"])) == run_id(compose())


def test_a_new_key_with_a_default_keeps_old_ids() -> None:
    @dataclass
    class Later(TrainerConfig):
        invented: int = 3
        options: dict[str, int] = field(default_factory=dict)

    config = compose()
    later = replace(config, trainer=Later(**vars(config.trainer)))
    assert canonical(later) == canonical(config)
    later.trainer.invented = 4  # pyright: ignore[reportAttributeAccessIssue]
    assert canonical(later) != canonical(config)


def test_a_local_folder_counts_by_its_name_and_a_hub_id_in_full(tmp_path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "model").mkdir(parents=True)
        (tmp_path / parent / "other").mkdir()
    here, there = (f"model.path={tmp_path / parent / 'model'}" for parent in ("a", "b"))
    assert run_id(compose([here])) == run_id(compose([there]))
    assert run_id(compose([f"model.path={tmp_path / 'a' / 'other'}"])) != run_id(compose([here]))
    assert run_id(compose(["model.path=me/model"])) != run_id(compose(["model.path=you/model"]))


def test_plain_and_differing_by_hand() -> None:
    trainer = TrainerConfig(lr=0.5, schedule=Schedule.linear)
    assert differing(trainer) == {"lr": 0.5, "schedule": "linear"}
    assert plain({"a": (Schedule.cosine, [1])}) == {"a": ["cosine", [1]]}
