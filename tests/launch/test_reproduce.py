"""reproduce.py: its settings, its tables, --dry-run, a rehearsal, and the real command killed."""

import json
import random
import re
import runpy
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_runs
import pytest
from commands import ROOT, SMALL, kill, start, table_text
from fake_runs import FAILS, NO_RECORD

from ntl.config import UserError
from ntl.launch import table
from ntl.launch.plan import Run, demands, to_make
from ntl.launch.rehearsal import rehearse
from ntl.launch.workers import sweep_all
from ntl.results import RunRecord
from ntl.results.spec import load_table_spec, table_names
from ntl.system.files import lock
from ntl.system.messages import printed

MakeTable = Callable[..., str]
REPRODUCE = runpy.run_path(str(ROOT / "scripts" / "reproduce.py"))
main, parse_settings = REPRODUCE["main"], REPRODUCE["parse_settings"]


def test_every_setting(make_table: MakeTable) -> None:
    default = {"names": ["quickstart"], "scale": "tiny", "outputs": Path("outputs")}
    assert parse_settings([]) == default
    words = ["outputs=a=b", "workers=3", "scale=paper", "table=2", "seeds=2,1,2"]
    given = {"names": ["table2"], "scale": "paper", "outputs": Path("a=b"), "workers": 3, "seeds": [2, 1]}
    assert parse_settings(words) == given
    own = make_table("small", 1)
    added = ["trainer.bf16=true", "model.path=a=b"]
    assert parse_settings([*added, f"table={own},2"]) == default | {"names": [own, "table2"], "overrides": added}
    slurm = {"names": ["table2"], "launcher": "slurm", "hydra": ["hydra.launcher.partition=gpu"]}
    assert parse_settings(["launcher=slurm", *slurm["hydra"], "table=2"]) == default | slurm
    for text, names in (("2, table2 ,a6", ["table2", "table_a6"]), ("A6", ["table_a6"]), ("all", table_names())):
        assert parse_settings([f"table={text}"])["names"] == list(names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table=2,quikstart", "table=quikstart: no such table. Did you mean 'quickstart'?"),
        ("scale=tny", "scale=tny: no such scale; choose from"),
        ("tabel=2", "tabel=2: no such setting; choose from table=,"),
        ("a6", "a6: no such setting; choose from"),
        ("workers=0", "workers=0: whole numbers above 0"),
        ("seeds=1,x", "seeds=1,x: whole numbers above 0"),
        ("trainer.lr=1 trainer.lr=2", "trainer.lr is set twice."),
        ("seed=7", "seed=7: a table names its seeds;"),
        ("output_dir=x", "output_dir=x: say outputs=FOLDER"),
        ("resume=never", "resume=never: leave it out:"),
        ("decoding=beam", "decoding=beam: not part of a run's id,"),
        ("~loss.squash=1", "~loss.squash=1: no such setting;"),
        ("hydra.launcher.partition=gpu", "hydra.launcher.partition=gpu: a launcher's setting; name the launcher, too"),
    ],
)
def test_mistakes_are_one_line(words: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        main(words.split())


def test_published_records_count_unless_seeds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(table, "complete_tables", lambda *names, **given: calls.append({"given": names, **given}) or 1)
    assert main(["table=2,a6", "scale=small", "workers=3"]) == main(["table=2", "seeds=1"]) == 1
    quickstart = runpy.run_path(str(ROOT / "scripts" / "quickstart.py"))["main"]
    assert quickstart(["--outputs", "here", "--workers", "3", "--seeds", "1"]) == 1
    published = [ROOT / "results" / "runs", Path("outputs")]
    assert [call["records"] for call in calls] == [published, published[1:], [Path("here")]]
    assert (calls[2]["given"], calls[2]["seeds"]) == ((["quickstart"], "tiny"), [1])


# ---- tables


Complete = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def complete(capsys: pytest.CaptureFixture[str]) -> Complete:
    """The exit code of ``complete_tables``, and the lines that it printed."""

    def call(names: list[str], outputs: Path, **options: Any) -> tuple[int, list[str]]:
        with printed():
            code = table.complete_tables(names, "tiny", records=[outputs], outputs=outputs, workers=2, **options)
        return code, capsys.readouterr().out.splitlines()

    return call


@pytest.mark.slow
@pytest.mark.usefixtures("faked")
def test_tables_are_completed_printed_and_written(complete: Complete, make_table: MakeTable, tmp_path: Path) -> None:
    names, outputs = [make_table("one", 1, 2), make_table("bad", FAILS, NO_RECORD, 2)], tmp_path / "outputs"
    code, lines = complete(names, outputs)
    assert code == 1
    assert lines[0] == "8 runs in 2 worker processes."
    assert lines[-9].startswith("4 runs trained in ")
    assert lines[-9].endswith(f"s, 4 failed. Runs: {outputs}/<run id>/.")
    errors = ["RuntimeError: no such"] * 2 + ["it ended without a record"] * 2
    for told, log, error in zip(lines[-8::2], lines[-7::2], errors, strict=True):
        name = told.split()[0]
        assert (told, log) == (f"{name} failed: {error}", f"  log: {outputs}/{name}/run.log")
    text = (outputs / "one_tiny.md").read_text()
    assert "| 1.000, 2.000 |" in text  # seeds 1 and 2, and the fake RMSE is the seed
    assert set(text.splitlines()) <= {*lines, ""}
    assert {path.suffix for path in outputs.glob("bad_tiny.*")} == {".md", ".csv"}

    code, lines = complete(names[:1], outputs)
    assert (code, lines[-1][:14]) == (0, "0 runs trained")


@pytest.mark.slow
@pytest.mark.usefixtures("faked")
def test_a_table_with_settings_says_so(complete: Complete, make_table: MakeTable, tmp_path: Path) -> None:
    name, outputs = make_table("small", 1), tmp_path / "outputs"
    base = "base='loss=ce trainer.max_steps=40@30'"  # whose checkpoint the fake runs ask for
    arms = make_table("arms", 1, overrides=["model=gpt2_tiny", "tokenizer=digit", base, "trainer.max_steps=50"])
    _, lines = complete([arms], outputs)
    assert lines[-1].startswith("3 runs trained")
    added = ["tracking=none", "trainer.bf16=true"]
    _, lines = complete([name], outputs, overrides=added)
    assert lines[-1].startswith("2 runs trained")
    (path,) = outputs.glob("small_tiny_with_*.md")
    assert "every run of it was made with trainer.bf16=true." in path.read_text().replace("\\_", "_")
    # Where a run is makes it no other one.
    assert complete([name], outputs, overrides=[*added, "device=cpu"])[1][-1].startswith("0 runs trained")


# ---- --dry-run


def test_dry_run_makes_nothing(make_table: MakeTable, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(main.__globals__, "PUBLISHED", tmp_path / "none")
    names = f"table={make_table('small', 1, 2)},{make_table('other', 2, 3)}"

    def said(*words: str) -> list[str]:
        assert main([names, *words]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["tables"]
        return capsys.readouterr().out.splitlines()

    found = said("workers=4", "--dry-run")
    assert found[0] == "0 done, 0 running, 0 failed, 6 missing of 6"
    assert found[1].split() == ["table", "scale", "runs", "done", "running", "failed", "missing", "core-hours"]
    rows = [line.split()[:7] for line in found[2:5]]
    of_one = [["small", "tiny", "4", "0", "0", "0", "4"], ["other", "tiny", "4", "0", "0", "0", "4"]]
    assert rows == [*of_one, ["all", "tiny", "6", "0", "0", "0", "6"]]  # runs of both tables are counted once
    assert found[5].startswith("Estimated for h100, ")
    assert sum(int(line.split()[-1]) for line in found[7:9]) == 6
    assert said("--dry-run", "--gpu", "v100")[5].startswith("Estimated for v100, ")
    assert said("seeds=2", "--status")[2].split()[:3] == ["small", "tiny", "2"]
    assert said("trainer.gradient_checkpointing=true", "--dry-run")[5].startswith("Estimated ")  # the same table
    assert said("trainer.bf16=true", "--dry-run")[5].startswith("Every run with trainer.bf16=true; ")


def test_the_state_of_each_run(make_table: MakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    demanded = demands([make_table("small", 1, 2)], "tiny", [], tmp_path)
    done, at_work, failed, _ = to_make(demanded[0].missing)
    fake_runs.run(done.config, list(done.overrides))
    for run in (at_work, failed):
        run.folder.mkdir()
        (run.folder / "metrics.jsonl").write_text('{"step": 25}\n')
    failed.log.write_text("Traceback\nValueError: no such thing\n\n")
    with lock(tmp_path / f".{at_work.id}.lock"):
        first, _, counts, *lines = table.dry_run(demanded, []).splitlines()
    assert first == "1 done, 1 running, 1 failed, 1 missing of 4"
    assert counts.split() == ["small", "tiny", "4", "1", "1", "1", "1", "not", "measured:", "3"]
    assert lines == [f"running {at_work.id}: step 25/500", f"failed  {failed.id}: ValueError: no such thing"]


def test_core_hours_are_the_median_of_records_of_the_same_kind(timed_record: Callable[..., RunRecord]) -> None:
    words = ["dataset=arithmetic", "model=gpt2_tiny", "scale=tiny"]
    records = [timed_record(seconds) for seconds in (360.0, 9000.0, 720.0)] + [timed_record(1.0, dataset="rjokes")]
    records += [timed_record(9.0, device="NVIDIA H200"), timed_record(0.0), replace(timed_record(9.0), config={})]
    runs = [Run.of([*words, f"seed={seed}"]) for seed in (1, 2)]
    assert table.core_hours(runs, records) == "0.40"
    assert table.core_hours(runs, [timed_record(10.0, device="cpu x86_64, 4 of 8 threads", num_devices=90)]) == "2.00"
    others = [["dataset=rjokes", *words[1:]], [*words, "trainer.max_steps=7"], [*words, "objective=mtp"]]
    runs += [Run.of(each) for each in others]
    assert table.core_hours(runs, [timed_record(3600.0)]) == "2.00 + runs not measured: 3"


# ---- the real command, killed with all its workers at five random moments

# What the command adds to the runs is in their ids, and so in what is continued.
ADDED = "trainer.weight_decay=0.02"
GOOD, LINES_A_RUN, KILLS = 4, 24, 5
# What may differ between two runs that compute the same.
MEASURED = ("wall_time_s", "peak_memory_bytes")


def reproduce(folder: Path) -> "subprocess.Popen[str]":
    table = folder.parent / "small.yaml"
    # Four runs that end well, and in their middle two that cannot.
    table.write_text(table_text([1, 2], [*SMALL, "trainer.max_steps=120"], broken=True))
    return start(folder, str(ROOT / "scripts" / "reproduce.py"), f"table={table}", "workers=2", ADDED)


def lines_logged(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("outputs/*/metrics.jsonl"))


def records(folder: Path) -> dict[str, Any]:
    found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("outputs/*/record.json")}
    return {name: {key: record[key] for key in record.keys() - set(MEASURED)} for name, record in found.items()}


@pytest.mark.soak
@pytest.mark.timeout(1800)  # six starts of two workers, each with its imports
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the workers under /proc")
def test_a_table_killed_five_times_ends_as_one_that_was_not(tmp_path: Path) -> None:
    straight, broken, draw = tmp_path / "straight", tmp_path / "broken", random.Random(0)
    process = reproduce(straight)
    said, _ = process.communicate(timeout=600)
    assert (process.returncode, len(records(straight))) == (1, GOOD), said
    ends = said.splitlines()[-4::2]  # each followed by its log
    assert all("-ce_digits-" in line and "device=cuda: torch sees no CUDA device here" in line for line in ends)

    written: dict[Path, int] = {}
    for moment in sorted(draw.sample(range(GOOD * LINES_A_RUN), KILLS)):
        process = reproduce(broken)
        while lines_logged(broken) < moment and process.poll() is None:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        assert process.poll() is None, process.communicate()
        kill(process)
        written.update({path: path.stat().st_mtime_ns for path in broken.glob("outputs/*/record.json")})
    process = reproduce(broken)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    assert records(broken) == records(straight)
    ours, theirs = (next(folder.glob("outputs/small_tiny_with_*.md")) for folder in (broken, straight))
    assert (ours.name, ours.read_bytes()) == (theirs.name, theirs.read_bytes())
    # Nothing is run twice: what had a record kept it, and the last command made only the others.
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in written.items())
    assert f"{GOOD - len(written)} run" in said
    assert any("Continuing from " in path.read_text() for path in broken.glob("outputs/*/run.log"))


# ---- rows are tried before they are trained

OK = re.compile(r" *[\d.]+ s  noisy_numbers-gpt2_tiny-(\w+)-s1-\w+ ok")


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """``said(*words)``: the exit code and the lines of a command on a table of CE and NTL-WAS, ``broken`` between."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, broken: bool = False) -> tuple[int, list[str]]:
        Path("small.yaml").write_text(table_text([1, 2], SMALL, broken=broken))
        with printed():
            code = main(["table=small.yaml", "launcher=basic", *words])  # in this process
        return code, capsys.readouterr().out.splitlines()

    return call


@pytest.mark.slow
def test_a_line_for_each_row_and_nothing_is_left(said: Callable[..., Any], tmp_path: Path) -> None:
    code, (*lines, last) = said("--rehearse")
    assert code == 0
    assert [OK.sub(r"\1", line) for line in lines] == ["ce", "ntl_was"]
    assert last == "2 ok, for 4 runs."
    assert {path.name for path in tmp_path.iterdir()} == {"small.yaml", "data"}


@pytest.mark.slow
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
def test_every_table(data_root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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

    def launch(runs: Sequence[Run]) -> list[str]:
        return sweep_all(runs, "basic")

    rates, failed = rehearse(runs, launch, tmp_path, tiny=True)
    assert not failed, caplog.text
    assert len(rates) == len(runs) > 40
