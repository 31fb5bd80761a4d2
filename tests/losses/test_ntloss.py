"""docs/losses.md, From ntloss to ntl: every row of both tables, with ntloss in an environment of its own."""

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import ntloss_cases
import pytest
import torch
from torch import Tensor

from ntl import losses
from ntl.numbers import NumberVocabulary

ROOT = Path(__file__).resolve().parents[2]
SECTION = (
    (ROOT / "docs" / "losses.md").read_text("utf-8").partition("\n## From ntloss to ntl\n")[2].partition("\n## ")[0]
)
ROWS = [re.findall(r"(?<=\|)`([^`]+)`(?=\|)", line) for line in SECTION.splitlines() if line.startswith("|`")]
# In the form of the page, and not on it; those of NumberLevelLoss hold for one number predicted too low.
SAME = [row for row in ROWS if len(row) == 2] + [
    [
        'NTLossDotProduct(t)(x, y, reduction="none")',
        "81.81 * (m := ntl_was_vocab(x, y, v, cost=torch.zeros(10, 10), text_cost=1.0, reduction='none'))"
        " + (1 - m) * ntl_mse(x, y, v, reduction='none')",  # 81.81 is 1.01 * 9**2
    ],
    ["NumberLevelLoss(t, reweigh=False)(x, ten)", "(r := ntl_number_level(x, ten, v)) / (2 + r)"],
    [
        "NumberLevelLossLooped(t, float_level=True, reweigh=False)(x, one_point_zero)",
        "(r := ntl_number_level(x, one_point_zero, v, point_id=t.convert_tokens_to_ids('.'))) / (2 + r)",
    ],
]
DIFFERENT = [row for row in ROWS if len(row) == 3] + [
    ["weighted(x, y, 0 * w).requires_grad", "False", "True"],
    ["weighted(x, y, nan * w).isnan()", "True", "ValueError"],
    ['was(many.half(), many_y, reduction="sum") < 1e5', "False", "True"],  # 24,000 numbers: infinite, or 80,392
    ["was(no_digits_at_numbers, y).isnan()", "True", "False"],  # counted as uniform
    ["was(x[0], y[0]).shape", "ValueError", "()"],
    ["was(x, y.int()).shape", "TypeError", "()"],
    # Without digits alone: what float() reads, or ASCII decimals, also behind a space mark.
    ['value("▁4"), value("1e3"), value("٣")', "nan, 1000, 3", "4, nan, nan"],
    ["squash(0.5)", "AssertionError", "ValueError"],
    ["level(0 * x, zero)", "1", "4.5"],  # always 1, or in units
    ["gradient(level, x, zero).abs().max() > 1e-6", "False", "True"],
]
VERSION = "0.3.2"

Found = list[tuple[Any, Tensor | None]]


def names_of_ntl() -> dict[str, Any]:
    names = ntloss_cases.inputs() | {name: getattr(losses, name) for name in losses.__all__}
    vocab = NumberVocabulary.from_tokenizer(names["t"])

    def value(token: str) -> float:
        longer = NumberVocabulary.from_tokenizer(names["t"], digits_only=False)
        return longer.values[names["t"].convert_tokens_to_ids(token)].item()

    def weighted(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        return losses.ce_ntl(logits, labels, vocab, loss_weights=weights).total

    names |= {"v": vocab, "NumberVocabulary": NumberVocabulary, "make": NumberVocabulary.from_tokenizer, "value": value}
    names |= {"was": partial(losses.ntl_was, number_vocab=vocab), "weighted": weighted}
    names |= {"level": partial(losses.ntl_number_level, number_vocab=vocab)}
    return names | {"squash": lambda factor: losses.squashed_cost(vocab.token_values, factor)}


@pytest.fixture(scope="module")
def of_ntloss(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What ntloss gives for the rows of both tables."""
    folder = tmp_path_factory.mktemp("ntloss")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = str(folder / "venv" / "bin" / "python")
    # Without the constraints pip takes the newest torch, with gigabytes of CUDA.
    wanted = ["-c", str(ROOT / "constraints.txt"), "torch", f"ntloss=={VERSION}"]
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode and ("No matching distribution" in done.stderr or "Connection" in done.stderr):
        pytest.skip(f"ntloss=={VERSION} cannot be installed: no package index can be reached")
    assert done.returncode == 0, done.stderr
    torch.save([row[0] for row in [*SAME, *DIFFERENT]], folder / "in.pt")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, ntloss_cases.__file__, str(folder / "in.pt"), str(folder / "out.pt")]
    subprocess.run(command, check=True, env=environment)
    shutil.rmtree(folder / "venv")  # pytest keeps the folders of its last runs
    return torch.load(folder / "out.pt", weights_only=True)


@pytest.mark.soak
@pytest.mark.timeout(3000)  # what is installed is downloaded first
def test_both_calls_give_the_same_values_and_gradients(of_ntloss: Found) -> None:
    assert len(SAME) == 17
    ours = ntloss_cases.evaluate([row[1] for row in SAME], names_of_ntl())
    for row, found, expected in zip(SAME, ours, of_ntloss[: len(SAME)], strict=True):
        for one, other in zip(found, expected, strict=True):  # value and gradient
            assert isinstance(other, Tensor), (row, other)
            size = other.abs().max().item()
            assert size > 1e-3, row
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6 * size, msg=f"{row}: {one}, ntloss has {other}")


@pytest.mark.soak
def test_what_differs_is_what_the_page_says(of_ntloss: Found) -> None:
    assert len(DIFFERENT) == 18
    ours = ntloss_cases.evaluate([row[0] for row in DIFFERENT], names_of_ntl())
    for (call, *cells), theirs, own in zip(DIFFERENT, of_ntloss[len(SAME) :], ours, strict=True):
        for cell, (found, _) in zip(cells, (theirs, own), strict=True):
            expected = cell if cell.endswith("Error") else eval(cell, {**vars(torch)})
            if not isinstance(expected, str | torch.dtype):
                expected = pytest.approx(expected, rel=1e-6, nan_ok=True)
            assert (found.item() if isinstance(found, Tensor) else found) == expected, (call, cell)


def test_our_side_of_each_row_runs() -> None:
    ours = ntloss_cases.evaluate([row[1] for row in SAME], names_of_ntl())
    assert [row for row, (value, _) in zip(SAME, ours, strict=True) if not isinstance(value, Tensor)] == []
