import errno
import fcntl
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ntl.launch import reproduce


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 1])
def test_published_records_count(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls: list[Any] = []

    def fake(*names: Any, **options: Any) -> SimpleNamespace:
        calls.append((names, options))
        return SimpleNamespace(exit_code=code)

    monkeypatch.setattr(reproduce, "complete_tables", fake)
    assert reproduce.main(["table=2,a6", "scale=small", "workers=3"]) == code
    outputs = Path("outputs")
    options = {
        "records": [Path("results/runs"), outputs],
        "outputs": outputs,
        "workers": 3,
        "launcher": "",
        "hydra": (),
        "overrides": (),
    }
    assert calls == [((("table2", "table_a6"), "small"), options)]


def test_dry_run_makes_nothing(
    small_table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f"table={small_table}", "workers=4", "--dry-run"]
    assert reproduce.main(words) == 0
    assert "small  tiny   4     0     4 " in capsys.readouterr().out
    assert reproduce.main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["total"]["missing"] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_what_a_command_adds_is_in_what_it_would_make_and_in_the_status(
    small_table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f"table={small_table}", "trainer.bf16=true", "tracking=none"]
    assert reproduce.main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "small  tiny   4     0     4 " in said
    assert "\nEvery run with trainer.bf16=true; what is measured was measured without.\n" in said
    assert reproduce.main([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == ["trainer.bf16=true"]
    ids = []
    for more in (words, words[:1]):
        assert reproduce.main([*more, "--status", "--json"]) == 0
        ids.append({run["id"] for run in json.loads(capsys.readouterr().out)})
    assert len(ids[0]) == len(ids[1]) == 4
    assert not ids[0] & ids[1]


def test_ledger_is_made_from_published_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(reproduce, "load_records", lambda folders: folders)
    monkeypatch.setattr(reproduce, "write_ledger", lambda *given: calls.append(given))
    assert reproduce.main(["--ledger"]) == 0
    assert calls == [(reproduce.ROOT / "results" / "costs.md", [reproduce.ROOT / "results" / "runs"])]
    assert (reproduce.ROOT / "results" / "costs.md").is_file()


def test_status_says_where_it_cannot_know_who_is_at_a_run(
    small_table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: object, flags: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no locks")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    words = [f"table={small_table}", "--status"]
    assert reproduce.main(words) == 0
    assert capsys.readouterr().out.startswith("outputs: this file system has no locks")
    assert reproduce.main([*words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4


def test_status_prints_and_makes_nothing(
    small_table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f"table={small_table}", "--status"]
    assert reproduce.main(words) == 0
    counts, left = capsys.readouterr().out.splitlines()
    assert counts == "0 done, 0 running, 0 queued, 0 failed, 4 missing of 4 runs"
    assert left.startswith("Hours left, by measured runs or estimates (--dry-run): ")
    assert reproduce.main([*words, "--json"]) == 0
    assert [run["state"] for run in json.loads(capsys.readouterr().out)] == ["missing"] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]
