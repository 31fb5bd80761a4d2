from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fake_runs import run
from safetensors.torch import save_file

from ntl.config import UserError, compose, run_id
from ntl.launch.demand import demands, missing, place
from ntl.results import load_records


def test_runs_by_id_and_what_lacks_a_record(small_table: Path, tmp_path: Path) -> None:
    (demand,) = demands([str(small_table)], "tiny", [])
    assert len(demand.runs) == 4
    assert all(run_id(config) == key for key, config in demand.runs.items())
    assert set(demand.lacking.values()) == set(demand.runs)

    first, key = next(iter(demand.lacking.items()))
    place = f"output_dir={tmp_path}"
    run(compose([*first, place]), overrides=[*first, place])
    (after,) = demands([str(small_table)], "tiny", load_records([tmp_path]))
    assert after.runs.keys() == demand.runs.keys()
    assert set(demand.lacking.values()) - set(after.lacking.values()) == {key}


def test_a_run_of_two_tables_is_one(make_table: Callable[..., Path], tmp_path: Path) -> None:
    pair = demands([str(make_table("one", 1, 2)), str(make_table("two", 2, 3))], "tiny", [])
    shared = pair[0].runs.keys() & pair[1].runs.keys()
    assert len(shared) == 2
    ids = [run.id for run in missing(pair, tmp_path)]
    assert len(ids) == len(set(ids)) == 6


def test_a_table_without_the_scale_is_skipped_with_a_line(small_table: Path) -> None:
    lines: list[str] = []
    (demand,) = demands([str(small_table), "table8"], "paper", [], lines.append)
    assert demand.spec.name == "table8"
    assert lines == ["small: nothing at scale=paper, skipped; it has tiny."]
    with pytest.raises(UserError, match=r"nothing at scale=paper; choose from tiny[.]$"):
        demands([str(small_table)], "paper", [], lines.append)


def test_the_default_folder_is_not_among_the_overrides() -> None:
    assert place(Path("outputs")) is None
    assert place(Path("elsewhere")) == Path("elsewhere")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.weight=0.5", "small sets loss.weight itself, in the row 'NTL-WAS'; leave it out, .*table=FILE.yaml"),
        ("loss=gce", "small sets loss itself, in every row; .*"),
        ("model=t5_tiny", "small sets model itself, in every row; .*"),
        ("model.name=t5_tiny", "small sets model.name itself, in every row; .*"),
        ("dataset=gsm8k", "small sets dataset itself, in every row; .*"),
    ],
)
def test_what_rows_pin_is_not_overridden(override: str, message: str, small_table: Path) -> None:
    with pytest.raises(UserError, match=f"^{override}: {message}"):
        demands([str(small_table)], "tiny", [], overrides=[override])


def test_of_many_rows_that_pin_a_setting_some_are_named() -> None:
    with pytest.raises(UserError, match=r"in the rows 'CE \+ digit CE \(control\)', 'NTL-MSE, .* 8 more;"):
        demands(["table2"], "tiny", [], overrides=["loss.weight=0.5"])
    with pytest.raises(UserError, match=r"table2 sets model\.pretrained itself, in every row"):
        demands(["table2"], "small", [], overrides=["model.pretrained=true"])


def test_what_the_scale_sets_is_overridden_and_is_in_the_ids(small_table: Path) -> None:
    """A recipe's values, those of the scale's own file and places, on top of what the rows say."""
    overrides = ["trainer.lr=1e-4", "dataset.train_rows=50", "dataset.seed=${seed}", "data_dir=elsewhere"]
    (plain,), (other,) = (demands([str(small_table)], "tiny", [], overrides=words) for words in ([], overrides))
    assert len(plain.runs) == len(other.runs) == 4
    assert not plain.runs.keys() & other.runs.keys()
    for config in other.runs.values():
        assert (config.trainer.lr, config.data_dir) == (1e-4, "elsewhere")
        assert (config.dataset.train_rows, config.dataset.seed) == (50, config.seed)
    # Said again what the config says anyway, it is the table's own run.
    (same,) = demands([str(small_table)], "tiny", [], overrides=["trainer.bf16=false"])
    assert same.runs.keys() == plain.runs.keys()


def test_neither_table_takes_the_records_of_the_other(small_table: Path, tmp_path: Path) -> None:
    def lacking(*overrides: str) -> int:
        (demand,) = demands([str(small_table)], "tiny", load_records([tmp_path]), overrides=overrides)
        return len(demand.lacking)

    (other,) = demands([str(small_table)], "tiny", [], overrides=["trainer.lr=1e-4"])
    for overrides in other.lacking:
        words = [*overrides, f"output_dir={tmp_path}"]
        run(compose(words), overrides=words)
    assert (lacking(), lacking("trainer.lr=1e-4"), lacking("trainer.lr=0.0001")) == (4, 0, 0)
    assert lacking("trainer.lr=1e-4", "trainer.bf16=true") == 4
    (plain,) = demands([str(small_table)], "tiny", [])
    words = [*next(iter(plain.lacking)), f"output_dir={tmp_path}"]
    run(compose(words), overrides=words)
    assert (lacking(), lacking("trainer.lr=1e-4"), lacking("trainer.bf16=true")) == (3, 0, 4)


def test_one_models_files_are_for_rows_of_one_model(make_table: Callable[..., Path], tmp_path: Path) -> None:
    ours, folder = make_table("ours", 1), tmp_path / "weights"
    folder.mkdir()
    path = f"model.path={folder}"
    two = ours.with_stem("two")
    two.write_text(ours.read_text().replace("gpt2_tiny", "llama_tiny"))
    for override in (path, f"tokenizer.path={folder}"):
        with pytest.raises(UserError, match=r"one model's files, and the rows have 2 \(gpt2_tiny, llama_tiny\);"):
            demands([str(ours), str(two)], "tiny", [], overrides=[override])
    pretrained = [path, "model.pretrained=true"]
    with pytest.raises(UserError, match=r"no config\.json in this folder"):
        demands([str(ours)], "tiny", [], overrides=pretrained)
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"):
        demands([str(ours)], "tiny", [], overrides=pretrained)
    save_file({"wte": torch.zeros(2, 3)}, folder / "model.safetensors")
    for name in ("vocab.json", "merges.txt"):
        (folder / name).write_text("{}")
    (demand,) = demands([str(ours)], "tiny", [], overrides=pretrained)
    assert all(config.model.path == str(folder) and config.model.pretrained for config in demand.runs.values())
    # A stand-in is made from scratch: its weights would not be read.
    with pytest.raises(UserError, match=r"the weights in it are not read with model\.pretrained=false"):
        demands([str(ours)], "tiny", [], overrides=[path])


def test_a_hub_s_weights_that_are_not_read_are_told(make_table: Callable[..., Path]) -> None:
    lines: list[str] = []
    demands([str(make_table("ours", 1))], "tiny", [], lines.append, ["model.hub_id=owner/name"])
    assert lines == [
        "model.hub_id=owner/name: its tokenizer alone is read, not its weights: these runs have model.pretrained=false."
    ]
