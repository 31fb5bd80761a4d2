"""The values of Figures 1b and 2: those of the authors, and the committed files."""

import csv
import math
import runpy
from pathlib import Path

import pytest

CURVES = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "loss_curves.py"))
WAS = [3.90381, 2.96794, 2.03206, 1.09619, 0.16032, 1.09619, 2.03206, 2.96794, 3.90381, 4.83968]


def test_by_digit_is_the_authors_curve() -> None:
    rows = CURVES["by_digit"]()
    assert [row["ntl_was"] for row in rows] == pytest.approx(WAS, abs=5e-6)
    rest = 9 * math.exp(0.01)
    for row in rows:
        logit = 5.0 if row["predicted"] == 4 else 0.01
        assert row["ce"] == pytest.approx(math.log(math.exp(5) + rest) - logit, rel=1e-5)
        mean = (math.exp(5) * row["predicted"] + math.exp(0.01) * (45 - row["predicted"])) / (math.exp(5) + rest)
        assert row["ntl_mse"] == pytest.approx((mean - 4) ** 2, rel=1e-5)


def test_by_mass_by_hand() -> None:
    rows = {(row["p3"], row["p5"]): row for row in CURVES["by_mass"](4)}
    assert len(rows) == 15
    for (p3, p5), row in rows.items():
        p4 = 1 - p3 - p5
        assert row["ce"] == (pytest.approx(-math.log(p4), abs=1e-5) if p4 else math.inf)
        assert row["ntl_mse"] == pytest.approx((p5 - p3) ** 2, abs=1e-6)
        assert row["ntl_was"] == pytest.approx(p3 + p5, abs=1e-6)
        original = math.log(sum(math.exp(5 * p) for p in (p3, p4, p5))) - 5 * p4
        assert row["ce_original"] == pytest.approx(original, abs=1e-5)


def test_the_committed_files_are_what_the_losses_give(tmp_path: Path) -> None:
    CURVES["main"](["--out", str(tmp_path)])
    for name in ("losses_by_digit.csv", "losses_by_mass.csv"):
        ours, committed = (
            list(csv.reader((folder / name).open(encoding="utf-8"))) for folder in (tmp_path, CURVES["FOLDER"])
        )
        assert ours[0] == committed[0]
        values = [[float(value) for row in rows[1:] for value in row] for rows in (ours, committed)]
        assert values[0] == pytest.approx(values[1], rel=1e-5)
