"""The command lines of reproduce.py and quickstart.py: their settings, and what they ask for."""

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ntl.config import UserError
from ntl.launch import reproduce, table
from ntl.launch.reproduce import Settings, parse_settings
from ntl.results.spec import table_names


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("A6", ("table_a6",)),
        ("2, table2 ,a6", ("table2", "table_a6")),
        ("all", tuple(table_names())),
    ],
)
def test_names_of_tables(text: str, tables: tuple[str, ...]) -> None:
    assert parse_settings([f"table={text}"]).tables == tables


def test_every_setting() -> None:
    assert parse_settings([]) == Settings(("quickstart",), "tiny", (), None, Path("outputs"))
    words = ["outputs=a=b", "workers=3", "scale=paper", "table=2", "seeds=2,1,2"]
    assert parse_settings(words) == Settings(("table2",), "paper", (2, 1), 3, Path("a=b"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table=2,quikstart", "table=quikstart: no such table. Did you mean 'quickstart'?"),
        ("table=lost.yaml", "table=lost.yaml: no such table."),
        ("scale=tny", "scale=tny: no such scale; choose from"),
        ("tabel=2", "tabel=2: no such setting; choose from table=,"),
        ("2,a6", "2,a6: no such setting; choose from"),
        ("workers=0", "workers=0: a whole number, at least 1."),
        ("seeds=1,x", "seeds=1,x: whole numbers,"),
        ("scale=tiny scale=paper", "scale is set twice."),
        ("trainer.lr=1 trainer.lr=2", "trainer.lr is set twice."),
        ("seed=7", "seed=7: a table names its seeds;"),
        ("output_dir=x", "output_dir=x: say outputs=FOLDER"),
        ("resume=never", "resume=never: leave it out:"),
        ("decoding=beam", "decoding=beam: not part of a run's id,"),
        ("~loss.number=1", "~loss.number=1: no such setting;"),
    ],
)
def test_mistakes_are_one_line(words: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        parse_settings(words.split())


def test_what_is_none_of_its_own_is_a_setting_of_every_run(small_table: Path) -> None:
    settings = parse_settings(["trainer.bf16=true", f"table={small_table},2", "model.path=a=b"])
    assert settings.overrides == ("trainer.bf16=true", "model.path=a=b")
    assert (settings.tables, settings.scale) == ((str(small_table), "table2"), "tiny")


def test_a_launcher_and_its_settings() -> None:
    settings = parse_settings(["launcher=slurm", "hydra.launcher.partition=gpu", "table=2"])
    assert (settings.launcher, settings.hydra) == ("slurm", ("hydra.launcher.partition=gpu",))
    with pytest.raises(UserError, match="name the launcher, too: launcher=slurm"):
        parse_settings(["hydra.launcher.partition=gpu"])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What ``complete_tables`` was called with; the exit code is 1."""
    made: list[Any] = []

    def fake(*names: Any, **options: Any) -> SimpleNamespace:
        made.append((names, options))
        return SimpleNamespace(exit_code=1)

    monkeypatch.setattr(table, "complete_tables", fake)
    return made


def test_published_records_count_unless_seeds_are_named(calls: list[Any]) -> None:
    assert reproduce.main(["table=2,a6", "scale=small", "workers=3"]) == 1
    outputs = Path("outputs")
    own = {"outputs": outputs, "seeds": (), "workers": 3, "launcher": "", "hydra": (), "overrides": ()}
    published = Path("results/runs")
    given = {"records": [published, outputs], "measured": [published], **own}
    assert calls == [((("table2", "table_a6"), "small"), given)]
    assert reproduce.main(["table=2", "seeds=1"]) == 1
    assert [calls[1][1][key] for key in ("records", "measured")] == [[outputs], [published]]


def test_in_the_quickstart_only_runs_made_here_count(calls: list[Any]) -> None:
    quickstart = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "quickstart.py"))["main"]
    assert quickstart(["--outputs", "here", "--workers", "3"]) == 1
    here = Path("here")
    assert calls == [((["quickstart"], "tiny"), {"records": [here], "outputs": here, "workers": 3})]


@pytest.fixture
def said(
    small_table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """What reproduce.py prints for the small table, in a folder where it makes nothing."""
    monkeypatch.chdir(tmp_path)

    def make(*words: str) -> Any:
        assert reproduce.main([f"table={small_table}", *words]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["tables"]
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in words else out

    return make


def test_dry_run_and_status_make_nothing(said: Callable[..., Any]) -> None:
    assert "small  tiny   4     0     4 " in said("workers=4", "--dry-run")
    assert said("workers=4", "--dry-run", "--json")["total"]["missing"] == 4
    assert said("seeds=2", "--dry-run", "--json")["total"]["missing"] == 2
    counts, left = said("--status").splitlines()
    assert counts == "0 done, 0 running, 0 queued, 0 failed, 4 missing of 4 runs"
    assert left.startswith("Core-hours left, as records of such runs measured them: ")
    assert [run["state"] for run in said("--status", "--json")] == ["missing"] * 4


def test_what_a_command_adds_is_in_what_it_would_make_and_in_the_status(said: Callable[..., Any]) -> None:
    added = ("trainer.bf16=true", "tracking=none")
    text = said(*added, "--dry-run")
    assert "small  tiny   4     0     4 " in text
    assert "\nEvery run with trainer.bf16=true; what is measured was measured without.\n" in text
    assert said(*added, "--dry-run", "--json")["added"] == ["trainer.bf16=true"]
    ours, plain = ({run["id"] for run in said(*words, "--status", "--json")} for words in (added, ()))
    assert len(ours) == len(plain) == 4
    assert not ours & plain


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--json"], "--json: it prints what --dry-run or --status tells"),
        (["--dry-run", "--status"], "one at a time"),
    ],
)
def test_a_flag_that_would_do_nothing(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        reproduce.main(words)
