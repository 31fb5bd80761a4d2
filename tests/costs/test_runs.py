import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ntl.config import compose
from ntl.costs.runs import ASSUMPTIONS, Cost, Costs, Sum, kind_of, stored_parameters
from ntl.results import RunRecord

MakeRecord = Callable[..., RunRecord]
TINY = ["dataset=arithmetic", "model=gpt2_tiny", "scale=tiny"]
# A published model has the parameters of its config, whatever the tokenizer.
SMALL = ["dataset=arithmetic", "model=t5_small", "scale=small", "model.pretrained=false"]
T5_SMALL_PARAMETERS = 60_506_624  # the published checkpoint's, with tied embeddings counted once


def test_measured_is_the_median_of_the_kind(timed_record: MakeRecord) -> None:
    records = [timed_record(seconds) for seconds in (10.0, 90.0, 20.0)] + [timed_record(1.0, dataset="rjokes")]
    cost = Costs(records).of(compose(TINY))
    assert (cost.seconds, cost.device, cost.measured) == (20.0, "CPU", True)
    assert Costs(records).measured[("arithmetic", "gpt2_tiny", "tiny", "500")] == 20.0


def test_weights_in_a_folder_are_counted_there(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = {"a": torch.zeros(30, 4), "b": torch.zeros(7)}
    save_file(weights, tmp_path / "model-00001.safetensors", metadata={"format": "pt"})
    save_file({"c": torch.zeros(3)}, tmp_path / "model-00002.safetensors")
    places = {"a": "model-00001.safetensors", "b": "model-00001.safetensors", "c": "model-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    # 120 + 7 + 3; without the files, those of the published config.
    assert Costs([]).parameters(compose([*SMALL[:3], f"model.path={tmp_path}"])) == 130
    assert Costs([]).parameters(compose(SMALL[:3])) == T5_SMALL_PARAMETERS
    (tmp_path / "model-00002.safetensors").write_bytes(b"\xff" * 20)
    assert stored_parameters(tmp_path) == 0


def test_the_device_that_most_records_have(timed_record: MakeRecord) -> None:
    gpu = {"device": "NVIDIA H200", "num_devices": 2}
    records = [timed_record(10.0), timed_record(1.0, **gpu), timed_record(3.0, **gpu)]
    cost = Costs(records).of(compose(TINY))
    assert (cost.seconds, cost.device) == (4.0, "NVIDIA H200")  # device seconds: wall time times the number of devices


def test_a_tiny_run_without_records_costs_what_others_on_its_data_cost(timed_record: MakeRecord) -> None:
    records = [timed_record(10.0, model="t5_tiny"), timed_record(30.0, model="rt_tiny"), timed_record(9.0, "rjokes")]
    cost = Costs(records).of(compose(TINY))
    assert (cost.seconds, cost.device, cost.measured) == (20.0, "CPU", False)
    cost = Costs(records[2:]).of(compose(TINY))  # the cost of runs on other data
    assert (cost.seconds, cost.device, cost.measured) == (9.0, "CPU", False)


def test_runs_of_an_hour_by_a_step_of_those_of_another_length_else_by_the_work_of_a_core(
    timed_record: MakeRecord,
) -> None:
    hour = ["dataset=arithmetic", "model=llama_mini", "scale=hour"]
    long, short = compose(hour), compose([*hour, "trainer.max_steps=5000"])
    records = [timed_record(3000.0, model="llama_mini", scale="hour")]  # 20,000 steps
    assert (Costs(records).of(long).seconds, Costs(records).of(long).measured) == (3000.0, True)
    cost = Costs(records).of(short)
    assert (cost.seconds, cost.device, cost.measured) == (750.0, "CPU", False)
    # 6 x parameters x 64 examples of 20 tokens a step, at 50 GFLOP/s.
    costs = Costs([timed_record(1.0)])
    assert costs.of(short).seconds == pytest.approx(5000 * 6 * costs.parameters(short) * 64 * 20 / 5e10)


def test_a_larger_run_without_records_is_estimated_by_its_arithmetic(timed_record: MakeRecord) -> None:
    long = [*SMALL, "trainer.batch_size=4096", "trainer.accumulation_steps=2", "trainer.max_steps=100"]
    other = timed_record(1e6, model="t5_base", scale="small", tokens_seen=3000)  # 30 tokens an example
    cost = Costs([other]).of(compose(long))
    flops = 6 * T5_SMALL_PARAMETERS * 4096 * 2 * 30
    assert cost.seconds == pytest.approx(100 * flops / (0.4 * 990e12))
    assert (cost.device, cost.measured) == ("H100", False)
    assert cost.disk == T5_SMALL_PARAMETERS * 12 + 5_000_000
    # Two checkpoints are kept during training, and a third is written before the first is deleted.
    assert cost.disk_more == T5_SMALL_PARAMETERS * 12 * 2

    exact = Costs([other]).of(compose([*long, "trainer.bf16=false"]))
    assert exact.seconds == pytest.approx(100 * flops / (0.4 * 67e12))
    # Without a record of the data set: the tokens of other sets; without any record: as many as fit.
    others = [timed_record(1.0, dataset=name, tokens_seen=n) for name, n in (("rjokes", 1000), ("gsm8k", 5000))]
    assert Costs(others).of(compose(long)).seconds == pytest.approx(cost.seconds)
    full = Costs([]).of(compose([*long, "trainer.max_input_length=300"]))
    assert full.seconds == pytest.approx(10 * cost.seconds)


def test_runs_with_heads_are_of_a_kind_of_their_own(timed_record: MakeRecord) -> None:
    four = compose(["dataset=arithmetic", "model=gpt2_tiny", "scale=tiny", "objective=mtp", "objective.heads=4"])
    plain, with_heads = timed_record(10.0), timed_record(30.0)
    with_heads.config["objective"] = {"name": "mtp", "heads": 4}
    costs = Costs([plain, with_heads])
    assert (costs.of(compose(TINY)).seconds, costs.of(four).seconds) == (10.0, 30.0)
    # Without such a record a step at scale=small multiplies with the unembedding of 50,257 tokens three times more.
    small = [
        "dataset=arithmetic",
        "model=gpt2_small",
        "scale=small",
        "model.pretrained=false",
        "trainer.batch_size=8192",
    ]
    more = Costs([]).of(compose([*small, "objective=mtp", "objective.heads=4"])).seconds
    assert more / Costs([]).of(compose(small)).seconds == pytest.approx(1 + 3 * 50_257 * 768 / 124_439_808)


def test_a_step_takes_the_time_of_its_launches_at_least() -> None:
    assert Costs([]).of(compose([*SMALL, "trainer.batch_size=1", "trainer.max_steps=1000"])).seconds == 30.0


def test_sums(timed_record: MakeRecord) -> None:
    costs = Costs([timed_record(10.0)])
    tiny, small = compose(TINY), compose([*SMALL, "trainer.batch_size=1", "trainer.max_steps=1000"])
    total = costs.total([tiny, small, tiny])
    assert total.runs == 3
    assert total.seconds == {"CPU": 20.0, "H100": 30.0}
    assert total.basis == "estimated, 2 of 3 measured"
    assert total.disk == 2 * costs.of(tiny).disk + costs.of(small).disk
    assert costs.total([tiny]).basis == "measured"
    assert costs.total([small]).basis == "estimated"
    assert costs.total([]) == Sum(0, {}, 0, 0)
    assert costs.total([]).basis == ""


def test_kinds_are_those_of_planned_runs() -> None:
    assert kind_of(compose(TINY)) == ("arithmetic", "gpt2_tiny", "tiny", "500")
    assert isinstance(Costs([]).of(compose(TINY)), Cost)
    assert "990 TFLOP/s" in ASSUMPTIONS


def test_the_disk_of_runs_together() -> None:
    costs = Costs([])
    runs = [compose([*SMALL, *more]) for more in ([], ["trainer.keep_checkpoints_after=2"], ["trainer.save_steps=0"])]
    checkpoint = T5_SMALL_PARAMETERS * 12
    assert [costs.of(run).disk for run in runs] == [n * checkpoint + 5_000_000 for n in (1, 2, 1)]
    assert [costs.of(run).disk_more for run in runs] == [n * checkpoint for n in (2, 1, 0)]
    assert costs.disk_needed(runs, at_once=9) == 7 * checkpoint + 15_000_000
    assert costs.disk_needed(runs, at_once=1) == 6 * checkpoint + 15_000_000
    assert costs.disk_needed(runs[1:], at_once=1) == 4 * checkpoint + 10_000_000
    assert costs.disk_needed([], at_once=1) == 0


def test_a_record_that_does_not_say_what_it_ran_prices_nothing(timed_record: MakeRecord) -> None:
    known, bare = timed_record(60.0), replace(timed_record(9.0), config={})
    config = compose(TINY)
    assert Costs([known, bare]).of(config).seconds == Costs([known]).of(config).seconds == 60.0
