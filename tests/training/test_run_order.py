"""What the loss is for: on noisy numbers NTL-WAS is nearer to the noise-free truth than CE."""

from pathlib import Path
from statistics import mean

import pytest

from ntl.config import compose
from ntl.results import read_record
from ntl.training import run

SEEDS = (1, 2, 3, 4)


@pytest.mark.slow
def test_was_is_below_ce_on_noise_free_rmse(data_dir: Path, tmp_path: Path) -> None:
    def rmse(loss: str, seed: int) -> float:
        where = [f"data_dir={data_dir}", f"output_dir={tmp_path}", "tracking=none", "device=cpu"]
        path = run(compose(["dataset=noisy_numbers", "scale=tiny", f"loss={loss}", f"seed={seed}", *where]))
        value = read_record(path).metrics["test/rmse_truth"]
        assert value is not None
        return value

    ce, was = ([rmse(loss, seed) for seed in SEEDS] for loss in ("ce", "ntl_was"))
    print("CE", ce, "NTL-WAS", was)
    assert mean(was) < mean(ce)
    assert sum(low < high for low, high in zip(was, ce, strict=True)) >= 3
    # Both have learnt: the mean of the training answers is off by 16.6.
    assert max(ce) < 10
