"""Legal combinations of choices in whole runs, and the result that the loss is for."""

from collections.abc import Iterable
from functools import cache
from itertools import combinations, product
from pathlib import Path
from statistics import mean

import pytest
import torch
from omegaconf import OmegaConf

from ntl.config import UserError, compose, run_id
from ntl.config.composition import known_datasets
from ntl.config.folders import choices
from ntl.config.legality import FAMILIES
from ntl.results import read_record
from ntl.training import run
from ntl.training.parts import RunParts
from ntl.training.tracking import METRICS, read_metrics

GROUPS = ("model", "tokenizer", "loss", "dataset")
MODELS = [name for name in choices("model") if "tiny" in name]
MOST_RUNS = 72
SMALLEST = {
    "t5": "t5_tiny",
    "decoder": "gpt2_tiny",
    "rt": "rt_tiny",
    "t5_regression": "t5_tiny_regression",
    "decoder_regression": "gpt2_tiny_regression",
    "xval": "xval_tiny",
}
Choice = tuple[str, str, str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]

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


def pairs(choice: Choice) -> set[Pair]:
    model, *others = choice
    named = list(zip(("family", *GROUPS[1:]), (family(model), *others), strict=True))
    return {*combinations(named, 2), (("model", model), ("model", model))}


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


def covering(candidates: Iterable[Choice], most: int) -> tuple[list[Choice], set[Pair]]:
    """Greedily: the choice with most pairs that none before it has; pairs of loss and data set only break ties."""
    remaining, chosen = sorted(candidates), []
    missing = set().union(*map(pairs, remaining))

    def gain(choice: Choice) -> tuple[int, int]:
        new = pairs(choice) & missing
        others = sum(first[0] != "loss" for first, _ in new)
        return others, len(new) - others

    while missing and len(chosen) < most:
        best = max(remaining, key=gain)
        chosen.append(best)
        missing -= pairs(best)
    return chosen, missing


@pytest.mark.slow
def test_the_table_is_what_validation_says() -> None:
    """A sample of all combinations, legal or not: composing raises exactly where the table says no."""
    allowed = set(legal())
    every = list(product(MODELS, choices("tokenizer"), choices("loss"), known_datasets()))
    for choice in every[::181]:
        overrides = [f"{group}={name}" for group, name in zip(GROUPS, choice, strict=True)]
        if choice in allowed:
            compose(overrides)
        else:
            with pytest.raises(UserError) as caught:
                compose(overrides)
            assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_covering_set_leaves_out_pairs_of_loss_and_data_set_alone() -> None:
    chosen, missing = covering(legal(), MOST_RUNS)
    assert len(chosen) == MOST_RUNS
    assert {(first[0], second[0]) for first, second in missing} <= {("loss", "dataset")}
    assert len(missing) <= 110


@pytest.mark.slow
@pytest.mark.data
def test_the_covering_set_runs(data_root: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    chosen, _ = covering(legal(), MOST_RUNS)
    for choice in chosen:
        named = [f"{group}={name}" for group, name in zip(GROUPS, choice, strict=True)]
        places = [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}"]
        config = compose([*named, *FEW_ROWS[choice[3]], *SHORT, *places])
        record = read_record(run(config))
        assert record.id == run_id(config)
        assert record.steps == 3
        assert record.metrics


# Every way to mask the input (MEAP), with every objective that has labels at every token, each loss and each data set.
OBJECTIVES = {
    "next_token": ["objective=next_token"],
    "mtp": ["objective=mtp", "objective.keep_depth=true"],
    "sequential": ["objective=mtp", "objective.kind=sequential"],
}
MASKS = {
    **{variant: [f"objective.mask.variant={variant}"] for variant in ("paper", "code", "random")},
    **{
        f"{copy}_{variant}": [
            *(f"objective.mask.variant={variant}", f"objective.mask.copy={copy}"),
            *("objective.mask.min_answer=0", "objective.mask.numbers=allow"),
            "trainer.max_input_length=48",  # twice that and two answers are to fit
        ]
        for copy in ("concatenate", "separate")
        for variant in ("paper", "code")
    },
}


@cache
def masked_runs() -> list[tuple[str, str, Choice]]:
    """Objective, mask and choice: each loss and data set, and all pairs of an objective with a mask or a model."""
    decoders = sorted(model for model in MODELS if family(model) == "decoder")
    ways = list(product(MASKS, OBJECTIVES))
    chosen, _ = covering([choice for choice in legal() if choice[0] in decoders], len(ways))
    return [
        (objective, mask, (decoders[place % len(decoders)], tokenizer, loss, dataset))
        for place, ((mask, objective), (_, tokenizer, loss, dataset)) in enumerate(zip(ways, chosen, strict=True))
    ]


@pytest.mark.slow
def test_masks_meet_every_loss_decoder_and_data_set() -> None:
    runs, allowed = masked_runs(), [choice for choice in legal() if family(choice[0]) == "decoder"]
    assert {choice for _, _, choice in runs} <= {*allowed}
    for place in range(len(GROUPS)):
        assert {choice[place] for _, _, choice in runs} == {choice[place] for choice in allowed}
    assert {(objective, choice[0]) for objective, _, choice in runs} == {
        *product(OBJECTIVES, {choice[0] for choice in allowed})
    }


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("place", range(len(OBJECTIVES) * len(MASKS)))
def test_masked_runs(place: int, data_root: Path, data_dir: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    objective, mask, choice = masked_runs()[place]
    if "moe" in choice[0]:
        objective = "next_token"  # multi-token prediction has no mixture of experts
    named = [f"{group}={name}" for group, name in zip(GROUPS, choice, strict=True)]
    ways = [*OBJECTIVES[objective], "objective.mask.fraction=0.3", *MASKS[mask]]
    places = [f"data_dir={data_dir}", f"output_dir={tmp_path}"]
    config = compose([*named, *ways, *FEW_ROWS[choice[3]], *SHORT, *places])
    path = run(config)
    record = read_record(path)
    assert (record.id, record.steps) == (run_id(config), 3)
    losses = [line for line in read_metrics(path.parent / METRICS) if "loss" in line]
    assert len(losses) == 3
    assert all("masked" in line for line in losses)
    assert any(line["masked"] for line in losses)
    assert ("ce/head2" in losses[0]) == (objective != "next_token")


def objectives(family: str) -> list[list[str]]:
    """The objective of a family's model; of a decoder that predicts tokens all, each without and with masks."""
    if family != "decoder":
        return [[]]
    return [[*way, *mask] for way in OBJECTIVES.values() for mask in ([], ["objective.mask.fraction=0.3"])]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("dataset", known_datasets())
def test_every_objective_loss_and_family_takes_three_steps(
    dataset: str, data_root: Path, data_dir: Path, tmp_path: Path
) -> None:
    """The smallest model of each family, with every objective and loss that fits it."""
    torch.set_num_threads(1)
    fitting = sorted({(family(model), loss) for model, _, loss, name in legal() if name == dataset})
    places = [f"data_dir={data_dir}", f"output_dir={tmp_path}"]
    for kind, loss in fitting:
        for objective in objectives(kind):
            model = f"model={SMALLEST[kind]}"
            config = compose(
                [model, f"dataset={dataset}", f"loss={loss}", *objective, *FEW_ROWS[dataset], *SHORT, *places]
            )
            trainer = RunParts(config, say=lambda line: None).trainer(tmp_path / "checkpoints")
            trainer.train()
            assert trainer.state.global_step == 3
            logged = [line for line in trainer.state.log_history if "loss" in line]
            assert len(logged) == 3
            for line in logged:
                assert ("ce/head2" in line) == ("objective=mtp" in objective), (line, objective)
                assert ("masked" in line) == ("objective.mask.fraction=0.3" in objective), (line, objective)


SEEDS = (1, 2, 3, 4)


@pytest.mark.slow
def test_was_is_below_ce_on_noise_free_rmse(data_dir: Path, tmp_path: Path) -> None:
    def rmse(loss: str, seed: int) -> float:
        where = [f"data_dir={data_dir}", f"output_dir={tmp_path}", "tracking=none", "device=cpu"]
        path = run(compose(["dataset=noisy_numbers", "scale=tiny", f"loss={loss}", f"seed={seed}", *where]))
        value = read_record(path).metrics["test/rmse_truth"]
        assert value is not None
        return value

    ce, was = ([rmse(loss, seed) for seed in SEEDS] for loss in ("ce", "ntl_was"))
    print("CE", ce, "NTL-WAS", was)
    assert mean(was) < mean(ce)
    assert sum(low < high for low, high in zip(was, ce, strict=True)) >= 3
    # Both have learnt: the mean of the training answers is off by 16.6.
    assert max(ce) < 10
