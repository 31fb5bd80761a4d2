"""A run's id names what it computes, and stays what it was."""

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import Config, TrainerConfig, UserError, compose, run_id
from ntl.config.identity import identity_fields, recorded
from ntl.config.trainer import in_steps, is_decoded

# Overrides -> the id of their run, of every choice of every group (tests/test_baseline.py has those of the tables): a
# change here orphans published records.
STORED: dict[str, str] = json.loads((Path(__file__).parent / "ids.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("overrides", STORED)
def test_ids_do_not_change(overrides: str, composed) -> None:
    assert run_id(composed(*shlex.split(overrides))) == STORED[overrides]


@pytest.mark.parametrize(
    "override",
    [
        *("output_dir=elsewhere", "data_dir=elsewhere", "resume=never", "keep_steps=[5,7]", "tracking=none"),
        *("device=cpu", "decoding=beam", "paper_compat=true", "decoding.interval_rows=100"),
        "decoding.interval_scale=log",
        # A default written out.
        *("loss.weight=0.30", "seed=1", "trainer.weight_decay=1e-2"),
    ],
)
def test_what_changes_no_result_is_left_out(override: str, composed) -> None:
    assert run_id(composed(override)) == run_id(composed())


@pytest.mark.parametrize(
    ("given", "idle", "used"),
    [
        ("loss=ce", "loss.weight=2", "loss=ntl_was"),
        ("trainer.schedule=linear", "trainer.patience=2", "trainer.schedule=plateau trainer.eval_steps=10"),
        ("tokenizer=digit", "tokenizer.paper_compat=true", "model=xval_tiny tokenizer=xval"),
    ],
)
def test_a_setting_without_effect_makes_no_other_run(given: str, idle: str, used: str, composed) -> None:
    assert composed(*given.split(), idle) == composed(*given.split())
    assert run_id(composed(*used.split(), idle)) != run_id(composed(*used.split()))


def test_the_paper_s_xval_is_another_run(composed) -> None:
    corrected, paper = composed("model=xval_tiny"), composed("model=xval_tiny", "paper_compat=true")
    assert run_id(corrected) != run_id(paper)
    assert (paper.model.paper_compat, paper.tokenizer.paper_compat) == (True, True)
    assert (corrected.model.paper_compat, corrected.tokenizer.paper_compat) == (False, False)


def test_a_new_key_with_a_default_keeps_old_ids(composed) -> None:
    @dataclass
    class Later(TrainerConfig):
        invented: int = 3
        options: dict[str, int] = field(default_factory=dict)

    config = composed()
    later = replace(config, trainer=Later(**vars(config.trainer)))
    assert identity_fields(later) == identity_fields(config)
    later.trainer.invented = 4  # pyright: ignore[reportAttributeAccessIssue]
    assert identity_fields(later) != identity_fields(config)


def _weights(folder: Path, content: str = "weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").write_text(content)
    return folder


@pytest.fixture
def id_with(composed) -> Callable[..., str]:
    def make(path: str | Path, tokenizer: str | Path = "") -> str:
        config = composed("model=gpt2_small")
        config.model.path, config.tokenizer.path = str(path), str(tokenizer)
        return run_id(config)

    return make


def test_a_local_folder_counts_by_its_content(id_with, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = id_with(_weights(Path("models/m")))
    assert id_with("./models/m") == id_with(tmp_path / "models/m") == id_with("models/../models/m/") == first
    assert id_with(shutil.copytree("models/m", "copied/to/elsewhere")) == first
    # Two checkpoints of one name, as two runs have them.
    one, other = (_weights(tmp_path / run / "checkpoint-500", content=run) for run in "ab")
    assert len({first, id_with(one), id_with(other)}) == 3
    _weights(Path("models/m"), content="weighty")  # of the same size
    assert id_with("models/m") != first


def test_every_file_that_is_read_counts_and_no_other(id_with, tmp_path: Path) -> None:
    folder = _weights(tmp_path / "m")
    first = id_with(folder)
    (folder / "README.md").write_text("about")
    (folder / "training_args.bin").write_text("")
    assert id_with(folder) == first
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        before = id_with(folder)
        (folder / name).write_text('{"changed": 1}')
        assert id_with(folder) != before, name


def test_a_hub_id_counts_in_full_and_a_folder_without_weights_has_no_id(id_with, tmp_path: Path) -> None:
    assert id_with("me/model") != id_with("you/model")
    with pytest.raises(UserError, match=r"model\.path=.*: no config\.json in this folder"):
        id_with(tmp_path)


def test_a_record_names_folders_by_content_and_leaves_out_shapes_that_were_not_used(composed, tmp_path: Path) -> None:
    config = composed("model=t5_base")
    config.model.path = str(_weights(tmp_path / "m"))
    model = recorded(config)["model"]
    assert model["path"].startswith("sha256:")
    assert (model["name"], model["dropout"]) == ("t5_base", None)
    assert not {"d_model", "num_layers", "vocab_size"} & model.keys()
    config.model.path, config.model.pretrained = "", False
    assert recorded(config)["model"]["num_layers"] == 12


# Lengths in epochs, and what of the training is part of a run's id.


def steps(rows: int, processes: int = 1, **settings: float) -> tuple[int, int, int]:
    found = in_steps(TrainerConfig(**settings), rows, processes)  # pyright: ignore[reportArgumentType]
    return found.max_steps, found.eval_steps, found.warmup_steps


def test_epochs_in_steps_by_hand() -> None:
    # 96 rows in batches of 30 are 4 steps, the last of 6 rows; three epochs are three times that.
    assert steps(96, batch_size=30, epochs=3.0, eval_epochs=0.5, warmup_ratio=0.1) == (12, 2, 2)
    assert steps(96, batch_size=16, accumulation_steps=2, epochs=2.5, eval_epochs=1.0) == (8, 3, 0)
    assert steps(96, 2, batch_size=16, epochs=1.0) == (3, 0, 0)
    assert steps(960, batch_size=32, epochs=0.1) == (3, 0, 0)  # 0.1 * 30 is more than 3 in floats
    assert steps(10**7, batch_size=1, epochs=1e-7) == (1, 0, 0)
    assert steps(96, max_steps=50, warmup_ratio=0.5, eval_steps=7) == (50, 7, 25)


@given(rows=st.integers(1, 10**6), batch=st.integers(1, 64), more=st.integers(1, 8), epochs=st.integers(1, 9))
def test_whole_epochs_read_every_row_that_often(rows: int, batch: int, more: int, epochs: int) -> None:
    one, _, _ = steps(rows, batch_size=batch, accumulation_steps=more, epochs=1.0)
    assert (one - 1) * batch * more < rows <= one * batch * more
    assert steps(rows, batch_size=batch, accumulation_steps=more, epochs=float(epochs))[0] == epochs * one


def test_steps_that_follow_from_epochs_are_not_part_of_the_id(composed: Callable[..., Config]) -> None:
    long = composed("trainer.epochs=2", "trainer.eval_epochs=1", "trainer.warmup_ratio=0.1")
    name = run_id(long)
    long.trainer = in_steps(long.trainer, 10_000)
    assert run_id(long) == name != run_id(composed())
    assert name != run_id(composed("trainer.epochs=3", "trainer.eval_epochs=1", "trainer.warmup_ratio=0.1"))


def test_a_number_of_steps_that_is_typed_wins_over_the_epochs_of_a_scale(composed: Callable[..., Config]) -> None:
    words = ["dataset=noisy_numbers", "scale=finetune"]
    assert (composed(*words).trainer.epochs, composed(*words).trainer.warmup_ratio) == (3, 0.1)
    chosen = compose([*words, "trainer.max_steps=0"]).trainer
    assert (chosen.epochs, chosen.max_steps, chosen.eval_epochs) == (0, 0, 1)
    assert compose(["trainer.epochs=2"]).trainer.epochs == 2  # although scale=tiny has a number of steps


def test_a_decoding_that_chooses_the_checkpoint_is_part_of_the_id(composed: Callable[..., Config]) -> None:
    def name(*overrides: str) -> str:
        return run_id(composed("trainer.eval_steps=5", *overrides))

    assert name("trainer.best=accuracy") != name("trainer.best=accuracy", "decoding=beam")
    intervals = "decoding.interval_rows=9", "decoding.interval_scale=log"  # they choose none
    assert name("trainer.best=accuracy") == name("trainer.best=accuracy", *intervals)
    assert name("trainer.best=loss") == name("trainer.best=loss", "decoding=beam") != name()
    assert is_decoded(composed("trainer.eval_steps=5", "trainer.best=mae").trainer)
    assert not is_decoded(composed("trainer.eval_steps=5", "trainer.best=loss").trainer)
