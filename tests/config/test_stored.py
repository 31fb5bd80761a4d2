"""A run folder's config comes back as it was, apart from what may change."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from ntl.config import UserError, compose, run_id
from ntl.config.composition import from_values, read_config
from ntl.config.folders import CONFIG_DIR, RESULTS, choices
from ntl.config.model import other_shape
from ntl.config.targets import locate
from ntl.results import read_record


@pytest.fixture
def written(tmp_path: Path, composed) -> Callable[..., Path]:
    """A run folder with the config of these overrides."""

    def write(*overrides: str) -> Path:
        run = tmp_path / "run"
        run.mkdir()
        OmegaConf.save(OmegaConf.structured(composed(*overrides)), run / "config.yaml")
        return run

    return write


STORED = [(group, name) for group in ("model", "loss", "dataset", "decoding") for name in choices(group)]


@pytest.mark.soak
@pytest.mark.parametrize(("group", "name"), STORED)
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
