import ast
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import UserError
from ntl.config.data import ArithmeticConfig
from ntl.data import raw
from ntl.data.prepared import Prepared
from ntl.data.sets import deepmind
from ntl.data.sets.arithmetic import EXTRAPOLATE, INTERPOLATE, TRAIN, Arithmetic, answer_of, value_of
from ntl.data.sets.deepmind import OFFICIAL_TREE

SMALL = {"train_rows_per_difficulty": 40, "validation_rows_per_difficulty": 5, "test_rows": 10}


def made(folder: Path, **settings: Any) -> Prepared:
    prepared = Prepared(Arithmetic(ArithmeticConfig(**settings)), folder)
    prepared.prepare()
    return prepared


@pytest.fixture
def tree(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An official tree of sums a + b whose a names the file and whose b the pair; nothing else is asked."""

    def refuse(*_: object, **__: object) -> bool:
        raise AssertionError("files on disk come first")

    monkeypatch.setattr(raw, "download", refuse)
    monkeypatch.setattr(deepmind, "generate", refuse)
    for number, name in enumerate((*TRAIN, INTERPOLATE, EXTRAPOLATE), start=1):
        path = data_dir / OFFICIAL_TREE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"Calculate {number}000 + {i}.\n{number * 1000 + i}\n" for i in range(50)))
    return data_dir / OFFICIAL_TREE


def answers(prepared: Prepared, split: str) -> list[int]:
    return [int(row["answer"]) for row in prepared.rows(split)]


def test_splits(tree: Path, data_dir: Path) -> None:
    prepared = made(data_dir, **SMALL)
    train, validation = answers(prepared, "train"), answers(prepared, "validation")
    counts = {"train": 120, "validation": 15, "interpolate": 10, "extrapolate": 10}
    assert prepared.fingerprint()["rows"] == counts
    # Difficulties take turns, and no pair is used twice.
    assert [answer // 1000 for answer in train] == [1, 2, 3] * 40
    assert [answer // 1000 for answer in validation] == [1, 2, 3] * 5
    assert len({*train, *validation}) == 135
    # Shuffled, each difficulty in an order of its own.
    orders = [[answer % 1000 for answer in train if answer // 1000 == difficulty] for difficulty in (1, 2, 3)]
    assert sorted(orders[0]) != orders[0]
    assert len({tuple(order) for order in orders}) == 3
    # The test files keep their order.
    assert answers(prepared, "interpolate") == list(range(4000, 4010))
    assert answers(prepared, "extrapolate") == list(range(5000, 5010))
    assert prepared.rows("interpolate")[7]["id"] == "interpolate/00007"
    assert prepared.dataset.group("interpolate/00007") is None


def test_smaller_counts_take_a_prefix_and_seeds_differ(tree: Path, data_dir: Path) -> None:
    whole = made(data_dir, **SMALL)
    full = answers(whole, "train")
    assert answers(made(data_dir, **SMALL | {"train_rows_per_difficulty": 12}), "train") == full[:36]
    assert answers(made(data_dir, **SMALL | {"seed": 1}), "train") != full
    assert whole.manifest["source"]["kind"] == "official tree"


@pytest.mark.parametrize(
    ("name", "line", "text", "message"),
    [
        (TRAIN[1], 100, "7", f"{TRAIN[1]}:100: the answer '7' is wrong, 2049 is right"),
        (INTERPOLATE, 3, "Calculate 1 * 2.", f"{INTERPOLATE}:3: 'Calculate 1 * 2.': not a sum"),
        (EXTRAPOLATE, 2, "5000.0", f"{EXTRAPOLATE}:2: the answer '5000.0' is wrong, 5000 is right"),
    ],
)
def test_a_wrong_answer_is_named_with_its_line(
    tree: Path, data_dir: Path, name: str, line: int, text: str, message: str
) -> None:
    lines = (tree / name).read_text().split("\n")
    lines[line - 1] = text
    (tree / name).write_text("\n".join(lines))
    with pytest.raises(UserError) as caught:
        made(data_dir, **SMALL | {"train_rows_per_difficulty": 45})
    assert message in str(caught.value)
    assert not any("arithmetic-" in path.name and path.is_dir() for path in data_dir.iterdir())


@pytest.mark.slow
@pytest.mark.data
def test_the_real_files(data_root: Path, tmp_path: Path) -> None:
    prepared = made(tmp_path)
    fingerprint = prepared.fingerprint()
    assert fingerprint["rows"] == {"train": 99_999, "validation": 3_000, "interpolate": 10_000, "extrapolate": 10_000}
    assert fingerprint["files"] == {
        "train.jsonl": "a9836f48bd4957cffe66ba59feecf3493b1ee56fc5b8d0c880fe9e65ca9dd708",
        "validation.jsonl": "4dd8bcf7032b14184c9a33deeb19bdc66a9efa33fcaaa60321a7008077fb3d16",
        "interpolate.jsonl": "b861fda7961a0a1609e042cabae98e780915eae0224222a2df6838419da737f3",
        "extrapolate.jsonl": "fa8a64eaba431d4961d58dde2ba28e1a910509ba9d7ad035917764fe8147c595",
    }
    train = {row["question"] for row in prepared.rows("train")}
    interpolate = [row["question"] for row in prepared.rows("interpolate")]
    assert not train & set(interpolate)
    extrapolate = answers(prepared, "extrapolate")
    assert (min(extrapolate), max(extrapolate)) == (-481, 494)
    assert sum(abs(answer) >= 100 for answer in extrapolate) / 10_000 == pytest.approx(0.63, abs=0.005)
    inside = answers(prepared, "interpolate")
    assert (min(inside), max(inside)) == (-50, 50)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Calculate -13 + (10 - 5) + 4.", "-4"),
        ("What is the value of -2 + 9 - (5 - 0)?", "2"),
        ("What is 3 + (-11 - -3) + (-10 - -7) + (-83 - 6)?", "-97"),
        ("Evaluate 7 - 9 - 118 - (0 + 1 - 10 - ((-8 - -9) + 8 + -14) - (-2 + 0)).", "-118"),
        ("-48 - (-10 - ((-12 - -18) + -18 + 4))", "-46"),
        ("1 - -(2 - 3) - 99999999999999999999", "-99999999999999999999"),
    ],
)
def test_answers(question: str, answer: str) -> None:
    assert answer_of(question) == answer


@pytest.mark.parametrize("question", ["Calculate 1 + 2?", "What is 1 + 2.", "1 +", "(1 + 2", "1 * 2", "1.5 + 2", "²"])
def test_anything_else_is_refused(question: str) -> None:
    with pytest.raises(ValueError, match="not a sum"):
        answer_of(question)


@given(st.text(st.sampled_from("0123456789+-() "), max_size=12))
def test_any_text_has_a_value_or_a_reason(text: str) -> None:
    value, reason = None, ""
    try:
        value = value_of(text)
    except ValueError as error:
        reason = str(error)
    if value is None:
        assert reason.startswith("not a sum")
        return
    # Python refuses leading zeros, so they are taken off before the comparison.
    tree = ast.parse(re.sub(r"\b0+(?=\d)", "", text.strip()), mode="eval")
    assert ast_value(tree.body) == value


def ast_value(tree: ast.expr) -> int:
    if isinstance(tree, ast.Constant):
        assert isinstance(tree.value, int)
        return tree.value
    if isinstance(tree, ast.UnaryOp):
        return -ast_value(tree.operand) if isinstance(tree.op, ast.USub) else ast_value(tree.operand)
    assert isinstance(tree, ast.BinOp)
    sign = -1 if isinstance(tree.op, ast.Sub) else 1
    return ast_value(tree.left) + sign * ast_value(tree.right)
