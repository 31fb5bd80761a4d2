from pathlib import Path

import fake_runs
import pytest
from fake_runs import FAILS, NO_RECORD
from hydra.errors import ConfigCompositionException

from ntl.launch.workers import sweep_missing
from ntl.results import read_record


def overrides(*seeds: int) -> list[list[str]]:
    return [["dataset=noisy_numbers", "loss=ce", f"seed={seed}"] for seed in seeds]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ntl.training.run", fake_runs.run, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_hydras_own_launcher_makes_what_is_missing_and_goes_on_past_failures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with capfd.disabled():  # what is printed must reach the descriptors
        report = sweep_missing(overrides(FAILS, 1, NO_RECORD, 2), "basic", root=tmp_path)
    assert [run.label for run in report.done] == ["noisy_numbers ce seed 1", "noisy_numbers ce seed 2"]
    failed = {ended.run.label.split()[-1]: ended for ended in report.failed}
    assert failed[str(FAILS)].error == "RuntimeError: no such thing"
    assert failed[str(NO_RECORD)].error.startswith("it ended without ")
    assert report.exit_code == 1
    log = failed[str(FAILS)].run.log.read_text()
    assert log.startswith("printed by the run\nwritten to descriptor 2\n")
    assert log.endswith("RuntimeError: no such\n thing\n")
    # A run's record does not say by what it was launched.
    record = read_record(report.done[0].record)
    assert record.overrides == [*overrides(1)[0], f"output_dir='{tmp_path}'"]

    again = sweep_missing(overrides(1, 2), "basic", root=tmp_path)
    assert (again.done, again.failed, len(again.skipped)) == ((), (), 2)


@pytest.mark.parametrize("settings", [("nowhere", ()), ("slurm", ("hydra.launcher.partitoin=gpu",))])
def test_a_launcher_that_is_not_there_or_set_wrongly(settings: tuple[str, tuple[str, ...]], tmp_path: Path) -> None:
    with pytest.raises(ConfigCompositionException):
        sweep_missing(overrides(1), *settings, root=tmp_path)
