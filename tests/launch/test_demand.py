from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import run

from ntl.config import UserError, compose, run_id
from ntl.launch.demand import demands, missing, place
from ntl.results import load_records


def test_runs_by_id_and_what_lacks_a_record(small_table: Path, tmp_path: Path) -> None:
    (demand,) = demands([str(small_table)], "tiny", [])
    assert len(demand.runs) == 4
    assert all(run_id(config) == key for key, config in demand.runs.items())
    assert set(demand.lacking.values()) == set(demand.runs)

    first, key = next(iter(demand.lacking.items()))
    place = f"output_dir={tmp_path}"
    run(compose([*first, place]), overrides=[*first, place])
    (after,) = demands([str(small_table)], "tiny", load_records([tmp_path]))
    assert after.runs.keys() == demand.runs.keys()
    assert set(demand.lacking.values()) - set(after.lacking.values()) == {key}


def test_a_run_of_two_tables_is_one(make_table: Callable[..., Path], tmp_path: Path) -> None:
    pair = demands([str(make_table("one", 1, 2)), str(make_table("two", 2, 3))], "tiny", [])
    shared = pair[0].runs.keys() & pair[1].runs.keys()
    assert len(shared) == 2
    ids = [run.id for run in missing(pair, tmp_path)]
    assert len(ids) == len(set(ids)) == 6


def test_a_table_without_the_scale_is_skipped_with_a_line(small_table: Path) -> None:
    lines: list[str] = []
    (demand,) = demands([str(small_table), "table8"], "paper", [], lines.append)
    assert demand.spec.name == "table8"
    assert lines == ["small: nothing at scale=paper, skipped; it has tiny."]
    with pytest.raises(UserError, match=r"nothing at scale=paper; choose from tiny[.]$"):
        demands([str(small_table)], "paper", [], lines.append)


def test_the_default_folder_is_not_among_the_overrides() -> None:
    assert place(Path("outputs")) is None
    assert place(Path("elsewhere")) == Path("elsewhere")
