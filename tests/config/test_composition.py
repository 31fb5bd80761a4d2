"""Every YAML file of every group composes, and nothing unknown gets in."""

import re

import pytest
from omegaconf import OmegaConf

from ntl.config import Config, UserError, compose
from ntl.config.composition import CONFIG_DIR, GROUPS, choices, help_text, to_config
from ntl.config.identity import plain
from ntl.config.legality import FAMILIES

CHOICES = [(group, name) for group in GROUPS for name in choices(group)]


# What fits one head or one family alone -> a model that has it.
BESIDE = {
    ("tokenizer", "rt"): ["model=rt_tiny"],
    ("tokenizer", "xval"): ["model=xval_tiny"],
    ("loss", "mse"): ["model=xval_tiny"],
    ("objective", "regression"): ["model=t5_tiny_regression"],
    ("objective", "masked_number"): ["model=xval_tiny"],
    ("decoding", "regression"): ["model=t5_tiny_regression"],
    ("decoding", "masked_number"): ["model=xval_tiny"],
}


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_composes_and_names_itself(group: str, name: str, composed) -> None:
    config = composed(*BESIDE.get((group, name), []), f"{group}={name}")
    assert isinstance(config, Config)
    if group == "beside":
        assert list(config.beside) == [name for name in (name,) if name != "none"]
    elif group not in ("trainer", "experiment", "hydra/launcher"):  # these have no name of their own
        assert getattr(config, group).name == name


def test_every_yaml_file_is_a_choice_of_a_known_group() -> None:
    folders = {path.parent.relative_to(CONFIG_DIR).as_posix() for path in CONFIG_DIR.rglob("*.yaml")}
    assert folders - {".", "scale/recipe", "table", "figure"} == set(GROUPS)


@pytest.mark.parametrize("path", sorted((CONFIG_DIR / "scale" / "recipe").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_belongs_to_a_scale_and_a_data_set_and_acts(path) -> None:
    scale, _, dataset = path.stem.partition("_")
    config = compose([f"scale={scale}", f"dataset={dataset}"])
    recipe = OmegaConf.merge({"seed": config.seed}, OmegaConf.load(path))
    OmegaConf.resolve(recipe)
    for key in ("trainer", "dataset"):
        for name, value in (recipe.get(key) or {}).items():
            assert getattr(getattr(config, key), name) == value


@pytest.mark.parametrize("name", choices("experiment"))
def test_every_experiment_composes_and_acts(name: str, composed) -> None:
    config = composed(f"experiment={name}")
    assert isinstance(config, Config)
    for group, values in OmegaConf.load(CONFIG_DIR / "experiment" / f"{name}.yaml").items():
        for key, value in (values if group != "defaults" else {}).items():
            assert plain(getattr(getattr(config, group), key)) == value


def test_xval_on_multiplication_is_as_in_the_paper(composed) -> None:
    config = composed("experiment=xval_multiplication")
    names = [
        getattr(config, group).name for group in ("model", "tokenizer", "loss", "objective", "decoding", "dataset")
    ]
    assert names == ["xval", "xval", "mse", "masked_number", "masked_number", "multiplication"]
    dataset, trainer = config.dataset, config.trainer
    assert (dataset.train_rows, dataset.validation_rows, dataset.test_rows_per_cell) == (780_000, 10_000, 20_000)
    assert (trainer.lr, trainer.weight_decay, trainer.batch_size, trainer.max_steps) == (1e-4, 0.01, 32, 1_050_000)
    assert (config.decoding.decimals, config.model.dropout, config.loss.weight) == (2, 0.1, 1.0)


def test_an_experiment_yields_to_the_command_line() -> None:
    config = compose(["experiment=xval_multiplication", "model=xval_tiny", "scale=tiny", "trainer.max_steps=3"])
    assert (config.model.name, config.scale.name, config.trainer.max_steps) == ("xval_tiny", "tiny", 3)


def test_the_command_line_wins_over_scale_recipe_and_model() -> None:
    config = compose(["dataset=multiplication", "scale=tiny", "trainer.max_steps=7", "dataset.train_rows=9"])
    assert (config.trainer.max_steps, config.dataset.train_rows) == (7, 9)  # pyright: ignore[reportAttributeAccessIssue]
    assert compose(["scale=paper", "decoding=greedy"]).decoding.num_beams == 1


def test_the_scale_decides_what_nobody_set(composed) -> None:
    assert composed("scale=paper").decoding.num_beams == 4
    paper = compose(["scale=paper", "dataset=arithmetic", "model=t5_small"]).trainer
    assert (paper.lr, paper.batch_size, paper.weight_decay, paper.schedule.name) == (1e-4, 32, 0.01, "plateau")
    assert (paper.factor, paper.patience) == (0.5, 5)


def test_the_default_is_what_the_readme_says(composed) -> None:
    config = composed()
    names = [config.model.name, config.tokenizer.name, config.loss.name, config.dataset.name, config.scale.name]
    assert names == ["gpt2_tiny", "digit", "ntl_was", "multiplication", "tiny"]


def test_every_family_has_a_row_in_the_table_of_legal_combinations(composed) -> None:
    assert {composed(f"model={name}").model.family for name in choices("model")} <= set(FAMILIES)


@pytest.mark.parametrize("override", ["+trainer.foo=1", "+foo=1", "+loss.number.foo=1"])
def test_a_key_added_with_a_plus_is_refused(override: str) -> None:
    with pytest.raises(UserError, match="no such setting"):
        compose([override])


def test_free_options_of_a_loss_may_be_added() -> None:
    assert compose(["+loss.number.options.anything=3"]).loss.number.options == {"anything": 3}  # pyright: ignore


def test_a_plain_node_is_refused_where_a_schema_is_due() -> None:
    with pytest.raises(AssertionError):
        to_config(OmegaConf.create({"model": {}}))


def test_help_names_every_choice_and_four_commands() -> None:
    text = help_text()
    assert all(name in text.split() for _, name in CHOICES)
    shown = {line.split()[0] for line in text.splitlines() if re.match(r"  \S+ {2,}\S", line)}
    assert shown == set(GROUPS) >= {"trainer", "experiment", "hydra/launcher"}
    assert text.count("\n  python train.py") == 4


def test_seeds_share_the_work_of_a_composition_and_nothing_else() -> None:
    noisy = ["dataset=noisy_numbers", "loss=ce"]
    first, second = compose([*noisy, "seed=5"]), compose(["seed=6", *noisy])
    # What refers to the seed follows it, and no config is another's.
    assert [(config.seed, config.dataset.seed) for config in (first, second)] == [(5, 5), (6, 6)]
    assert first.trainer is not second.trainer
    assert plain(compose([*noisy, "seed=1"])) == plain(compose(noisy))
    with pytest.raises(UserError, match="seed"):
        compose([*noisy, "seed=4294967296"])
