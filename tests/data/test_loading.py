import os
import subprocess
import sys
from pathlib import Path

import pytest

from ntl.config import UserError, compose
from ntl.config.composition import choices
from ntl.data import dataset_named, load_dataset

ROOT = Path(__file__).parents[2]


def test_load_dataset_prepares_on_first_use(data_dir: Path) -> None:
    data = load_dataset("noisy_numbers", "test", data_dir)
    assert len(data) == 2000
    assert data.column_names == ["id", "question", "answer"]
    assert data[0]["id"] == "test/00000"


def test_without_a_folder_it_writes_to_data(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_dir)
    assert len(load_dataset("noisy_numbers", "validation")) == 500
    assert [path.name for path in (data_dir / "data").iterdir() if path.is_dir()] == [
        dataset_named("noisy_numbers").folder_name
    ]


@pytest.mark.parametrize("name", choices("dataset"))
def test_the_defaults_are_the_paper_scale(name: str) -> None:
    by_config = compose([f"dataset={name}", "scale=paper"]).dataset
    dataset = dataset_named(name)
    assert dataset.config == by_config
    assert dataset.name == name
    assert set(dataset.test_splits) < set(dataset.splits)


def test_values_can_be_replaced() -> None:
    assert dataset_named("multiplication", max_digits=2, extrapolate_digits=3).config.max_digits == 2


def test_mistakes_are_one_line() -> None:
    with pytest.raises(
        UserError, match=r"no data set 'noisy_number'; choose one of arithmetic, .* Did you mean 'noisy_numbers'"
    ):
        load_dataset("noisy_number", "train")
    with pytest.raises(UserError, match=r"data set 'arithmetic': .* unexpected keyword argument 'rows'"):
        dataset_named("arithmetic", rows=1)


def test_text_comes_without_torch_and_without_datasets(data_dir: Path) -> None:
    code = (
        "import sys; sys.modules['datasets'] = None; sys.modules['pyarrow'] = None\n"
        "from ntl.data import dataset_named\n"
        "d = dataset_named('noisy_numbers', train_rows=9); d.prepare(sys.argv[1])\n"
        "assert len(d.rows('train', sys.argv[1])) == 9 and d.train_targets(sys.argv[1])\n"
        "assert not any('arrow' in str(e) for e in d.manifest(sys.argv[1])['splits'].values())\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code, str(data_dir)], check=True, env=environment)
