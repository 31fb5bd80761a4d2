"""Records of older versions become the lines that today's version writes."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from ntl.config.folders import RESULTS, ROOT
from ntl.config.loss import LossConfig
from ntl.results import read_record

PUBLISH = runpy.run_path(str(ROOT / "scripts" / "publish.py"))
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "migrate_records.py"))


def function(name: str, **options: Any) -> dict[str, Any]:
    return {"_target_": f"ntl.losses.{name}", "options": options}


CE, SETTINGS = function("cross_entropy"), {"weight": 0.3, "implementation": "auto"}
NONE: dict[str, Any] = {"heads": ["lm"], "base": CE, "number": None, "cost": None, **SETTINGS}
LOSSES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "ce"}, {"kind": "ce"}),
    ({"name": "ntl_huber", "number": function("ntl_huber", delta=1.0)}, {"kind": "huber", "options": {"delta": 1.0}}),
    ({"name": "gce", "base": function("gaussian_cross_entropy", sigma=2)}, {"kind": "gce", "options": {"sigma": 2}}),
    (
        {
            "name": "gce_ntl_was",
            "base": function("gaussian_cross_entropy", sigma=2),
            "number": function("ntl_was_cdf", sigma=2),
        },
        {"kind": "gce+was_cdf", "options": {"sigma": 2}},
    ),
    (
        {"name": "ntl_was_squashed", "number": function("ntl_was"), "cost": function("squashed_cost", factor=3.0)},
        {"kind": "was", "squash": 3.0},
    ),
    (
        {"name": "mse", "heads": ["regression", "masked_number"], "number": function("squared_error")},
        {"name": "squared_error", "kind": "squared_error"},
    ),
]


@pytest.mark.parametrize(("before", "now"), LOSSES, ids=[before["name"] for before, _ in LOSSES])
def test_the_functions_of_a_loss_become_its_kind(before: dict[str, Any], now: dict[str, Any], tmp_path: Path) -> None:
    """Those of commit c70519fb, in the folder of a run whose record is of schema 2."""
    line = (RESULTS / "runs" / "arithmetic.jsonl").read_text(encoding="utf-8").split("\n")[0]
    values, run = json.loads(line), tmp_path / json.loads(line)["id"]
    config = {**values["config"], "loss": NONE | before}
    run.mkdir()
    (run / "config.yaml").write_text(json.dumps(config))
    (run / "record.json").write_text(json.dumps({**values, "schema": 2, "config": config}, separators=(",", ":")))
    (place := tmp_path / "copies").mkdir()
    copy = PUBLISH["of_today"](run, place)
    expected = {"squash": None, "options": {}, **SETTINGS, **before, **now}
    assert read_record(copy / "record.json").config["loss"] == {key: expected[key] for key in LossConfig.__match_args__}
    assert json.loads((copy / "config.yaml").read_text())["loss"]["kind"] == now["kind"]


def old(values: dict[str, Any]) -> str:
    """The record as an older version wrote it: a line a key, other names, fields that nothing read."""
    config = json.loads(
        json.dumps(values["config"]).replace("ntl.models.pretrained.build_gpt2", "ntl.models.gpt2.build")
    )
    config["tokenizer"]["max_place"] = 19
    config["loss"] = {"name": "ce", **NONE}
    del config["trainer"]["epochs"], config["beside"]["expectation"]["splits"]
    payload = {**values, "schema": 1, "config": config, "digit_histograms": {}, "mistakes": {}}
    payload["metrics"] = {**values["metrics"], "validation/ntl": 0}
    payload["curves"] = {**values["curves"], "ntl": [[25, 0.0]]}
    payload["errors"] = {key: f"z:{text}" for key, text in values["errors"].items()}
    lines = [f'"{key}":{json.dumps(value)}' for key, value in payload.items()]
    return "{" + ",\n".join(lines) + "}\n"


def test_an_old_record_becomes_the_published_line(tmp_path: Path) -> None:
    lines = (RESULTS / "runs" / "arithmetic.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    line = next(each for each in lines if "validation/ntl" not in each and "-gpt2_tiny-ce-" in each)
    run = tmp_path / json.loads(line)["id"]
    run.mkdir()
    (run / "record.json").write_text(old(json.loads(line)))
    (run / "config.yaml").write_text("model: {_target_: ntl.models.gpt2.build}")
    (run / "predictions.jsonl").write_text("{}")
    (tmp_path / f"{run.name}.json").write_text(old(json.loads(line)))
    SCRIPT["main"]([str(tmp_path), "--out", str(tmp_path / "runs")])
    present = line.replace('"beside":', '"extra_decodings":').replace('"beside=', '"extra_decodings=')
    assert (tmp_path / "runs" / "arithmetic.jsonl").read_text() == present
    # The folder of a run stays as it is; what is published is a copy.
    (tmp_path / "copies").mkdir()
    copy = SCRIPT["migrated_run"](run, tmp_path / "copies")
    assert read_record(copy / "record.json").id == run.name
    assert json.loads((copy / "config.yaml").read_text()) == {"model": {"_target_": "ntl.models.pretrained.build_gpt2"}}
    assert (copy / "predictions.jsonl").read_text() == "{}"
    assert (run / "record.json").read_text().startswith('{"schema":1,')
