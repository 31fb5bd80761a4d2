"""The benchmark of the implementations: what is compared computes the same, and every case says what it is."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ntl.config import UserError
from ntl.training import implementation_benchmark as module
from ntl.training.implementation_benchmark import (
    SHAPES,
    Case,
    cases,
    gradient_error,
    gradient_errors,
    losses_of_logits,
    run_all,
    run_case,
)
from ntl.training.loss_benchmark import Setting, main

SMALL = Setting(batch=2, length=8, vocab=100)


def test_the_cases_are_those_that_were_promised() -> None:
    found = list(cases(SHAPES, "cpu"))
    grid = {
        (case.setting.batch, case.setting.length, case.setting.vocab, case.setting.dtype, case.setting.share)
        for case in found
        if (case.part, case.threads, case.heap) == ("loss", 1, "cold")
    }
    assert grid == {(*shape, dtype, share) for shape in SHAPES for dtype in module.DTYPES for share in (0.8, 0.015)}
    assert [case.ignored for case in found if case.part == "linear"] == [0.0, 0.72]
    assert {(case.threads, case.heap) for case in found} == {(1, "cold"), (2, "cold"), (1, "warm")}
    # The heap stays warm once it is.
    heaps = [case.heap for case in found]
    assert heaps == sorted(heaps)
    assert {(case.threads, case.heap) for case in cases(SHAPES, "cuda")} == {(1, "cold")}


def test_implementations_of_one_loss_agree() -> None:
    case = Case(SMALL, kinds=module.OTHER_KINDS)
    vocab, labels = module._labels(case)
    logits = torch.randn(*labels.shape, SMALL.vocab)
    found = {name: loss(logits.clone()).item() for name, loss in losses_of_logits(case, vocab, labels).items()}
    was = found["was reference"]
    assert found["was fused"] == pytest.approx(was, rel=1e-5)
    assert found["was in place"] == pytest.approx(was, rel=1e-5)
    assert found["ce fused"] == pytest.approx(found["ce"], rel=1e-5)
    assert found.get("ntloss", was) == pytest.approx(was, rel=1e-5)
    assert found.get("ntloss reweighed", was + 1) != pytest.approx(was, rel=1e-2)
    assert {f"{kind} fused" for kind in module.OTHER_KINDS} < found.keys()


def test_errors_of_gradients() -> None:
    exact = gradient_error(lambda z: (z**2).sum(), lambda z: 2 * (z**2).sum(), torch.arange(1.0, 6.0))
    assert exact == pytest.approx(0.5)
    single = gradient_errors(Case(SMALL, kinds=("mse",)), rows=4)
    half = gradient_errors(Case(replace(SMALL, dtype="bfloat16")), rows=4)
    assert {"ce", "was reference", "was fused", "was in place", "mse fused"} == single.keys()
    assert max(single.values()) < 1e-6 < 1e-4 < half["was fused"] < 4e-3


@pytest.mark.parametrize("part", ["loss", "linear"])
def test_a_case(part: str) -> None:
    said: list[str] = []
    rows = run_case(Case(SMALL, part, ignored=0.5), 3, said.append)
    assert rows[0]["loss"] == "ce"
    assert rows[0]["ratio"] == 1
    assert {row["ignored"] for row in rows} == {0.5}
    assert all(row["peak_mib"] >= 0 and row["rounds"] == 3 for row in rows)
    assert len(said) == 1 + len(rows)
    assert said[0].startswith(f"{part} 2x8x100 float32 share 0.8 threads 1 heap cold ignored 0.5")


@pytest.mark.slow
def test_a_step() -> None:
    rows = run_case(Case(replace(SMALL, vocab=2100, share=0.3), "step"), 2, [].append)
    assert [row["loss"] for row in rows] == ["ce", "ce auto", "ntl_was reference", "ntl_was auto"]


def test_more_than_there_is_room_for_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "sysconf", lambda name: 1)
    said: list[str] = []
    assert run_case(Case(SMALL), 3, said.append) == []
    assert said == ["skipped 2x8x100 float32: it needs 0.0 GiB, and 0.0 are free"]


def test_what_needs_more_memory_than_there_is_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2 * 8 * 100 * 4
    monkeypatch.setattr(module.os, "sysconf", {"SC_AVPHYS_PAGES": 9 * size, "SC_PAGE_SIZE": 0.5}.__getitem__)
    said: list[str] = []
    names = [row["loss"] for row in run_case(Case(SMALL), 2, said.append)]
    assert {"ce", "was fused", "was in place"} <= set(names)
    assert "was reference" not in names
    assert said[1] == f"  {'was reference':<24} left out: more than the 0.0 GiB that are free"


def test_mistakes_are_one_line() -> None:
    with pytest.raises(UserError, match=r"--rounds 1: the spread needs at least 2"):
        next(run_all(SHAPES, "cpu", 1))


def test_every_case_is_written_as_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, up to a case that fails."""
    found = iter([[{"loss": "ce", "ratio": 1.0}], [{"loss": "was", "ratio": 0.5}]])
    monkeypatch.setattr(module, "cases", lambda shapes, device: [Case(Setting(vocab=shapes[0][2]))] * 3)
    monkeypatch.setattr(module, "run_case", lambda case, rounds, say: next(found))
    with pytest.raises(RuntimeError):  # a generator's StopIteration
        main(["--implementations", "--shapes", "1x2x30", "--rounds", "2", "--out", str(tmp_path / "rows.csv")])
    assert (tmp_path / "rows.csv").read_text().splitlines()[1:] == ["loss,ratio", "ce,1.0", "was,0.5"]
    with pytest.raises(SystemExit):
        main(["--implementations", "--shapes", "1x2x3"])
