import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config import UserError
from ntl.results import (
    RunRecord,
    pack_bits,
    pack_errors,
    read_record,
    thin_curve,
    write_record,
)
from ntl.results.record import dumps, to_json

GOOD = {"schema": 1, "id": "a", "overrides": [], "config": {}, "seed": 1, "metrics": {}}


def full_record() -> RunRecord:
    """As large as a real one gets: the paper's multiplication run, 36 cells of 500 examples, both parse rules."""
    rng = np.random.default_rng(0)
    metrics = "accuracy mae mse rmse r2 median_error log_mae log_r2 pearson spearman mape mape_median mape_clipped"
    names = [*metrics.split(), "within_1_percent", "unparsable", "count"]
    sizes = {"interpolate": 25 * 500, "extrapolate": 11 * 500}
    cells = [f"{a}x{b}" for a in range(1, 6) for b in range(1, 6)]
    wide = [f"{a}x6" for a in range(1, 7)] + [f"6x{a}" for a in range(1, 6)]
    values = iter(rng.lognormal(0, 4, 1000).tolist())
    return RunRecord(
        id="multiplication-gpt2_small-ntl_was-s1-0123456789ab",
        overrides=["dataset=multiplication", "scale=paper", "model=gpt2_small", "loss=ntl_was", "loss.weight=0.3"],
        config={f"group{g}": {f"a_setting_{k}": "a value" for k in range(12)} for g in range(6)},
        seed=1,
        metrics={f"{split}/{name}{rule}": next(values) for split in sizes for name in names for rule in ("", "@paper")}
        | {f"{split}/{name}:{c}": 1.5 for split in sizes for name in names[:4] for c in ("mode", "median", "mean")}
        | {f"{split}/count": count for split, count in sizes.items()},
        git={"commit": "0" * 40, "dirty": False},
        packages=dict.fromkeys(("torch", "transformers", "tokenizers", "numpy", "datasets", "hydra"), "10.11.12"),
        device="NVIDIA H200",
        data={"files": {f"{s}.jsonl": "0" * 64 for s in ("train", "validation", *sizes)}, "rows": dict(sizes)},
        steps=10_000,
        examples_seen=2_560_000,
        tokens_seen=60_000_000,
        wall_time_s=901.25,
        peak_memory_bytes=8_000_000_000,
        groups={
            split: {cell: {name: next(values) for name in ("accuracy", "mape", "unparsable")} for cell in part}
            for split, part in (("interpolate", cells), ("extrapolate", wide))
        },
        curves={"loss": thin_curve([[step, next(values)] for step in range(500)])},
        correct={split: pack_bits(rng.random(n) < 0.4) for split, n in sizes.items()},
        errors={s: pack_errors(rng.lognormal(0, 9, 1000)) for s in sizes},
        digit_histograms={s: {whose: {"leading": [1000] * 10} for whose in ("answer", "prediction")} for s in sizes},
        ids_sha256=dict.fromkeys(sizes, "0" * 64),
        predictions_sha256="0" * 64,
    )


def small_record(**changes: object) -> RunRecord:
    values = {"id": "a", "overrides": ["seed=1"], "config": {"seed": 1}, "seed": 1, "metrics": {"test/mae": 0.1}}
    return RunRecord(**{**values, **changes})  # type: ignore[arg-type]


def test_a_full_record_keeps_to_its_size() -> None:
    record = full_record()
    assert len(dumps({**to_json(record), "curves": {}, "correct": {}, "errors": {}})) < 10 * 1024
    # 18,000 examples in bits and twice 1,000 errors
    assert sum(len(text) for text in [*record.correct.values(), *record.errors.values()]) < 9 * 1024


def test_a_record_comes_back(tmp_path: Path) -> None:
    record = full_record()
    back = read_record(write_record(tmp_path / "new" / "record.json", record))
    for item in dataclasses.fields(RunRecord):
        if item.name not in ("metrics", "groups", "curves"):
            assert getattr(back, item.name) == getattr(record, item.name), item.name
    assert back.metrics == pytest.approx(record.metrics, rel=1e-9)
    assert back.groups["extrapolate"]["6x5"] == pytest.approx(record.groups["extrapolate"]["6x5"], rel=1e-4)
    assert back.curves["loss"][-1][0] == 499
    assert to_json(back) == to_json(record)


def test_metrics_keep_ten_digits_and_groups_five() -> None:
    metrics = {"test/r2": 0.99999999987654, "test/mse": 5.105061868547476e16, "test/count": 11340.0, "test/mae": -0.0}
    payload = to_json(small_record(metrics=metrics, groups={"test": {"3x2": {"accuracy": 2 / 3, "count": 500.0}}}))
    assert payload["metrics"] == {
        "test/r2": 0.9999999999,
        "test/mse": 5.105061869e16,
        "test/count": 11340,
        "test/mae": 0,
    }
    assert json.dumps(payload["metrics"]).endswith('"test/count": 11340, "test/mae": 0}')
    assert payload["groups"] == {"test": {"columns": ["accuracy", "count"], "rows": {"3x2": [0.66667, 500]}}}


def test_a_record_with_more_digits_and_groups_in_full_is_the_same_record(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    metrics = {"test/mae": 0.12345678901234568, "test/count": 9.0}
    path.write_text(json.dumps({**GOOD, "metrics": metrics, "groups": {"test": {"1x1": {"accuracy": 1.0}}}}))
    before, record = path.read_bytes(), read_record(path)
    assert record.metrics == metrics
    assert record.groups == {"test": {"1x1": {"accuracy": 1.0}}}
    write_record(path, record)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("config", "lost"),
    [
        ({"loss": {"name": "ce", "number": None}, "model": {"head": "lm"}}, "ntl"),
        ({"loss": {"name": "mse", "number": {}}, "model": {"head": "regression"}}, "ce"),
        ({"loss": {"name": "ntl_was", "number": {}}, "model": {"head": "lm"}}, ""),
    ],
)
def test_a_term_that_the_loss_lacks_is_not_read_as_zero(tmp_path: Path, config: dict[str, Any], lost: str) -> None:
    """Records of older versions have 0.0 there; a resumed run may have both."""
    zeros = [[100, 0.0], [200, 0.0]]
    curves = {"loss": [[100, 1.5]], "ce": zeros, "ntl": zeros, "eval_ce": zeros, "eval_ntl": [[100, 0.0], [200, 0.25]]}
    metrics = {"validation/ce": 0.0, "validation/ntl": 0.0, "test/mae": 0.0}
    record = small_record(config=config)
    path = write_record(tmp_path / "a.json", record)
    payload = json.loads(path.read_text()) | {"curves": curves, "metrics": metrics}
    path.write_text(json.dumps(payload))
    read = read_record(path)
    expected = dict(curves)
    for name in [lost] if lost else []:
        del metrics[f"validation/{name}"], expected[name]
        expected[f"eval_{name}"] = [[200, 0.25]]
    if lost == "ce":
        del expected["eval_ce"]
    assert (read.curves, read.metrics) == (expected, metrics)
    # Published again it is the same record, and its file stays as it is.
    before = path.read_bytes()
    assert write_record(path, read) == path
    assert path.read_bytes() == before


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    metrics = {"test/pearson": math.nan, "test/r2": -math.inf, "test/mae": np.float32(0.5), "test/count": np.int64(3)}
    path = write_record(tmp_path / "record.json", small_record(metrics=metrics))
    assert read_record(path).metrics == {"test/pearson": None, "test/r2": None, "test/mae": 0.5, "test/count": 3}
    assert "NaN" not in path.read_text()
    assert '"test/pearson":null' in path.read_text().replace(" ", "")


def test_writing_twice(tmp_path: Path) -> None:
    path = write_record(tmp_path / "record.json", small_record())
    before = path.read_bytes(), path.stat().st_mtime_ns
    write_record(path, small_record())
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    with pytest.raises(UserError, match="a different record is there"):
        write_record(path, small_record(seed=2))
    assert path.read_bytes() == before[0]
    write_record(path, small_record(seed=2), overwrite=True)
    assert read_record(path).seed == 2
    assert os.listdir(tmp_path) == ["record.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{\n\n'", r"record\.json:3: broken JSON"),
        ("[]", "not a run record"),
        (json.dumps({**GOOD, "schema": 2}), r"written by a newer ntl \(record schema 2, here 1\): upgrade"),
        (json.dumps({"schema": 1, "id": "a", "config": {}}), "lacks overrides, seed, metrics"),
        (json.dumps({**GOOD, "sede": 1}), "unknown keys sede"),
        (json.dumps({**GOOD, "seed": "1"}), "'seed' is \"1\", not a whole number"),
        (json.dumps({**GOOD, "metrics": {"test/mae": "1"}}), "'metrics.test/mae' is \"1\", not a number"),
        (
            json.dumps({**GOOD, "groups": {"test": {"columns": ["a"], "rows": {"x": []}}}}),
            "'groups' cannot be unpacked",
        ),
        (json.dumps({**GOOD, "metrics": {"test/count": 9}, "correct": {"test": "!"}}), "not packed bits: '!'"),
    ],
)
def test_bad_files_give_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_record(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_secret_of_the_environment_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "planted/5ec4e7")
    config = {"model": {"path": "https://me:pla@host/planted%2F5ec4e7", "sizes": [1, "planted/5ec4e7"]}}
    overrides = ["model.path=planted/5ec4e7", "seed=1"]
    record = RunRecord(id="a", overrides=overrides, config=config, seed=1, metrics={})
    path = write_record(tmp_path / "record.json", record)
    found = read_record(path)
    assert found.config == {"model": {"path": "https://<login>@host/<MY_TOKEN>", "sizes": [1, "<MY_TOKEN>"]}}
    assert found.overrides == ["model.path=<MY_TOKEN>", "seed=1"]
    assert write_record(path, record) == path  # the same record still
    assert "5ec4e7" not in path.read_text()


def test_steps_until_the_validation_loss_is_below_a_value() -> None:
    curves = {"eval_ce": [[500, 1.2], [1000, 1.0], [1500, 0.9], [2000, 1.1]]}
    bare: dict[str, Any] = {key: value for key, value in GOOD.items() if key != "schema"}
    record = RunRecord(**{**bare, "curves": curves, "steps": 2000})
    assert record.value("validation/steps_until_ce_1.0") == 1500
    assert record.value("validation/steps_until_ce_1.15") == 1000
    assert record.value("validation/steps_until_ce_0.5") == 2000  # never: the last step of the run
    assert record.has("validation/steps_until_ce_0.5")
    assert not RunRecord(**bare).has("validation/steps_until_ce_0.5")
