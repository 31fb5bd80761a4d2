"""A run that begins from another's weights: how that is named, and what of it is the run's own name."""

import pytest

from ntl.config import UserError, compose, run_id
from ntl.config.composition import base_words

WORDS = ["dataset=noisy_numbers", "loss=ntl_was", "loss.weight=2.0", "trainer.max_steps=20"]


def test_words_and_the_id_that_follows_from_them_name_the_same_run() -> None:
    base = compose(["dataset=noisy_numbers", "loss=ce", "trainer.max_steps=40"])
    by_words = compose([*WORDS, "base='loss=ce trainer.max_steps=40@30'"])
    by_id = compose([*WORDS, f"base={run_id(base)}@30"])
    assert by_words.base == by_id.base == f"{run_id(base)}@30"
    assert run_id(by_words) == run_id(by_id)
    others = [[], [f"base={run_id(base)}@40"], ["base='loss=ce trainer.max_steps=50@30'"]]
    assert len({run_id(by_id), *(run_id(compose([*WORDS, *other])) for other in others)}) == 4


def test_a_base_has_the_model_the_data_and_the_seed_of_its_run_but_not_its_loss() -> None:
    shared = ["dataset=noisy_numbers", "model=llama_tiny", "model.settings.hidden_size=32", "dataset.train_rows=500"]
    words = [*shared, "device=cpu", "seed=3", "loss=ntl_was", "loss.weight=2.0", "trainer.max_steps=20"]
    found, step = base_words([*words, "base='loss=ce seed=4 trainer.lr=1e-3@8'"]) or ([], 0)
    assert step == 8
    assert found == [*shared, "device=cpu", "loss=ce", "seed=4", "trainer.lr=1e-3"]
    assert base_words(words) is None
    assert base_words([*words, "base=some-id@8"]) is None


def test_each_seed_has_a_base_of_its_own() -> None:
    bases = {compose([*WORDS, f"seed={seed}", "base='loss=ce@5'"]).base.split("-")[3] for seed in (1, 2)}
    assert bases == {"s1", "s2"}


def test_checkpoints_to_keep_are_no_part_of_the_name() -> None:
    assert run_id(compose([*WORDS, "keep_steps=[5,7]"])) == run_id(compose(WORDS))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["base=some-id"], "base=some-id: give the id of a run in outputs and a step, as ID@8000"),
        (["base=some/id@3"], "base=some/id@3: give the id of a run"),
        (["base='loss=ce@'"], "give the overrides of a run and a step"),
        (["base='loss=ce 8000@8'"], "give the overrides of a run and a step"),
        (["base='loss=ce trainer.max_steps=40@41'"], "that run ends at step 40; name a step up to it"),
        (["base='loss=ce model=llama_tiny@5'"], "that run has another model, whose weights this one cannot take"),
        (["base='loss=ce base=some-id@5'"], "begins from no other itself"),
        (["keep_steps=[21]"], "keep_steps=.21.: choose steps of 1 to trainer.max_steps=20"),
        (["keep_steps=[0]"], "choose steps of 1"),
    ],
)
def test_one_line_for_what_names_no_run(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compose([*WORDS, *words])


def test_an_experiment_does_not_say_what_is_shared() -> None:
    with pytest.raises(UserError, match="an experiment sets what both runs share; name the base by its id"):
        compose(["dataset=multiplication", "experiment=xval_multiplication", "base='loss=ce@5'"])
