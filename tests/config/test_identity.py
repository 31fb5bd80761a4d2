"""A run's id names what it computes, and stays what it was; its stored config comes back."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from ntl.config import Config, TrainerConfig, UserError, compose, run_id
from ntl.config.composition import from_values, read_config
from ntl.config.folders import CONFIG_DIR, RESULTS, choices
from ntl.config.identity import identity_fields, recorded
from ntl.config.model import other_shape
from ntl.config.targets import locate
from ntl.config.trainer import in_steps, is_decoded
from ntl.results import read_record

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


# ---- a run folder's config comes back as it was, apart from what may change


@pytest.fixture
def written(tmp_path: Path, composed) -> Callable[..., Path]:
    """A run folder with the config of these overrides."""

    def write(*overrides: str) -> Path:
        run = tmp_path / "run"
        run.mkdir()
        OmegaConf.save(OmegaConf.structured(composed(*overrides)), run / "config.yaml")
        return run

    return write


CHOICES = [(group, name) for group in ("model", "loss", "dataset", "decoding") for name in choices(group)]


@pytest.mark.soak
@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_survives(group: str, name: str, composed, written, words) -> None:
    config, stored = composed(*words(group, name)), read_config(written(*words(group, name)))
    assert type(getattr(stored, group)) is type(getattr(config, group))
    assert getattr(stored, group) == getattr(config, group)
    assert run_id(stored) == run_id(config)


def test_the_data_of_a_run_is_where_it_was_made(tmp_path: Path, composed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where its command is called; unless it is not there, as where the folder was moved."""
    made, moved, here = (tmp_path / folder for folder in ("outputs/run", "moved/run", "elsewhere"))
    for folder in (made, moved, here):
        folder.mkdir(parents=True)
        config = composed("output_dir=outputs", "data_dir=data")
        OmegaConf.save(OmegaConf.structured(config), folder / "config.yaml")
    monkeypatch.chdir(here)
    assert read_config(made).data_dir == "data"
    (tmp_path / "data").mkdir()
    assert read_config(made).data_dir == read_config(Path("../outputs/run")).data_dir == str(tmp_path / "data")
    assert read_config(made, ["data_dir=other"]).data_dir == "other"
    assert read_config(moved).data_dir == "data"


@pytest.mark.slow
def test_decoding_may_change_and_the_folder_be_moved(tmp_path: Path, written) -> None:
    run = written("decoding=beam", "extra_decodings=expectation", "extra_decodings.expectation.num_beams=7")
    assert read_config(run, ["decoding.num_beams=1"]).decoding.num_beams == 1
    assert read_config(run, ["decoding=greedy"]).decoding.name == "greedy"
    late = read_config(run, ["decoding.num_beams=2", "decoding=beam"])  # as Hydra: a group, then its settings
    assert (late.decoding.name, late.decoding.num_beams) == ("beam", 2)
    assert read_config(run, ["device=cpu", "data_dir=elsewhere"]).data_dir == "elsewhere"
    tree: Any = read_config(run, ["decoding=median", "decoding.trim=0", "decoding.num_beams=7"]).decoding
    assert (tree.name, tree.num_beams, tree.trim) == ("median", 7, 0)
    with pytest.raises(UserError, match="name one choice"):
        read_config(run, ["decoding=[greedy,beam]"])
    stored = read_config(run)
    assert stored.output_dir == str(tmp_path)
    assert (type(stored.extra_decodings["expectation"]), stored.extra_decodings["expectation"].num_beams) == (
        type(tree),
        7,
    )


def test_the_former_name_of_extra_decodings_is_read(composed, written, tmp_path: Path) -> None:
    """In a command, and in the config and the record of a run: the run, and its id, are the same."""
    config = composed("extra_decodings=all", "extra_decodings.median.num_beams=7")
    assert composed("beside=readings", "beside.median.num_beams=7") == config
    assert composed("beside=[median,expectation]") == composed("extra_decodings=[median,expectation]")
    both = composed("decoding=mean", "extra_decodings=[mean,median]")  # as it is called in Python
    assert both == composed("decoding=expectation", "extra_decodings=[expectation,median]")
    path = written("extra_decodings=all", "extra_decodings.median.num_beams=7") / "config.yaml"
    path.write_text(path.read_text().replace("extra_decodings:", "beside:"))
    stored = read_config(path.parent)
    assert (stored.extra_decodings, run_id(stored)) == (config.extra_decodings, run_id(config))
    line = next(line for line in (RESULTS / "runs" / "arithmetic.jsonl").open() if '"beside":' in line)
    (tmp_path / "record.json").write_text(line)
    record = read_record(tmp_path / "record.json")
    assert "extra_decodings=expectation" in record.overrides
    assert [*record.config["extra_decodings"]] == ["expectation"]


def test_another_data_set_comes_at_the_run_s_scale_and_seed(written) -> None:
    data: Any = read_config(written("seed=3"), ["dataset=noisy_numbers", "dataset.test_rows=7"]).dataset
    assert (data.name, data.test_rows, data.seed) == ("noisy_numbers", 7, 3)


@pytest.mark.parametrize("override", ["trainer.lr=1", "loss=ce", "paper_compat=true"])
def test_what_was_trained_may_not_change(override: str, written) -> None:
    line = f"^{override}: only decoding, device, data_dir, dataset may be set for a trained run"
    with pytest.raises(UserError, match=line):
        read_config(written(), [override])


def test_the_folders_that_a_run_began_from_may_be_gone(written) -> None:
    folder = written("model=gpt2_small", "tokenizer.path=owner/name")
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("path: ''", "path: gone").replace("owner/name", "/also/gone"))
    stored = read_config(folder)
    assert (stored.model.path, stored.tokenizer.path) == ("gone", "/also/gone")


def test_a_decoding_is_checked_against_the_run_s_own_objective(written) -> None:
    assert read_config(written("objective=mtp"), ["decoding=speculative"]).decoding.name == "speculative"


def test_wrong_values_are_one_line(tmp_path: Path, composed, written) -> None:
    with pytest.raises(UserError, match=r"config\.yaml: no config of a run; give the folder of one"):
        read_config(tmp_path)
    run = written()
    with pytest.raises(UserError, match="must be at least 1"):
        read_config(run, ["decoding.num_beams=0"])
    for override in ("decoding.no_such=1", "decoding.num_beams=many"):
        with pytest.raises(UserError, match=f"^{override}: ") as caught:
            read_config(run, [override])
        assert "\n" not in str(caught.value)
    values: Any = OmegaConf.to_container(OmegaConf.structured(composed()))
    with pytest.raises(UserError, match="another version"):
        from_values({**values, "invented": 1}, "here")


def test_every_target_of_the_published_records_is_there() -> None:
    stored: set[str] = set()
    for path in (Path(__file__).resolve().parents[2] / "results" / "runs").glob("*.jsonl"):
        stored.update(re.findall(r'"(?:_target_|collator)":"([^"]+)"', path.read_text(encoding="utf-8")))
    assert "ntl.data.collate.masked_number_collator" in stored
    for name in stored:
        assert locate(name) is not None


# Given weights: the name and the family of ``model=hf``, the scale that they bring, and what is refused.


DATA = "dataset=noisy_numbers"


@pytest.fixture
def llama(save, tmp_path: Path) -> Path:
    return save(tmp_path / "llama", model_type="llama", architectures=["LlamaForCausalLM"])


@pytest.fixture
def hf() -> Callable[..., Any]:
    return lambda path, *more: compose([DATA, "model=hf", f"model.path={path}", *more])


def test_a_run_is_called_after_its_weights(hf, save, llama: Path, tmp_path: Path) -> None:
    config = hf(llama)
    assert config.model.name.startswith("llama_15k_")
    assert len(config.model.name) == len("llama_15k_1a2b3c4d")
    assert config.model.family == "decoder"
    other = save(tmp_path / "b", (135_000_000, 1), model_type="t5", is_encoder_decoder=True)
    assert (hf(other).model.name[:8], hf(other).model.family) == ("t5_135m_", "t5")
    assert hf(save(tmp_path / "c", (7,), model_type="qwen3")).model.name.startswith("qwen3_7_")


def test_own_dropout_unless_another_is_typed(hf, llama: Path) -> None:
    assert hf(llama).model.dropout is None
    # 0.1, the default of random weights, is another run than the weights' own.
    ids = {run_id(hf(llama, *more)) for more in ((), ("model.dropout=0.1",), ("model.dropout=0",))}
    assert len(ids) == 3
    assert compose(["model=t5_base", "scale=paper"]).model.dropout is None
    assert compose(["model=t5_base", "scale=paper", "model.pretrained=false"]).model.dropout == 0.1


OTHERS = ("_tiny", "_mini", "_regression", "xval", "hf")


def test_learned_weights_bring_their_scale_and_it_can_be_typed() -> None:
    for name in choices("model"):
        if not name.endswith(OTHERS):
            assert "override /scale: finetune" in (CONFIG_DIR / "model" / f"{name}.yaml").read_text(), name
    config = compose(["model=qwen3_5_0_8b"])
    assert (config.scale.name, config.trainer.lr) == ("finetune", 1e-4)
    assert compose(["model=qwen3_5_0_8b", "scale=paper"]).scale.name == "paper"
    with pytest.raises(UserError, match=r"model\.pretrained=false: scale=finetune .* scale=tiny.* scale=paper"):
        compose(["model=qwen3_5_0_8b", "model.pretrained=false", "model.dropout=0"])


def test_a_copy_of_a_published_checkpoint(save, tmp_path: Path) -> None:
    folder = save(tmp_path / "granite", model_type="granite")
    model = compose([DATA, "model=granite_3_2_2b", f"model.path={folder}"]).model
    assert (model.name, other_shape(model)) == ("granite_3_2_2b", "")
    small = save(tmp_path / "small", model_type="granite", hidden_size=16)
    line = other_shape(compose([DATA, "model=granite_3_2_2b", f"model.path={small}"]).model)
    assert line.endswith("weights of another shape (hidden_size is 16, not 2048); model=hf calls them what they are.")
