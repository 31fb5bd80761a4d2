"""Records of commit 3eb73725 and before become the lines that today's version writes."""

import json
import runpy
from pathlib import Path
from typing import Any

from ntl.config.folders import RESULTS, ROOT
from ntl.results import read_record

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "migrate_records.py"))


def old(values: dict[str, Any]) -> str:
    """The record as an older version wrote it: a line a key, other names, fields that nothing read."""
    config = json.loads(
        json.dumps(values["config"]).replace("ntl.models.pretrained.build_gpt2", "ntl.models.gpt2.build")
    )
    config["tokenizer"]["max_place"] = 19
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
    assert (tmp_path / "runs" / "arithmetic.jsonl").read_text() == line
    # The folder of a run stays as it is; what is published is a copy.
    (tmp_path / "copies").mkdir()
    copy = SCRIPT["migrated_run"](run, tmp_path / "copies")
    assert read_record(copy / "record.json").id == run.name
    assert json.loads((copy / "config.yaml").read_text()) == {"model": {"_target_": "ntl.models.pretrained.build_gpt2"}}
    assert (copy / "predictions.jsonl").read_text() == "{}"
    assert (run / "record.json").read_text().startswith('{"schema":1,')
