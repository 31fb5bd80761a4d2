"""The Regression Transformer memorizes 32 examples and decodes each exactly."""

from pathlib import Path

import pytest

from ntl.config import compose
from ntl.data.dataset import Example, Material
from ntl.data.sets.multiplication import Multiplication
from ntl.results import read_record
from ntl.training import run

PAIRS = [
    *((f"Put together -{n}.{n % 7} and {n * n}.", f"{(10 * n * n - 10 * n - n % 7) / 10:g}") for n in range(11, 27)),
    *((f"What is {n} - {n * 317}?", str(n - n * 317)) for n in range(3, 11)),
    *((f"Round {n}0{n}.00{n} to two decimals.", f"{n}0{n}.0{n // 5}") for n in range(2, 8)),
    ("What is 99999999999999999999 + 0?", "99999999999999999999"),
    ("Divide 1 by 1000000000000.", "0.000000000001"),
]


@pytest.mark.soak
def test_by_heart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def material(self: Multiplication, *args: object, **options: object) -> Material:
        rows = {
            split: [Example(id=f"{split}/{n}", question=q, answer=a) for n, (q, a) in enumerate(PAIRS)]
            for split in self.splits
        }
        return Material({**rows})

    monkeypatch.setattr(Multiplication, "material", material)
    settings = ["trainer.max_steps=500", "trainer.batch_size=32", "trainer.lr=1.5e-2", "tracking=none", "device=cpu"]
    places = [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}"]
    record = read_record(run(compose(["model=rt_tiny", "dataset=multiplication", "loss=ce", *settings, *places])))
    assert len(PAIRS) == 32
    assert record.metrics["interpolate/accuracy"] == 1
    assert record.metrics["interpolate/malformed"] == 0
    assert record.metrics["validation/ce"] == pytest.approx(0, abs=0.01)
