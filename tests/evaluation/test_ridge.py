import numpy as np
import pytest

from ntl.evaluation import ridge
from ntl.evaluation.ridge import Ridge

PARTS = {"a": 10.0, "b": -3.0, "c": 250.5, "d": 0.25}


def rows(count: int, seed: int) -> list[dict[str, str]]:
    """What a text is worth is a sum over its characters."""
    drawn = np.random.default_rng(seed).choice(list(PARTS), size=(count, 6))
    return [
        {"question": "".join(text), "answer": f"{sum(PARTS[part] for part in text):.2f}"} for text in drawn.tolist()
    ]


def test_a_linear_text_is_learned() -> None:
    test = rows(50, 2)
    model = Ridge(rows(300, 0), rows(50, 1))
    answers = np.array([float(text) for text in model.answers([row["question"] for row in test])])
    known = np.array([float(row["answer"]) for row in test])
    assert np.abs(answers - known).mean() < 0.2 * np.abs(known - np.median(known)).mean()
    assert model.penalty == min(ridge.PENALTIES), "nothing is noise here"
    assert model.answers(["aaaaaa"]) == Ridge(rows(300, 0), rows(50, 1)).answers(["aaaaaa"])


def test_noise_is_penalized() -> None:
    noise = [{**row, "answer": str(n % 7)} for n, row in enumerate(rows(300, 0))]
    assert Ridge(noise, rows(50, 1)).penalty > min(ridge.PENALTIES)


def test_what_cannot_be_fitted_says_why() -> None:
    huge = [{**row, "answer": "1e400"} for row in rows(5, 0)]
    with pytest.raises(ValueError, match="infinity"):
        Ridge(huge, rows(5, 1))
    large = [{"question": f"n {index}", "answer": f"{index}e160"} for index in range(40)]
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="so large that its fit overflows"):
        Ridge(large, large)
