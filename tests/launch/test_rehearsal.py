"""Rows are tried before they are trained: each with a resume, an evaluation and answers, and a line that says how."""

import re
import runpy
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, SMALL, table_text

from ntl.launch.plan import Run, demands
from ntl.launch.rehearsal import rehearse
from ntl.launch.workers import sweep_all
from ntl.results.spec import load_table_spec, table_names

main = runpy.run_path(str(ROOT / "scripts" / "reproduce.py"))["main"]
OK = re.compile(r" *[\d.]+ s  noisy_numbers-gpt2_tiny-(\w+)-s1-\w+ ok")


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """``said(*words)``: the exit code and the lines of a command on a table of CE and NTL-WAS, ``broken`` between."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, broken: bool = False) -> tuple[int, list[str]]:
        Path("small.yaml").write_text(table_text([1, 2], SMALL, broken=broken))
        code = main(["table=small.yaml", "launcher=basic", *words])  # in this process
        return code, capsys.readouterr().out.splitlines()

    return call


def test_a_line_for_each_row_and_nothing_is_left(said: Callable[..., Any], tmp_path: Path) -> None:
    code, (*lines, last) = said("--rehearse")
    assert code == 0
    assert [OK.sub(r"\1", line) for line in lines] == ["ce", "ntl_was"]
    assert last == "2 ok, for 4 runs."
    assert {path.name for path in tmp_path.iterdir()} == {"small.yaml", "data"}


def test_a_row_that_fails_is_told_and_its_folder_stays(said: Callable[..., Any], tmp_path: Path) -> None:
    code, lines = said("--measure", "2", broken=True)
    assert code == 1
    assert [OK.sub(r"\1", line) for line in (lines[0], lines[3])] == ["ce", "ntl_was"]
    assert lines[1].endswith("failed: device=cuda: torch sees no CUDA device here; use device=cpu or device=auto.")
    (scratch,) = tmp_path.glob("rehearsal-*")
    assert lines[2].startswith(f"  log: {scratch}/")
    assert Path(lines[2].removeprefix("  log: ")).is_file()
    assert lines[4] == f"1 of 3 failed; what they left is in {scratch.name}"
    hours = {line.split()[2]: line.split()[-2] for line in lines if line.lstrip().startswith("noisy_numbers gpt2_tiny")}
    assert hours.pop("ce_digits") == "unknown"
    assert {float(each) > 0 for each in hours.values()} == {True}


def test_one_that_is_stopped_leaves_nothing(said: Callable[..., Any], tmp_path: Path, monkeypatch) -> None:
    def stopped(*runs: Any, **settings: Any) -> None:
        assert [*tmp_path.glob("rehearsal-*")]
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("ntl.launch.workers.sweep_all", stopped)
    before = signal.signal(signal.SIGTERM, lambda number, frame: pytest.fail("it would end at once"))
    try:
        with pytest.raises(KeyboardInterrupt):
            said("--rehearse")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not [*tmp_path.glob("rehearsal-*")]


@pytest.mark.parametrize("words", ["--shapes tiny", "--shapes tiny --measure 4", "--measure 1", "--measure -2"])
def test_bad_input(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(words.split())
    told = (
        "--shapes tiny is for --rehearse: " if "tiny" in words else f"{words}: the second half of the steps is measured"
    )
    assert told in capsys.readouterr().err


def different(runs: Sequence[Run]) -> list[Run]:
    """Those that add a loss or an objective of a model, or a decoding of a data set: all would take ten minutes."""
    found = dict[Any, Run]()
    for run in runs:
        config, model = run.config, run.config.model
        found.setdefault(
            (model.family, getattr(model, "architecture", ""), config.loss.name, config.objective.name), run
        )
        found.setdefault((config.dataset.name, config.decoding.name, *config.extra_decodings), run)
    return [*{run.id: run for run in found.values()}.values()]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_table(data_root: Path, tmp_path: Path) -> None:
    """With tiny models, at the paper's scale where the table has it."""
    words, runs = [f"data_dir={tmp_path}/data"], list[Run]()
    for name in table_names():
        scales = load_table_spec(name).scales
        scale = "paper" if "paper" in scales else scales[-1]
        (demand,) = demands([name], scale, [], tmp_path, words)
        runs += demand.runs.values()
    # The training jokes are not to be had offline.
    jokes = ("dataset.allow_dev_training=true",)
    runs = [Run.of([*run.overrides, *jokes]) if run.config.dataset.name == "rjokes" else run for run in different(runs)]
    lines = list[str]()

    def launch(runs: Sequence[Run]) -> list[str]:
        return sweep_all(runs, "basic", say=lambda line: None)

    rates, failed = rehearse(runs, launch, tmp_path, tiny=True, say=lines.append)
    assert not failed, lines
    assert len(rates) == len(runs) > 40
