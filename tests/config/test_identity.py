"""A run's id names what it computes, and stays what it was."""

from dataclasses import dataclass, field, replace

import pytest

from ntl.config import run_id
from ntl.config.identity import canonical, differing, plain
from ntl.config.trainer import Schedule, TrainerConfig

# Ids of runs that were recorded: a change here orphans published records.
STORED = {
    ("dataset=noisy_numbers", "loss=ce", "seed=1"): "noisy_numbers-gpt2_tiny-ce-s1-7b4730bde967",
    ("dataset=multiplication", "loss=ntl_was", "seed=3"): "multiplication-gpt2_tiny-ntl_was-s3-4c09ed43063f",
    (
        "model=t5_small",
        "dataset=arithmetic",
        "scale=paper",
        "loss.weight=0.8",
    ): "arithmetic-t5_small-ntl_was-s1-ae97e20893f3",
}


@pytest.mark.parametrize("overrides", STORED)
def test_ids_of_recorded_runs_do_not_change(overrides: tuple[str, ...], composed) -> None:
    assert run_id(composed(*overrides)) == STORED[overrides]


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
def test_where_and_how_it_is_watched_is_left_out(override: str, composed) -> None:
    assert run_id(composed(override)) == run_id(composed())


@pytest.mark.parametrize("model", ["xval", "xval_tiny"])
def test_the_paper_s_xval_is_another_run(model: str, composed) -> None:
    corrected, paper = composed(f"model={model}"), composed(f"model={model}", "paper_compat=true")
    assert run_id(corrected) != run_id(paper)
    assert (paper.model.paper_compat, paper.tokenizer.paper_compat) == (True, True)
    assert (corrected.model.paper_compat, corrected.tokenizer.paper_compat) == (False, False)


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
def test_what_is_computed_counts(override: str, composed) -> None:
    assert run_id(composed(override)) != run_id(composed())


def test_a_default_written_out_changes_nothing(composed) -> None:
    assert run_id(composed("loss.weight=0.30", "seed=1", "trainer.weight_decay=1e-2")) == run_id(composed())


def test_a_new_key_with_a_default_keeps_old_ids(composed) -> None:
    @dataclass
    class Later(TrainerConfig):
        invented: int = 3
        options: dict[str, int] = field(default_factory=dict)

    config = composed()
    later = replace(config, trainer=Later(**vars(config.trainer)))
    assert canonical(later) == canonical(config)
    later.trainer.invented = 4  # pyright: ignore[reportAttributeAccessIssue]
    assert canonical(later) != canonical(config)


def test_a_local_folder_counts_by_its_name_and_a_hub_id_in_full(tmp_path, composed) -> None:
    def id_with(path: str) -> str:
        config = composed()
        config.model.path = path
        return run_id(config)

    here, there, other = (str(tmp_path / name) for name in ("a/model", "b/model", "a/other"))
    assert id_with(here) == id_with(there)
    assert id_with(other) != id_with(here)
    assert id_with("me/model") != id_with("you/model")


def test_plain_and_differing_by_hand() -> None:
    trainer = TrainerConfig(lr=0.5, schedule=Schedule.linear)
    assert differing(trainer) == {"lr": 0.5, "schedule": "linear"}
    assert plain({"a": (Schedule.cosine, [1])}) == {"a": ["cosine", [1]]}
