"""The command lines of reproduce.py and quickstart.py: their settings, and what they ask for."""

import errno
import fcntl
import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ntl.config import UserError
from ntl.launch import reproduce, table
from ntl.launch.reproduce import Settings, parse_settings, short_name
from ntl.results.spec import table_names


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        *((text, ("table2",)) for text in ("2", "table2")),
        *((text, ("table_a6",)) for text in ("a6", "A6", "table_a6")),
        *(("3,2", ("table3", "table2")), ("2, table2 ,a6", ("table2", "table_a6"))),
        *(("quickstart", ("quickstart",)), ("all", tuple(table_names()))),
    ],
)
def test_names_of_tables(text: str, tables: tuple[str, ...]) -> None:
    assert parse_settings([f"table={text}"]).tables == tables


def test_short_names_are_distinct_and_no_tables_full_name() -> None:
    names = table_names()
    shorts = [short_name(name) for name in names]
    assert len(set(shorts)) == len(names)
    assert all(short == name or short not in names for short, name in zip(shorts, names, strict=True))


def test_every_setting() -> None:
    assert parse_settings([]) == Settings(("quickstart",), "tiny", (), None, Path("outputs"))
    words = ["outputs=a=b", "workers=3", "scale=paper", "table=2", "seeds=2,1,2"]
    assert parse_settings(words) == Settings(("table2",), "paper", (2, 1), 3, Path("a=b"))


NO_READING = "not part of a run's id, .*"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("table=22", "table=22: no such table. Did you mean '2'?"),
        ("table=quikstart", "table=quikstart: no such table. Did you mean 'quickstart'?"),
        ("table=2,zzz", "table=zzz: no such table. Choose from evidence, .*, quickstart, table1, .*, all."),
        ("table=lost.yaml", "table=lost.yaml: no such table. .*"),
        ("scale=tny", "scale=tny: no such scale; choose from .*. Did you mean 'tiny'?"),
        ("tabel=2", "tabel=2: no such setting; choose from table=, .*. Did you mean 'table'?"),
        ("scale", "scale: no such setting; .*"),
        ("my_table.yaml", "my_table.yaml: no such setting; choose from .*. Did you mean 'table=my_table.yaml'?"),
        ("2,a6", "2,a6: no such setting; choose from .*. Did you mean 'table=2,a6'?"),
        ("workers=0", "workers=0: a whole number, at least 1."),
        ("workers=-1", "workers=-1: a whole number, at least 1."),
        ("seeds=1,x", "seeds=1,x: whole numbers, as seeds=1 or seeds=1,2."),
        ("seeds=", "seeds=: whole numbers, as seeds=1 or seeds=1,2."),
        ("seed=1", "seed=1: a table names its seeds; choose from them by seeds=1,2, .*"),
        ("workers=²", "workers=²: a whole number, at least 1."),
    ],
)
def test_mistakes_are_one_line(word: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message.replace('?', '[?]')}$"):
        parse_settings([word])


def test_what_is_none_of_its_own_is_a_setting_of_every_run() -> None:
    words = ["trainer.bf16=true", "table=2", "model.path=a=b", "device=cpu", "scale.positions=64"]
    settings = parse_settings(words)
    assert settings.overrides == ("trainer.bf16=true", "model.path=a=b", "device=cpu", "scale.positions=64")
    assert (settings.tables, settings.scale) == (("table2",), "tiny")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("seed=7", "a table names its seeds; .*table=FILE.yaml"),
        ("output_dir=x", "say outputs=FOLDER"),
        ("resume=never", "leave it out: each run continues from its newest checkpoint"),
        ("decoding=beam", f"{NO_READING} scripts/predict.py RUN"),
        *(
            (word, NO_READING)
            for word in ("decoding.num_beams=2", "beside=median", "paper_compat=true", "probe_steps=50")
        ),
        *((word, "no such setting; .*") for word in ("+trainer.more=1", "~loss.number=1")),
    ],
)
def test_what_is_not_for_every_run_says_what_to_do(word: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(word)}: {message}"):
        parse_settings([word])


def test_nothing_is_set_twice() -> None:
    with pytest.raises(UserError, match=r"^trainer[.]lr is set twice[.]$"):
        parse_settings(["trainer.lr=1", "trainer.lr=2"])
    with pytest.raises(UserError, match=r"^scale is set twice[.]$"):
        parse_settings(["scale=tiny", "scale=paper"])


def test_a_table_of_ones_own(small_table: Path) -> None:
    assert parse_settings([f"table={small_table},2"]).tables == (str(small_table), "table2")


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


def test_published_records_count(calls: list[Any]) -> None:
    assert reproduce.main(["table=2,a6", "scale=small", "workers=3"]) == 1
    outputs = Path("outputs")
    own = {"outputs": outputs, "seeds": (), "workers": 3, "launcher": "", "hydra": (), "overrides": ()}
    published = Path("results/runs")
    given = {"records": [published, outputs], "measured": [published], **own}
    assert calls == [((("table2", "table_a6"), "small"), given)]


def test_seeds_that_are_named_are_made_here(calls: list[Any]) -> None:
    assert reproduce.main(["table=2", "seeds=1"]) == 1
    assert [calls[0][1][key] for key in ("records", "measured", "seeds")] == [
        [Path("outputs")],
        [Path("results/runs")],
        (1,),
    ]


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


def test_status_says_where_it_cannot_know_who_is_at_a_run(
    said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.EOPNOTSUPP, "no locks")))
    assert said("--status").startswith("outputs: this file system has no locks")
    assert len(said("--status", "--json")) == 4


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
