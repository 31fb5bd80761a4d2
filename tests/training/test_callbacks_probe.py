"""A probe looks at a model while it trains, and leaves no trace in it."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ntl.config import UserError, compose, run_id
from ntl.decoding.batches import Answer
from ntl.results import read_record
from ntl.training import run
from ntl.training.callbacks import probe
from ntl.training.parts import RunParts
from ntl.training.tracking import METRICS


def probes(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [line for line in lines if "probe" in line]


def weights(folder: Path):
    return load_file(folder / "checkpoints" / "checkpoint-12" / "model.safetensors")


@pytest.mark.slow
def test_the_same_weights_with_and_without_and_after_a_resume(settings, tmp_path: Path) -> None:
    # With dropout: a probe that drew random numbers would change every later step.
    words = settings("model.dropout=0.3", dataset="multiplication")
    folders = []
    for name, steps in (("without", 0), ("with", 4)):
        config = compose([*words, f"output_dir={tmp_path / name}", f"probe_steps={steps}"])
        folders.append(run(config).parent)
    without, probed = folders
    assert without.name == probed.name
    assert probes(without) == []
    assert [line["step"] for line in probes(probed)] == [4, 8, 12]
    expected = weights(without)
    assert all((tensor == expected[key]).all() for key, tensor in weights(probed).items())
    assert read_record(without / "record.json").metrics == read_record(probed / "record.json").metrics
    curves = read_record(probed / "record.json").curves
    named = {f"probe_mape/{group}" for line in probes(probed) for group in line["probe"]}
    assert {name for name in curves if name.startswith("probe")} == named
    # The history of a checkpoint has the probes before it: a resumed run has each of them once.
    before = probes(probed)
    (probed / "record.json").unlink()
    checkpoint = f"resume={probed / 'checkpoints' / 'checkpoint-6'}"
    run(compose([*words, f"output_dir={tmp_path / 'with'}", "probe_steps=4", checkpoint]))
    assert probes(probed) == before


def test_twenty_examples_of_each_group_and_their_error(small, tmp_path: Path, monkeypatch) -> None:
    sizes = ["dataset.test_rows_per_cell=25", "dataset.max_digits=2", "dataset.extrapolate_digits=3"]
    config = small(*sizes, dataset="multiplication")
    parts = RunParts(config, say=lambda line: None)
    made = probe(parts, 4, tmp_path / METRICS)
    assert {group: made.groups.count(group) for group in made.groups} == {"1x1": 16, "1x2": 20, "2x1": 20, "2x2": 20}
    # Answers of which every second is 10 % too large, and no number at all in one group.
    written = [
        "none" if group == "2x2" else str(1.1 * int(answer)) if index % 2 else answer
        for index, (group, answer) in enumerate(zip(made.groups, made.answers, strict=True))
    ]
    answers = [Answer(text, []) for text in written]
    monkeypatch.setattr("ntl.training.callbacks.decode", lambda *args, **kwargs: answers)
    assert made.mape() == pytest.approx({"1x1": 5.0, "1x2": 5.0, "2x1": 5.0})


def test_a_probe_is_no_part_of_the_run_s_name(small) -> None:
    assert run_id(small("probe_steps=7")) == run_id(small())


@pytest.mark.parametrize("overrides", [["dataset=gsm8k"], ["model=gpt2_tiny_regression"]])
def test_where_there_is_nothing_to_probe_one_line_says_so(overrides: list[str]) -> None:
    with pytest.raises(UserError, match="probe_steps=5: a probe is the relative error of generated numbers"):
        compose([*overrides, "probe_steps=5"])
