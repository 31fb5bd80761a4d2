"""Records: what a file keeps, which files are found, and the forms that make them small."""

import base64
import json
import math
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rows import record as small_record

from ntl.config import UserError
from ntl.results import RunRecord, load_records, pack_bits, read_record, thin_curve, unpack_bits, write_record
from ntl.results.record import SCHEMA, dumps, pack_errors, read_records, to_json, unpack_errors

GOOD = {"schema": SCHEMA, "id": "a", "overrides": [], "config": {}, "seed": 1, "metrics": {}}


def test_a_published_record_comes_back_and_keeps_to_its_size(tmp_path: Path, published: list[RunRecord]) -> None:
    assert len(published) > 900
    for record in published[::50]:
        assert read_record(write_record(tmp_path / record.id, record)) == record
        aside = ("curves", "correct", "errors", "worst", "typical")
        assert len(dumps({key: value for key, value in to_json(record).items() if key not in aside})) < 12 * 1024


def test_metrics_keep_ten_digits_and_groups_five_and_what_json_lacks_is_null(tmp_path: Path) -> None:
    metrics: dict[str, Any] = {"test/r2": 0.99999999987654, "test/mse": 5.105061868547476e16, "test/mae": -0.0}
    metrics |= {"test/pearson": math.nan, "test/log_r2": -math.inf, "test/rmse": np.float32(0.5), "test/count": 11340.0}
    record = small_record(metrics=metrics, groups={"test": {"3x2": {"accuracy": 2 / 3, "count": 500.0}}})
    found = to_json(record)
    assert found["groups"] == {"test": {"columns": ["accuracy", "count"], "rows": {"3x2": [0.66667, 500]}}}
    expected = {"test/r2": 0.9999999999, "test/mse": 5.105061869e16, "test/mae": 0, "test/count": 11340}
    expected |= {"test/pearson": None, "test/log_r2": None, "test/rmse": 0.5}
    path = write_record(tmp_path / "record.json", record)
    assert read_record(path).metrics == expected
    assert '"test/count":11340}' in path.read_text().replace(" ", "")


def test_a_file_or_a_line_among_those_of_a_data_set_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for name in ("b", "c", "a"):
        assert write_record(path, small_record(id=name)) == path
    alone = write_record(tmp_path / "record.json", small_record(id="b"))
    for each in (path, alone):
        before = each.read_bytes(), each.stat().st_mtime_ns
        write_record(each, small_record(id="b"))
        with pytest.raises(UserError, match=rf"{each.name}: a different record is there"):
            write_record(each, small_record(id="b", seed=2))
        assert (each.read_bytes(), each.stat().st_mtime_ns) == before
    write_record(alone, small_record(seed=2), overwrite=True)
    assert read_record(alone).seed == 2
    write_record(path, small_record(id="b", worst={"test": [{"error": 1.0}]}))  # of PUBLISHED_ALONE
    assert [(record.id, bool(record.worst)) for record in read_records(path)] == [("a", 0), ("b", 1), ("c", 0)]
    path.write_text(path.read_text() + "{\n")
    with pytest.raises(UserError, match=r"a\.jsonl:4: broken JSON"):
        read_records(path)
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "record.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{\n\n'", r"record\.json:1: broken JSON"),
        ("[]", "not a whole run record"),
        (json.dumps({**GOOD, "schema": 4}), r"written by another ntl \(record schema 4, here 3\): upgrade"),
        ('{"schema":1,\n"id":"a"}\n', r"\(record schema 1, here 3\): make the run again"),
        (json.dumps({"schema": 3, "config": {}}), "not a whole run record .* missing 4 required .* 'id'"),
        (json.dumps({**GOOD, "metrics": {"test/mae": "1"}}), "not a whole run record .*must be real number, not str"),
        (json.dumps({**GOOD, "metrics": {"test/mae": 10**400}}), "not a whole run record .*too large"),
        (json.dumps({**GOOD, "curves": {"loss": [[4, 10**400]]}}), "not a whole run record"),
        ("[" * 100_000, "not a whole run record"),
        (json.dumps({**GOOD, "id": "../stolen"}), "id='../stolen': not a plain name"),
        *(
            (json.dumps({**GOOD, "metrics": {"test/count": 99}, "correct": {"test": bits}}), "not a whole run record")
            for bits in ("r:oi", "r:\u00fc", "z:oi")
        ),
    ],
)
def test_bad_files_give_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_record(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(UserError, match="cannot read /dev/null: a pipe, socket or device, where a file is needed"):
        read_record("/dev/null")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([10**400, -(10**400)]) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=20)
@given(st.sampled_from([*GOOD, "wall_time_s", "curves", "groups", "correct", "metrics/test/mae"]), ANY_JSON)
@example("metrics/test/mae", 10**400)
@example("wall_time_s", -(10**400))
def test_whatever_stands_in_a_record_it_is_read_or_refused_in_one_line(key: str, value: object) -> None:
    place, _, metric = key.partition("/")
    with TemporaryDirectory() as folder, suppress(UserError):
        (Path(folder) / "a.json").write_text(json.dumps({**GOOD, place: {metric: value} if metric else value}))
        (record,) = load_records([folder])
        assert all(each is None or math.isfinite(each) for each in record.metrics.values())


def test_no_secret_of_the_environment_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "planted/5ec4e7")
    config = {"model": {"path": "https://me:pla@host/planted%2F5ec4e7", "sizes": [1, "planted/5ec4e7"]}}
    overrides = ["model.path=planted/5ec4e7", "seed=1"]
    record = small_record(overrides=overrides, config=config)
    path = write_record(tmp_path / "record.json", record)
    found = read_record(path)
    assert found.config == {"model": {"path": "https://<login>@host/<MY_TOKEN>", "sizes": [1, "<MY_TOKEN>"]}}
    assert found.overrides == ["model.path=<MY_TOKEN>", "seed=1"]
    assert write_record(path, record) == path  # the same record still
    assert "5ec4e7" not in path.read_text()


def test_how_long_it_takes_until_a_curve_is_below_a_value() -> None:
    curves = {"probe_mape/1x1": [[50, 30.0], [100, 10.0]], "probe_mape/2x1": [[50, None], [100, 40.0]]}
    curves["eval_ce"] = [[50, 1.2], [100, 1.0], [150, 0.9], [200, 1.1]]
    record = small_record(steps=200, examples_seen=400, curves=curves, data={"rows": {"train": 100}})
    assert record.value("validation/steps_until_ce_1.0") == 150
    assert record.value("validation/steps_until_ce_0.5") == 200  # never: the last step of the run
    assert record.epochs_until(20.0) == {"1x1": 2.0, "2x1": math.inf}  # step 100 of 200, in 4 epochs
    assert record.value("probe/epochs_until_20.0") == 3.0  # one that is not reached counts 4
    for metric in ("validation/steps_until_ce_0.5", "probe/epochs_until_20.0"):
        assert record.has(metric)
        assert not small_record().has(metric)


@given(st.lists(st.one_of(st.floats(0, 1e30), st.integers(0, 256).map(float), st.just(math.nan)), max_size=40))
def test_errors_come_back(errors: list[float]) -> None:
    """Integers up to 256 are exact, others within a 256th; NaN is an answer without a number."""
    for one, other in zip(unpack_errors(pack_errors(np.array(errors))).tolist(), errors, strict=True):
        assert math.isnan(one) if math.isnan(other) else one == pytest.approx(other, rel=1 / 256, abs=1e-37)
        assert one == other or other not in range(257)


@given(arrays(np.bool_, st.integers(0, 40)))
def test_bits_come_back(bits: np.ndarray) -> None:
    assert unpack_bits(pack_bits(bits), len(bits)).tolist() == bits.tolist()
    with pytest.raises(ValueError, match="hold 1 bytes, not 17"):
        unpack_bits("r:oi", 17)
    # 1010 0000 1000 0000 = A0 80
    text = pack_bits([True, False, True, False, False, False, False, False, True])
    assert (text[:2], base64.b85decode(text[2:])) == ("r:", b"\xa0\x80")


def test_thin_curve_keeps_short_curves_and_both_ends() -> None:
    assert thin_curve([[1, 2.0], [2, 1.0]]) == [[1, 2.0], [2, 1.0]]
    assert thin_curve([[step, 0.5] for step in range(399)]) == [[2 * at, 0.5] for at in range(200)]


def test_records_of_both_shapes_in_order_of_id(tmp_path: Path) -> None:
    runs, outputs = tmp_path / "runs", tmp_path / "outputs"
    for name, path in (("b", runs / "b.json"), ("c", runs / "c.json"), ("a", outputs / "a" / "record.json")):
        write_record(path, small_record(id=name))
    for other in ("a/checkpoints/trainer_state.json", "quickstart.json", "unfinished/tokenizer.json"):
        (outputs / other).parent.mkdir(exist_ok=True)
        (outputs / other).write_text("{")
    records = load_records([runs, outputs, tmp_path / "none"])
    assert [record.id for record in records] == ["a", "b", "c"]
    assert load_records([outputs, runs]) == records
    assert [record.id for record in load_records([outputs / "a"])] == ["a"]


def test_a_record_in_the_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path / "outputs" / "a" / "record.json", small_record(id="b"))
    message = rf"^{path}: the record of another run, b; this folder is of a: restore it, or remove it\.$"
    for folder in (tmp_path / "outputs", path.parent):
        with pytest.raises(UserError, match=message):
            load_records([folder])


def test_the_run_folder_wins_unless_the_copy_was_read_in_more_ways(tmp_path: Path, make_record) -> None:
    write_record(tmp_path / "runs" / "b.json", make_record("ce", 1, {"test/mae": 1.0}, id="b"))
    own = make_record("ce", 1, {"test/mae": 2.0}, id="b")
    write_record(tmp_path / "outputs" / "b" / "record.json", own)
    more = make_record("ce", 1, {"test/mae": 1.0}, id="a")
    less = replace(more, config={key: value for key, value in more.config.items() if key != "extra_decodings"})
    write_record(tmp_path / "runs" / "a.json", more)
    write_record(tmp_path / "outputs" / "a" / "record.json", less)
    folders = [tmp_path / "runs", tmp_path / "outputs"]
    assert load_records(folders) == load_records(folders[::-1]) == [more, own]
