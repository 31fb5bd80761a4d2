"""What a tracker is told, seen by TensorBoard's: metrics, the table of predictions, decodings; and a sweep's group."""

import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ntl.config import UserError
from ntl.config.folders import CONFIG_DIR
from ntl.evaluation import write_predictions
from ntl.results import read_record
from ntl.training import run
from ntl.training.predictor import predict
from ntl.training.tracking import sample


class _Writer:
    """In place of TensorBoard's SummaryWriter: keeps what it was told."""

    told: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, folder: str, purge_step: int) -> None:
        self.told.append(("folder", folder, purge_step))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))

    def add_text(self, name: str, text: str, step: int) -> None:
        self.told.append((name, text, step))

    def close(self) -> None:
        self.told.append(("closed",))


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> type[_Writer]:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=_Writer))
    monkeypatch.setattr(_Writer, "told", [])
    return _Writer


def test_a_whole_run_in_tensorboard(writer: type[_Writer], small) -> None:
    path = run(small("tracking=tensorboard"))
    told, record = {entry[0]: entry[1:] for entry in writer.told}, read_record(path)
    assert told["folder"] == (str(path.parent), 1)
    assert [entry[2] for entry in writer.told if entry[0] == "train/digit_accuracy"] == [4, 8, 12]
    assert told["validation/ntl_was"] == (pytest.approx(record.metrics["validation/ntl_was"], rel=1e-9), 12)
    assert told["test/accuracy"] == (record.metrics["test/accuracy"], 12)
    assert f'"parameters": {record.model["parameters"]}' in told["config"][0]
    header, _, *rows = told["test/predictions"][0].splitlines()
    assert header == "| question | target | answer | error |"
    assert len(rows) == 30, "all that there are, of at most 100"
    assert writer.told[-1] == ("closed",)


def test_a_resumed_run_hides_what_was_logged_after_its_checkpoint(writer, small, run_interrupted) -> None:
    config = small("tracking=tensorboard")
    run_interrupted(config, 9)
    assert writer.told[-1] == ("closed",)
    writer.told.clear()
    path = run(config)
    assert writer.told[0] == ("folder", str(path.parent), 10)


def test_without_tensorboard_one_line_and_no_folder(small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.metadata.requires", lambda name: ["tensorboard>=2; extra == 'tensorboard'"])
    remedy = r"^tensorboard is not installed; run pip install -e '\.\[tensorboard\]' in the clone\.$"
    with pytest.raises(UserError, match=remedy):
        run(small("tracking=tensorboard"))
    assert list(tmp_path.glob("outputs/noisy*")) == []


def test_the_table_of_predictions_by_hand(parts, tmp_path: Path) -> None:
    made = parts()
    texts = made.rows("test")
    rows = [
        {"split": "test", "id": row["id"], "answer": row["answer"], "prediction": prediction}
        for row, prediction in zip(texts, ["7", "no number", *["1"] * 28], strict=True)
    ]
    header = {"schema": 1, "dataset": "noisy_numbers", "metrics": "number", "decoding": {}, "baselines": {}}
    write_predictions(tmp_path / "p.jsonl", header, rows)
    first, second, *rest = sample(made, tmp_path / "p.jsonl")
    assert first == (texts[0]["question"], texts[0]["answer"], "7", abs(7 - float(texts[0]["answer"])))
    assert second == (texts[1]["question"], texts[1]["answer"], "no number", None)
    assert [row[0] for row in rest] == [row["question"] for row in list(texts)[2:]]


def test_a_decoding_of_a_finished_run_is_a_run_of_its_own(finished: Path, writer, monkeypatch) -> None:
    path = predict(finished, ["decoding.num_beams=2", "tracking=tensorboard"], say=lambda line: None)
    told = {entry[0]: entry[1:] for entry in writer.told}
    assert told["folder"][0] == str(finished / f"{finished.name}-{path.stem}")
    assert {"config", "test/mae", "test/predictions"} <= told.keys()


def test_the_runs_of_a_sweep_are_a_group_named_by_what_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    import hydra

    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # train.py sets it for good
    main = runpy.run_path(str(CONFIG_DIR.parent / "train.py"))["main"]
    monkeypatch.setattr(hydra, "main", lambda **_: lambda task: lambda: None)
    for words, group in (
        (["-m", "loss=ce,ntl_was", "device=cpu", "seed=1,2"], "loss=ce,ntl_was seed=1,2"),
        (["loss=ce", "keep_steps=[1,2]"], None),
    ):
        monkeypatch.setattr(os, "environ", {**os.environ, "WANDB_RUN_GROUP": ""})
        del os.environ["WANDB_RUN_GROUP"]
        monkeypatch.setattr(sys, "argv", ["train.py", *words])
        main()
        assert os.environ.get("WANDB_RUN_GROUP") == group
