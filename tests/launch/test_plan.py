"""Which runs tables need, each once and bases first; and runs in worker processes."""

import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import fake_runs
import pytest
import torch
from commands import start, until
from fake_runs import EXITS, FAILS, KILLED, LASTS, TAKEN
from safetensors.torch import save_file

from ntl.config import UserError, compose, run_id
from ntl.launch import workers
from ntl.launch.plan import Run, demands, to_make, waves
from ntl.launch.workers import run_all, sweep_all
from ntl.results import load_records
from ntl.runs.folder import checkpoint_at, write_manifest
from ntl.system.machine import available_cores

NOISY = ["dataset=noisy_numbers", "loss=ce"]
BASE = "base='loss=ce trainer.max_steps=40@30'"
MakeTable = Callable[..., str]


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def finish(overrides: Sequence[str], outputs: Path) -> None:
    words = [*overrides, f"output_dir={outputs}"]
    fake_runs.run(compose(words), overrides=words)


def plan_runs(runs: Sequence[Sequence[str]], outputs: Path) -> list[Run]:
    return to_make(Run.of([*words, f"output_dir={outputs}"]) for words in runs)


def test_each_run_once_and_those_with_a_record_apart(tmp_path: Path) -> None:
    one, two = ([*NOISY, f"seed={seed}"] for seed in (1, 2))
    finish(two, tmp_path)
    todo = plan_runs([one, two, ["seed=1", *NOISY]], tmp_path)
    assert [run.folder for run in todo] == [tmp_path / run_id(compose(one))]
    again = plan_runs([[*two, "extra_decodings=expectation"], two], tmp_path)  # the larger request of two
    assert [list(run.config.extra_decodings) for run in again] == [["expectation"]]


def test_bases_come_before_the_runs_that_start_from_them(tmp_path: Path) -> None:
    base, long = [*NOISY, "trainer.max_steps=9"], [*NOISY, "trainer.max_steps=90"]
    arms = [["dataset=noisy_numbers", f"loss={loss}", "base='loss=ce trainer.max_steps=9@9'"] for loss in ("ce", "gce")]
    found = [[run.id for run in wave] for wave in waves(plan_runs([*arms, base, long], tmp_path))]
    assert found == [[run_id(compose(base))], [run_id(compose(words)) for words in (*arms, long)]]
    assert [len(wave) for wave in waves(plan_runs([base, long], tmp_path))] == [2]


def test_a_run_that_two_others_start_from_keeps_both_checkpoints(tmp_path: Path) -> None:
    words = [*NOISY, "trainer.max_steps=40"]
    (run,) = plan_runs([words, [*words, "keep_steps=[30]"], [*words, "keep_steps=[10]"]], tmp_path)
    assert run.config.keep_steps == compose(run.overrides).keep_steps == [10, 30]


# ---- tables


def test_runs_by_id_and_what_lacks_a_record(make_table: MakeTable, tmp_path: Path, caplog) -> None:
    table, outputs = make_table("small", 1, 2), tmp_path / "it's [x]{y},b=c"
    (demand,) = demands([table], "tiny", [], outputs)
    assert {run.id for run in demand.missing} == demand.runs.keys()
    assert len(demand.runs) == 4
    assert {run.folder.parent for run in demand.missing} == {outputs}  # any name reaches the config
    finish(demand.missing[0].overrides, tmp_path)
    (after,) = demands([table], "tiny", load_records([tmp_path]), outputs)
    assert (after.runs, after.missing) == (demand.runs, demand.missing[1:])
    # One that was decoded in another way, or made from a file that was edited since, is made again.
    record = load_records([tmp_path])[0]
    for group, setting in (
        ("decoding", {"max_new_tokens": 2}),
        ("dataset", {"train_rows": 7}),
        ("loss", {"kind": "gce"}),
    ):
        config = {**record.config, group: {**record.config[group], **setting}}
        for name in (record.id, "of-other-contents"):
            (edited,) = demands([table], "tiny", [replace(record, id=name, config=config)], outputs)
            assert edited.missing == demand.missing, (group, name)
        assert record.id in caplog.text
    (second,) = demands([table], "tiny", [], outputs, seeds=[2])
    assert {run.config.seed for run in second.runs.values()} == {2}
    with pytest.raises(UserError, match=r"^seeds=3: at scale=tiny small has 1, 2; choose from these\.$"):
        demands([table], "tiny", [], outputs, seeds=[2, 3])


@pytest.mark.slow
def test_a_table_without_the_scale_is_skipped_with_a_line(
    make_table: MakeTable, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table("small", 1)
    (demand,) = demands([table, "table8"], "paper", [], Path("outputs"))
    assert demand.spec.name == "table8"
    assert caplog.messages == ["small: nothing at scale=paper, skipped; it has tiny."]
    with pytest.raises(UserError, match=r"nothing at scale=paper; choose from tiny[.]$"):
        demands([table], "paper", [], Path("outputs"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss=gce", "loss=gce: small sets loss itself, as in the row 'CE'; leave it out, or write a table"),
        ("loss.weight=2", "loss.weight=2: small sets loss.weight itself, as in the row 'NTL-WAS'"),
        ("dataset=rjokes", "dataset=rjokes: small sets dataset itself"),
    ],
)
def test_what_a_row_fixes_cannot_be_set(override: str, message: str, make_table: MakeTable) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        demands([make_table("small", 1)], "tiny", [], Path("outputs"), [override])


def test_other_settings_make_another_table(make_table: MakeTable, tmp_path: Path) -> None:
    table, added = make_table("small", 1), ["trainer.lr=1e-4", "dataset.train_rows=50", "data_dir=elsewhere"]

    def missing(*overrides: str) -> int:
        (demand,) = demands([table], "tiny", load_records([tmp_path]), tmp_path, overrides)
        return len(demand.missing)

    (other,) = demands([table], "tiny", [], tmp_path, added)
    assert all(run.config.trainer.lr == 1e-4 and run.config.dataset.train_rows == 50 for run in other.runs.values())
    for run in other.missing:
        finish(run.overrides, tmp_path)
    assert (missing(), missing(*added), missing("trainer.lr=0.0001", added[1])) == (2, 0, 0)


def test_one_models_files_are_for_rows_of_one_model(make_table: MakeTable, tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    for name in ("config.json", "vocab.json", "merges.txt"):
        (folder / name).write_text("{}")
    save_file({"wte": torch.zeros(2, 3)}, folder / "model.safetensors")
    tables = [make_table("ours", 1), make_table("two", 1, overrides=["model=llama_tiny", "tokenizer=digit"])]
    with pytest.raises(UserError, match=r"one model's files, and the rows have 2 \(gpt2_tiny, llama_tiny\);"):
        demands(tables, "tiny", [], tmp_path, [f"model.path={folder}"])
    published = make_table("published", 1, overrides=["model=gpt2_small", "tokenizer=digit"])
    (demand,) = demands([published], "tiny", [], tmp_path, [f"model.path={folder}"])
    models = [run.config.model for run in demand.runs.values()]
    assert all(model.path == str(folder) and model.pretrained for model in models)


# ---- runs that start from the weights of others


@pytest.mark.slow
def test_a_base_is_made_where_a_run_from_it_is_missing(make_table: MakeTable, tmp_path: Path, monkeypatch) -> None:
    table = make_table("arms", 1, 2, overrides=["model=gpt2_tiny", "tokenizer=digit", BASE, "trainer.max_steps=50"])

    def todo(records: Path, *without: str) -> list[Run]:
        found = [record for record in load_records([records]) if record.id not in without]
        (demand,) = demands([table], "tiny", found, tmp_path / "other")
        return to_make(demand.missing)

    (demand,) = demands([table], "tiny", [], tmp_path)
    assert len(demand.runs) == 6  # two arms and a base for each of two seeds
    made = todo(tmp_path)
    assert [run.config.keep_steps for run in made] == [[30], [30], [], [], [], []]
    assert [run.base for run in made] == ["", "", made[0].id, made[0].id, made[1].id, made[1].id]
    for run in made:
        finish(run.overrides, tmp_path / "published")
    assert todo(tmp_path / "published") == []
    # Without the record of one arm: the arm, and what it starts from, whose weights are not published.
    assert [run.id for run in todo(tmp_path / "published", made[2].id)] == [made[0].id, made[2].id]
    weights = checkpoint_at(tmp_path / "bases" / made[0].id, 30)
    weights.mkdir(parents=True)
    (weights / "model.safetensors").touch()
    write_manifest(weights)
    monkeypatch.setattr("ntl.launch.plan.BASES", tmp_path / "bases")
    assert [run.id for run in todo(tmp_path / "published", made[2].id)] == [made[2].id]


# ---- runs in worker processes: one failure or kill does not end the others

Planned = Callable[..., list[Run]]


@pytest.mark.slow
@pytest.mark.usefixtures("faked")
def test_failures_and_kills_do_not_stop_the_others(planned: Planned, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(workers, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.01)  # before the first run ends, however fast the machine
    runs = planned(1, FAILS, KILLED, EXITS, TAKEN)
    assert run_all(runs, workers=1) == [
        "",
        "RuntimeError: no such",
        "its worker process was killed: from outside, or out of memory",
        "written to descriptor 2",  # the last line of its log
        "another process is at this run",
    ]
    lines = caplog.messages
    assert lines[0] == "5 runs in 1 worker process."
    assert lines[1] == f"  running: {runs[0].id} 0/{runs[0].steps}"
    ended = [line for line in lines[1:] if not line.startswith("  running: ")]
    assert [line[:5] for line in ended] == [f"[{n}/5]" for n in range(1, 6)]
    assert ended[1].startswith(f"[2/5] {runs[1].id}: FAILED after ")
    assert (runs[0].folder / "environment").read_text().split()[1] == str(available_cores())  # it has all cores
    assert runs[0].log.read_text() == "printed by the run\nwritten to descriptor 2\n"
    assert runs[1].log.read_text().endswith("RuntimeError: no such\n thing\n")
    assert "Traceback" not in runs[4].log.read_text()


def test_a_number_of_workers_that_none_can_be() -> None:
    with pytest.raises(UserError, match="workers=-1: give a number from 1 up"):
        run_all([], workers=-1)


@pytest.mark.usefixtures("faked")
def test_each_gpu_has_one_run_at_a_time(planned: Planned, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    of_gpus, of_cores = planned(1, 2, 3), planned(4, overrides=["device=cpu"])
    assert run_all(of_gpus) == ["", "", ""]
    gpus = [(run.folder / "environment").read_text().split()[2] for run in of_gpus]
    assert set(gpus[:2]) == {"5", "7"} > {gpus[2]}
    assert caplog.messages[0] == "3 runs in 2 worker processes."
    assert run_all(of_cores) == [""]
    assert (of_cores[0].folder / "environment").read_text().split()[2] == "5,7"


SCRIPT = """
import sys
from pathlib import Path
from ntl.config.cli import report
from ntl.launch import workers
from ntl.launch.plan import Run

workers.TRAIN = Path({program!r})
runs = [Run.of(["dataset=noisy_numbers", "loss=ce", f"seed={{seed}}"]) for seed in ({lasts}, 1)]
sys.exit(report(lambda: len(workers.run_all(runs, workers=1))))
"""


@pytest.fixture
def started(faked: Path, tmp_path: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A command of two runs in one process, and the folder of the run that it is in the middle of."""
    process = start(tmp_path, "-c", SCRIPT.format(lasts=LASTS, program=str(faked)))
    return process, until(lambda: next(tmp_path.glob("outputs/*/started"), None)).parent


def process_of(folder: Path) -> Path:
    return Path("/proc", (folder / "environment").read_text().split()[0])


@pytest.mark.slow
def test_ctrl_c_interrupts_the_runs_and_starts_no_other(started: tuple["subprocess.Popen[str]", Path]) -> None:
    process, folder = started
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Stopping: each run leaves a checkpoint." in said
    assert "Traceback" not in said
    assert (folder / "checkpoint").exists()
    assert not process_of(folder).exists()
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.slow
def test_a_killed_parent_leaves_no_worker_behind(started: tuple["subprocess.Popen[str]", Path]) -> None:
    process, folder = started
    process.kill()
    process.wait()
    until((folder / "checkpoint").exists)
    until(lambda: not process_of(folder).exists())


@pytest.mark.slow
def test_a_launcher_of_hydra_goes_on_past_failures(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ntl.training.train.train", fake_runs.run)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runs = planned(FAILS, 1, TAKEN, 2)
    errors = sweep_all(runs, "basic")
    assert errors == ["RuntimeError: no such", "", "another process is at this run", ""]
    assert runs[0].log.read_text().startswith("printed by the run\nTraceback ")
    assert runs[0].log.read_text().endswith("RuntimeError: no such\n thing\n\n")
    assert "Traceback" not in runs[2].log.read_text()
