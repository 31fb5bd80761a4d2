import pytest
from omegaconf import OmegaConf

from ntl.config import UserError, compose
from ntl.config.composition import known_datasets
from ntl.data import dataset_named, load_dataset
from ntl.data.dataset import numbered
from ntl.data.sets.noisy_numbers import NoisyNumbers, NoisyNumbersConfig


def test_the_folder_is_named_by_the_values() -> None:
    name = NoisyNumbers(NoisyNumbersConfig()).folder_name
    assert name.startswith("noisy_numbers-")
    assert NoisyNumbers(OmegaConf.structured(NoisyNumbersConfig)).folder_name == name
    assert NoisyNumbers(NoisyNumbersConfig(_target_="elsewhere.NoisyNumbers")).folder_name == name
    assert NoisyNumbers(NoisyNumbersConfig(noise_sd=6)).folder_name == name  # int and float of one value
    assert NoisyNumbers(NoisyNumbersConfig(seed=1)).folder_name != name

    class Next(NoisyNumbers):
        version = 2

    assert Next(NoisyNumbersConfig()).folder_name != name


def test_ids() -> None:
    rows = list(numbered("test", [("q", "a"), ("r", "b")], 2))
    assert rows == [
        {"id": "test/00000", "question": "q", "answer": "a"},
        {"id": "test/00001", "question": "r", "answer": "b"},
    ]
    widths = [len(next(numbered("a", [("q", "a")], n))["id"]) - 2 for n in (1, 100_000, 100_001, 1_000_000)]
    assert widths == [5, 5, 6, 6]
    assert [row["id"] for row in numbered("a", iter([("q", "a", "3x2"), ("q", "a", "")]), 2)] == [
        "a/3x2/00000",
        "a/00001",
    ]


@pytest.mark.parametrize("name", known_datasets())
@pytest.mark.slow
def test_the_defaults_are_the_paper_scale(name: str) -> None:
    by_config = compose([f"dataset={name}", "scale=paper"]).dataset
    dataset = dataset_named(name)
    assert dataset.config == by_config
    assert dataset.name == name
    assert set(dataset.test_splits) < set(dataset.splits)


def test_mistakes_are_one_line() -> None:
    with pytest.raises(
        UserError, match=r"no data set 'noisy_number'; choose one of arithmetic, .* Did you mean 'noisy_numbers'"
    ):
        load_dataset("noisy_number", "train")
    with pytest.raises(UserError, match=r"data set 'arithmetic': .* unexpected keyword argument 'rows'"):
        dataset_named("arithmetic", rows=1)
