"""Runs of a second: 96 examples, a model of a few thousand parameters."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ntl.config import Config, compose, run_id
from ntl.config.folders import CONFIG_DIR
from ntl.config.model import T5Config
from ntl.data.prepared import Prepared
from ntl.results import RunRecord, read_record

DATASETS = {
    "noisy_numbers": ["dataset.seed=0", "dataset.train_rows=96", "dataset.validation_rows=20", "dataset.test_rows=30"],
    "multiplication": ["dataset.train_rows=96", "dataset.validation_rows=20", "dataset.test_rows_per_cell=4"],
}
SMALL = [
    *("model.n_embd=16", "model.n_layer=1", "trainer.batch_size=16", "trainer.max_steps=12", "trainer.warmup_steps=2"),
    *("trainer.save_steps=6", "trainer.keep_checkpoints_after=2", "trainer.logging_steps=4"),
    *("tracking=none", "device=cpu"),
]


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data, tokenizers and encodings, shared by all tests."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def settings(data_dir: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """The command line of a run of a second; what is added wins."""

    def make(*overrides: str, dataset: str = "noisy_numbers") -> list[str]:
        data = [f"dataset={dataset}", *DATASETS[dataset]]
        places = [f"data_dir={data_dir}", f"output_dir={tmp_path / 'outputs'}"]
        return [*data, *SMALL, *places, *overrides]

    return make


@pytest.fixture
def small(settings: Callable[..., list[str]]) -> Callable[..., Config]:
    """The config that this command line composes; ``family="t5"`` makes a model of it that is as small."""

    def make(*overrides: str, family: str = "decoder", **options: str) -> Config:
        config = compose(settings(*overrides, **options))
        if family == "t5":
            shape = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
            config.model = T5Config(name="t5_tiny", pretrained=False, dropout=0.0, **shape)
        return config

    return make


@pytest.fixture
def parts(small: Callable[..., Config]) -> Callable[..., Any]:
    """``parts(*overrides)``: the parts of the run of this command line."""

    def make(*overrides: str, **options: str) -> Any:
        from ntl.runs.parts import RunParts

        return RunParts(small(*overrides, **options))

    return make


@pytest.fixture
def command() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """``command("train.py", *words)``: a script of the repository that ran to its end."""

    def run(script: str, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        program = [sys.executable, str(CONFIG_DIR.parent / script), *words]
        return subprocess.run(program, capture_output=True, text=True, timeout=300, **options)

    return run


@pytest.fixture
def prepared() -> Callable[[Config], Path]:
    """The folder of a config's prepared data; other settings of the same data set may lie beside it."""
    return lambda config: Prepared(config.dataset, config.data_dir).folder


@pytest.fixture(scope="session")
def train_once(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``train_once(*overrides)``: the folder of a finished run of the ``small`` config, trained at the first call."""
    folders: dict[tuple[str, ...], Path] = {}

    def make(*overrides: str) -> Path:
        from ntl.training.train import train

        if overrides not in folders:
            data = ["dataset=noisy_numbers", *DATASETS["noisy_numbers"], f"data_dir={data_dir}"]
            config = compose([*data, *SMALL, f"output_dir={tmp_path_factory.mktemp('trained')}", *overrides])
            folders[overrides] = train(config, ["loss=ntl_was", *overrides]).parent
        return folders[overrides]

    return make


@pytest.fixture(scope="session")
def trained_once(train_once: Callable[..., Path]) -> Path:
    """The folder of one finished run, which no test may change."""
    return train_once()


@pytest.fixture
def copy_of(train_once: Callable[..., Path], small: Callable[..., Config]) -> Callable[..., Path]:
    """``copy_of(*overrides)``: a finished run among the test's own outputs, the test's own to change."""

    def copy(*overrides: str) -> Path:
        trained, config = train_once(*overrides), small(*overrides)
        assert run_id(config) == trained.name
        return Path(shutil.copytree(trained, Path(config.output_dir) / trained.name))

    return copy


@pytest.fixture
def finished(copy_of: Callable[..., Path]) -> Path:
    """A finished run of the ``small`` config, the test's own to change."""
    return copy_of()


@pytest.fixture
def without_times() -> Callable[[Path], RunRecord]:
    """The record in a file, less what two runs that compute the same may differ in; a source tree may be edited."""
    return lambda path: replace(read_record(path), wall_time_s=0.0, peak_memory_bytes=0, overrides=[], git={})


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is checked for no row of a table: reading the specs of all tables takes seconds."""
    monkeypatch.setattr(import_module("ntl.results.check_record"), "table_names", lambda: [])


@pytest.fixture
def second_rank() -> Callable[[], Any]:
    """``with second_rank():`` this process is the second of two that torchrun has started."""
    given = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    return lambda: patch.dict(os.environ, given)


@pytest.fixture
def run_interrupted() -> Callable[..., None]:
    """``run_interrupted(config, step)``: the run as Ctrl-C, or other signals, in its step ``step`` leave it."""

    def start(config: Config, step: int, *signals: signal.Signals) -> None:
        from ntl.training.train import train
        from ntl.training.trainer import ObjectiveTrainer

        original = ObjectiveTrainer.training_step
        left = list(signals or [signal.SIGINT])

        def interrupted(self, *args, **kwargs):
            while left and self.state.global_step == step - 1:  # a step may have several batches
                signal.raise_signal(left.pop(0))
            return original(self, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ObjectiveTrainer, "training_step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                train(config)

    return start
