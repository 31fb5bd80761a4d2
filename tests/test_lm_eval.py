"""docs/lm_eval: its rules are those of ntl.evaluation, and lm_eval measures what a record says."""

import importlib.util
import json
import math
import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.evaluation import number_metrics

TASKS = Path(__file__).resolve().parents[1] / "docs" / "lm_eval"
LM_EVAL = "lm_eval==0.4.13"
utils = SimpleNamespace(**runpy.run_path(str(TASKS / "utils.py")))
NUMBERS = st.text(alphabet="0123456789.,+-−eE/⁄½⅓²³ #$€%x()\u00a0\u202f\n", max_size=30)


def test_the_rules_need_numpy_alone(tmp_path):
    """lm_eval's environment has no ntl: its source is that of the clone, and omegaconf is not there, for one."""
    program = f"""
import runpy, sys
sys.modules |= dict.fromkeys(["torch", "transformers", "datasets", "omegaconf", "hydra", "yaml"])
tasks = runpy.run_path({str(TASKS / "utils.py")!r})
docs = [{{"id": "test/00000", "answer": "12"}}]
print(tasks["RULES"].keys(), tasks["by_default"]([["1/2"]], docs), tasks["by_paper"]([["1/2"]], docs))
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stdout == (
        "dict_keys(['default', 'paper']) [{'value': '0.5', 'error': 11.5}] [{'value': '2.0', 'error': 10.0}]\n"
    ), done.stderr


@given(st.lists(st.tuples(NUMBERS, st.integers(-(10**12), 10**12)), min_size=1, max_size=8))
def test_both_rules_score_as_ntl_does(pairs):
    docs = [{"id": "test/00000", "answer": str(answer)} for _, answer in pairs]
    texts = [text for text, _ in pairs]
    for rule, filtered in (("default", utils.by_default), ("paper", utils.by_paper)):
        rows = [utils.scores({}, [each]) for each in filtered([[text] for text in texts], docs)]
        ours = number_metrics(texts, [doc["answer"] for doc in docs], rule=rule)
        for metric, combine in (("mae", utils.mean), ("rmse", utils.root_mean_square)):
            value = combine([row[metric] for row in rows])
            assert math.isnan(value) == math.isnan(ours[metric])
            assert math.isnan(value) or value == pytest.approx(ours[metric], rel=1e-12)


@pytest.fixture(scope="module")
def python_with_lm_eval(tmp_path_factory):
    """An interpreter that has lm_eval: this one, or that of an environment of its own on top of this one."""
    if importlib.util.find_spec("lm_eval"):
        return sys.executable
    folder = tmp_path_factory.mktemp("lm") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")  # torch is not installed a second time
    done = subprocess.run(
        [folder / "bin/pip", "install", "-q", "--no-compile", LM_EVAL], capture_output=True, text=True
    )
    if done.returncode and ("No matching distribution" in done.stderr or "Connection" in done.stderr):
        pytest.skip(f"{LM_EVAL} cannot be installed: no package index can be reached")
    assert done.returncode == 0, done.stderr
    return str(folder / "bin/python")


@pytest.mark.soak
def test_lm_eval_measures_what_the_record_says(python_with_lm_eval, tmp_path):
    from ntl.config import compose
    from ntl.data.prepared import Prepared
    from ntl.results import read_record
    from ntl.training.train import train

    overrides = [
        "dataset=noisy_numbers",
        "dataset.test_rows=100",
        "trainer.max_steps=60",
        "device=cpu",
        "tracking=none",
    ]
    config = compose([*overrides, f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}"])
    path = train(config, overrides)
    record = read_record(path)
    checkpoint = next(path.parent.glob("checkpoints/checkpoint-*"))
    command = [python_with_lm_eval, "-m", "lm_eval", "run", "--model", "hf", "--device", "cpu", "--batch_size", "50"]
    command += ["--model_args", f"pretrained={checkpoint},add_bos_token=False", "--include_path", str(TASKS)]
    command += ["--tasks", "ntl_noisy_numbers_test", "--output_path", str(tmp_path / "found")]
    command += ["--metadata", f"data={Prepared(config.dataset, config.data_dir).folder}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(next((tmp_path / "found").rglob("results*.json")).read_text())["results"]
    for rule, suffix in (("default", ""), ("paper", "@paper")):
        for metric in ("mae", "rmse", "unparsable"):
            measured = found["ntl_noisy_numbers_test"][f"{metric},{rule}"]
            assert measured == pytest.approx(record.metrics[f"test/{metric}{suffix}"], rel=1e-9)
