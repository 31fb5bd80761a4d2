import re
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.launch.settings import Settings, load, parse_settings, short_name
from ntl.results.spec import table_names


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("2", ("table2",)),
        ("table2", ("table2",)),
        ("a6", ("table_a6",)),
        ("A6", ("table_a6",)),
        ("table_a6", ("table_a6",)),
        ("quickstart", ("quickstart",)),
        ("3,2", ("table3", "table2")),
        ("2, table2 ,a6", ("table2", "table_a6")),
        ("all", tuple(table_names())),
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
    assert parse_settings([]) == Settings(("quickstart",), "tiny", None, Path("outputs"))
    words = ["outputs=a=b", "workers=3", "scale=paper", "table=2"]
    assert parse_settings(words) == Settings(("table2",), "paper", 3, Path("a=b"))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("table=22", "table=22: no such table. Did you mean '2'?"),
        ("table=quikstart", "table=quikstart: no such table. Did you mean 'quickstart'?"),
        ("table=2,zzz", "table=zzz: no such table. Choose from evidence, quickstart, table1, .*, all."),
        ("table=lost.yaml", "table=lost.yaml: no such table. .*"),
        ("scale=tny", "scale=tny: no such scale; choose from .*. Did you mean 'tiny'?"),
        ("tabel=2", "tabel=2: no such setting; choose from table=, .*. Did you mean 'table'?"),
        ("scale", "scale: no such setting; .*"),
        ("my_table.yaml", "my_table.yaml: no such setting; choose from .*. Did you mean 'table=my_table.yaml'?"),
        ("2,a6", "2,a6: no such setting; choose from .*. Did you mean 'table=2,a6'?"),
        ("workers=0", "workers=0: a whole number, at least 1."),
        ("workers=-1", "workers=-1: a whole number, at least 1."),
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
        ("decoding=beam", "no part of a run's id, .* scripts/predict.py RUN"),
        ("decoding.num_beams=2", "no part of a run's id, .*"),
        ("beside=median", "no part of a run's id, .*"),
        ("paper_compat=true", "no part of a run's id, .*"),
        ("probe_steps=50", "no part of a run's id, .*"),
        ("+trainer.more=1", "no such setting; .*"),
        ("~loss.number=1", "no such setting; .*"),
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
    assert load(str(small_table)).title == "Small"
    assert load("table2").name == "table2"


def test_a_launcher_and_its_settings() -> None:
    settings = parse_settings(["launcher=slurm", "hydra.launcher.partition=gpu", "table=2"])
    assert (settings.launcher, settings.hydra) == ("slurm", ("hydra.launcher.partition=gpu",))
    with pytest.raises(UserError, match="name the launcher, too: launcher=slurm"):
        parse_settings(["hydra.launcher.partition=gpu"])
