"""Answers read from probabilities: by number, as sums of plain text, by number heads; and the expected error."""

import itertools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from tree_models import END, MODELS, TreeTokenizer, answer_logits, answers, prompts, tiny

from ntl.config.decoding import LikelihoodConfig, NumberHeadConfig, TreeConfig
from ntl.data.collate import CausalCollator
from ntl.decoding import decode
from ntl.decoding.batches import Answer
from ntl.decoding.expected_error import expected_error, number_masses
from ntl.decoding.likelihood import PIECES, Piece
from ntl.decoding.tree import ENDS, START, NumberTokens, advance, read_numbers
from ntl.numbers import parse_number
from ntl.system.errors import Diverged

QUESTIONS = [[2, 3, 4], [5], [6, 2, 7, 8, 9], [3], [7, 7]]
ALL = 10**9


def read(name: str, model: Any, interval: float = 0.0, **changes: Any) -> list[Answer]:
    config = TreeConfig(_target_=f"ntl.decoding.point.{name}", name=name, num_beams=ALL, batch_size=2, **changes)
    return answers(model, config, QUESTIONS, interval=interval)


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_answers_are_those_of_the_tree_in_the_order_of_the_examples(family: str) -> None:
    model = tiny(family)
    tokens = NumberTokens.from_tokenizer(TreeTokenizer())
    with torch.inference_mode():
        trees = [
            read_numbers(model, prompts(model, [question]), tokens, num_beams=ALL, max_new_tokens=4)
            for question in QUESTIONS
        ]
    means = read("expectation", model, tolerance=0.0, trim=0.0, decimals=6)
    medians = read("median", model, tolerance=0.0)
    assert len({answer.text for answer in means}) == len(QUESTIONS)
    for (tree,), mean, middle in zip(trees, means, medians, strict=True):
        values, shares = tree.values, tree.shares
        assert float(mean.text) == pytest.approx(float(shares @ values), abs=1e-6)
        assert middle.text in tree.texts
        below = shares[values < float(middle.text)].sum()
        assert below < 0.5 <= below + shares[values == float(middle.text)].sum() + 1e-9
        assert mean.about["covered"] == pytest.approx(tree.represented)
        assert mean.about["represented"] == pytest.approx(tree.represented)
        assert mean.about["sd"] == pytest.approx(math.sqrt(shares @ (values - shares @ values) ** 2))
        assert list(mean.about["quantiles"]) == ["0.05", "0.25", "0.5", "0.75", "0.95"]
        assert middle.about["quantiles"]["0.5"] == float(middle.text)
        assert mean.token_ids == middle.token_ids == []


@pytest.mark.parametrize("name", ["expectation", "median"])
def test_a_model_that_never_says_a_number_answers_nothing(name: str) -> None:
    model = tiny("decoder")
    head = torch.nn.Linear(16, 12, dtype=torch.float64)
    head.weight.data.zero_()
    head.bias.data.fill_(-2000.0)
    head.bias.data[END] = 0
    model.set_output_embeddings(head)
    assert read(name, model) == [Answer("", [], {"covered": 0.0, "represented": 0.0})] * len(QUESTIONS)


def test_an_interval_is_that_of_the_same_distribution() -> None:
    """Half of the probability lies between the quartiles; the answers are those without an interval."""
    model = tiny("decoder")
    for name in ("expectation", "median"):
        without, within = (read(name, model, interval, tolerance=0.0) for interval in (0.0, 0.5))
        for plain, wide in zip(without, within, strict=True):
            assert wide.text == plain.text
            assert wide.about["interval"] == [plain.about["quantiles"]["0.25"], plain.about["quantiles"]["0.75"]]
            assert [wide.about[key] for key in ("sd", "covered")] == [plain.about[key] for key in ("sd", "covered")]


# The sums of plain text, from a stand-in whose logits are known.


# Ids 0 to 9 are the digits, 10 is a word, 11 the end token and padding.
WORD, CLOSE = 10, 11


class _Tokenizer:
    def get_vocab(self) -> dict[str, int]:
        return {**{str(digit): digit for digit in range(10)}, "word": WORD, "<end>": CLOSE}


class _Model(torch.nn.Module):
    """After each token the probabilities of ``after``, and the rest evenly on the other tokens."""

    device = torch.device("cpu")

    def __init__(self, after: dict[int, dict[int, float]]) -> None:
        super().__init__()
        self.table = torch.zeros(12, 12)
        for token in range(12):
            known = after.get(token, {})
            rest = (1 - sum(known.values())) / (12 - len(known))
            self.table[token] = torch.tensor([known.get(other, rest) for other in range(12)]).log()
        self.embedding = torch.nn.Embedding(12, 2)

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.embedding

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        assert not self.training
        # A constant on all logits changes no probability.
        return SimpleNamespace(logits=self.table[input_ids] + 5)


def scored(*examples: dict[str, Any], of_6: float = 0.125) -> list[list[Piece]]:
    answers = decode(
        LikelihoodConfig(name="likelihood", batch_size=len(examples)),
        model=_Model({CLOSE: {WORD: 0.5, 4: 0.25, 6: of_6}, WORD: {3: 0.4, 5: 0.2, WORD: 0.4 - 1e-6}, 4: {CLOSE: 0.9}}),
        tokenizer=_Tokenizer(),
        examples=examples,
        collate=CausalCollator(CLOSE),
        max_new_tokens=0,
    )
    return [answer.about[PIECES] for answer in answers]


def example(before: int, labels: list[int], first: int, *documents: int) -> dict[str, Any]:
    ids = {"question_ids": np.array([before]), "answer_ids": np.array(labels)}
    return {**ids, "documents": (first, list(documents))}


def test_the_sums_of_plain_text_by_hand() -> None:
    """Document 7: a word and 4; document 8: 5 and its end."""
    first, second = example(CLOSE, [WORD, 5, CLOSE], 7, 2, 1), example(CLOSE, [4], 8, 1)
    (one, other), (last,) = scored(first, second)
    # After the word, 3 has 0.4, 5 has 0.2, the word 0.4 − 1e-6; 9 tokens share 1e-6.
    rest = 1e-6 / 9
    digits = 0.6 + 8 * rest
    mean = (3 * 0.4 + 5 * 0.2 + rest * (45 - 8)) / digits
    assert one == Piece(
        7, 2, pytest.approx(-math.log(0.5 * 0.2), abs=1e-6), 1, 0, 2.0, pytest.approx(abs(mean - 5), abs=1e-5)
    )
    # After 5, all tokens have the same probability.
    assert other == Piece(8, 1, pytest.approx(math.log(12), abs=1e-6), 0, 0, 0.0, 0.0)
    # After the end, the word is the most probable token, and 4 the most probable digit: right among digits alone.
    rest = 0.125 / 9
    mean = (4 * 0.25 + 6 * 0.125 + rest * (45 - 10)) / (0.375 + 8 * rest)
    assert last == Piece(8, 1, pytest.approx(math.log(4), abs=1e-6), 1, 0, 0.0, pytest.approx(abs(mean - 4), abs=1e-5))


def test_text_of_logits_that_are_not_finite_is_told() -> None:
    """But not a token that cannot come."""
    assert scored(example(CLOSE, [4], 0, 1), of_6=0.0)[0][0].ce == pytest.approx(math.log(4), abs=1e-6)
    for value in (math.nan, math.inf):
        with pytest.raises(Diverged, match="NaN or infinite"):
            scored(example(CLOSE, [4], 0, 1), of_6=value)


# Answers of number heads, from stand-ins whose outputs are known.


NUM, SLASH, STOP = 9, 5, 1
READ = {"regression": "read_sequences", "masked_number": "read_masks"}


class _Heads(torch.nn.Module):
    """Says what ``outputs`` has for the first token of a question."""

    device, config = torch.device("cpu"), SimpleNamespace()

    def __init__(self, outputs: list[float], head: str) -> None:
        super().__init__()
        self.outputs, self.head = torch.tensor(outputs, dtype=torch.float64), head

    def forward(self, input_ids: torch.Tensor, **inputs: Any) -> SimpleNamespace:
        assert not self.training
        values = self.outputs[input_ids[:, 0]]
        if self.head == "regression":
            assert inputs == {"use_cache": False}
            return SimpleNamespace(logits=values[:, None])
        assert inputs == {}
        return SimpleNamespace(numbers=values)


class _HeadTokenizer:
    number_token_id = NUM

    def write(self, ids: list[int], numerals: list[str]) -> str:
        remaining = iter(numerals)
        return "".join(next(remaining) if token == NUM else {SLASH: "/", STOP: ""}[token] for token in ids)


def _collate(examples: list[Any]) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.tensor([[int(example["question_ids"][0])] for example in examples])}


def _examples(answers: list[list[tuple[int, float]]]) -> list[dict[str, np.ndarray]]:
    # Questions of different lengths, so that the order of the batches is not that of the answers.
    return [
        {
            "question_ids": np.array([index] * (1 + index % 3)),
            "answer_ids": np.array([token for token, _ in answer]),
            "answer_values": np.array([value for _, value in answer]),
        }
        for index, answer in enumerate(answers)
    ]


def _texts(model: _Heads, examples: Any, decimals: int) -> list[str]:
    target = f"ntl.decoding.number_head.{READ[model.head]}"
    config = NumberHeadConfig(_target_=target, name="x", head=model.head, decimals=decimals, batch_size=2)
    answers = decode(
        config, model=model, tokenizer=_HeadTokenizer(), examples=examples, collate=_collate, max_new_tokens=7
    )
    assert all(answer.token_ids == [] for answer in answers)
    return [answer.text for answer in answers]


def test_a_regression_s_output_in_its_own_unit() -> None:
    """Halves are rounded to even; 2.675 is 2.67499... in float64."""
    values = [3.0, -0.125, 0.375, 2.675, 1e6, 1e22, 0.0, -0.001, -1e-9]
    model = _Heads(values, "regression")
    examples = _examples([[(STOP, 1.0)]] * len(values))
    ends = ["1000000", "1" + "0" * 22, "0"]
    exact = ["3", "-0.125", "0.375", "2.675", *ends, "-0.001", "-0.000000001"]
    assert _texts(model, examples, 12) == exact
    assert _texts(model, examples, 2) == ["3", "-0.12", "0.38", "2.67", *ends, "0", "0"]
    assert _texts(model, examples, 0) == ["3", "0", "0", "3", *ends, "0", "0"]
    model.config = SimpleNamespace(target_mean=100.0, target_sd=8.0)  # standardized: 100 + 8 x output
    assert _texts(model, examples, 1)[:4] == ["124", "99", "103", "121.4"]


@pytest.mark.parametrize("head", READ)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_prediction_that_is_not_finite_is_no_answer(head: str, value: float) -> None:
    with pytest.raises(Diverged, match="NaN or infinite"):
        _texts(_Heads([1.0, value], head), _examples([[(NUM, 99.0), (STOP, 1.0)]] * 2), 2)


def test_a_masked_number_comes_off_its_scale_and_is_rounded() -> None:
    values = [0, 1, -7, 2.5, 123456, -0.004, -0.006]
    outputs = [math.copysign(math.log1p(abs(value)), value) for value in values]
    model = _Heads([*outputs, 800.0], "masked_number")
    examples = _examples([[(NUM, 99.0), (STOP, 1.0)]] * 8)
    expected = ["0", "1", "-7", "2.5", "123456", "0", "-0.01", ""]  # e^800 is no float64
    assert _texts(model, examples, 2) == expected


def test_other_numbers_of_the_answer_are_written_as_they_are() -> None:
    answers = [
        [(NUM, -0.1), (SLASH, 1.0), (NUM, 7.0), (STOP, 1.0)],
        [(NUM, 1e21), (SLASH, 1.0), (NUM, 7.0), (STOP, 1.0)],
        [(NUM, 2.0), (SLASH, 1.0), (NUM, 7.0), (STOP, 1.0)],
    ]
    model = _Heads([math.log(4), math.log(4), 800.0], "masked_number")
    assert _texts(model, _examples(answers), 2) == ["-0.1/3", "1000000000000000000000/3", ""]


# ---- the expected error of the whole answer against the enumeration of every token sequence


ASKED = [[2, 3, 4], [5], [6, 2, 7, 8, 9]]
TARGETS = torch.tensor([12.0, -1.0, 2.1], dtype=torch.float64)
TOKENS = NumberTokens.from_tokenizer(TreeTokenizer())
SPELLED = dict(zip(TOKENS.ids.tolist(), TOKENS.pieces, strict=True))
KINDS = ("squared", "absolute", "crps")
# Up to three tokens and the end: numbers of up to three digits and more, with sign and decimals.
LENGTH, EVERY = 4, 10_000


def enumerated(model: Any, question: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the value and the probability of every sequence that writes a number, by teacher forcing, (L,) each."""
    values, masses = [], []
    for length in range(1, LENGTH):
        sequences = [
            each
            for each in itertools.product(SPELLED, repeat=length)
            if advance(START, "".join(SPELLED[token] for token in each)) in ENDS
        ]
        log_p = answer_logits(model, question, sequences).log_softmax(-1)
        for row, tokens in zip(log_p, sequences, strict=True):
            number = parse_number("".join(SPELLED[token] for token in tokens).strip())
            assert number is not None
            values.append(float(number))
            masses.append(sum(row[place, token] for place, token in enumerate((*tokens, END))).exp())
    return torch.tensor(values, dtype=torch.float64), torch.stack(masses)


def by_definition(values: Tensor, masses: Tensor, target: Tensor, kind: str, outside: float) -> Tensor:
    p = masses / masses.sum()
    error = ((p * values).sum() - target) ** 2 if kind == "squared" else (p * (values - target).abs()).sum()
    if kind == "crps":
        error = error - 0.5 * (p.unsqueeze(1) * p * (values.unsqueeze(1) - values).abs()).sum()
    return error - outside * masses.sum().log()


def gradients(model: Any, total: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(total, list(model.parameters()), allow_unused=True, retain_graph=True)
    return [torch.zeros(1) if each is None else each for each in found]


def of_the_tree(model: Any, num_beams: int = EVERY, **options: Any) -> Tensor:
    limits = {"num_beams": num_beams, "max_new_tokens": LENGTH}
    return expected_error(*number_masses(model, prompts(model, ASKED), TOKENS, **limits), TARGETS, **options)


@pytest.mark.parametrize("architecture", [name for name in MODELS if name != "fixed_mask"])  # attention in float32
def test_values_and_gradients_are_those_of_the_enumeration(architecture: str) -> None:
    model = tiny(architecture)
    numbers = [enumerated(model, question) for question in ASKED]
    for kind in KINDS:
        found = of_the_tree(model, kind=kind, outside=0.7)
        pairs = zip(numbers, TARGETS, strict=True)
        expected = torch.stack([by_definition(*each, target, kind, 0.7) for each, target in pairs])
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        factors = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
        ours, theirs = gradients(model, found @ factors), gradients(model, expected @ factors)
        assert any(each.any() for each in theirs)
        # Some gradients are 0, up to the rounding of those that cancel. T5 computes its norms in float32.
        rounding = 1e-11 if architecture == "decoder" else 1e-6
        largest = max(each.abs().max().item() for each in theirs)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=rounding * largest)


def test_raft_over_a_grid_and_by_hand() -> None:
    """Probabilities of 1, 2, 5 and 3 are 0.1, 0.2, 0.3 and 0.1; the rest is text. The grid is 1, 2, 3."""
    values = torch.tensor([[1.0, 2.0, 5.0, 3.0, 0.0]], dtype=torch.float64)
    masses = torch.tensor([[0.1, 0.2, 0.3, 0.1, 0.0]], dtype=torch.float64).log()
    target = torch.tensor([3.0], dtype=torch.float64)
    raft = expected_error(values, masses, target, kind="squared", outside=0.0, grid=[1, 2, 3])
    assert raft.item() == pytest.approx(((0.1 * 1 + 0.2 * 2 + 0.1 * 3) / 0.4 - 3) ** 2)
    whole = expected_error(values, masses, target, kind="absolute", outside=2.0).item()
    mean = (0.1 * 2 + 0.2 * 1 + 0.3 * 2) / 0.7
    assert whole == pytest.approx(mean - 2 * math.log(0.7))
    pairs = 2 * (0.1 * 0.2 * 1 + 0.1 * 0.3 * 4 + 0.1 * 0.1 * 2 + 0.2 * 0.3 * 3 + 0.2 * 0.1 * 1 + 0.3 * 0.1 * 2) / 0.49
    assert expected_error(values, masses, target, kind="crps", outside=0.0).item() == pytest.approx(mean - pairs / 2)
    with pytest.raises(ValueError, match="an example has no number to take the error of"):
        expected_error(values, masses, target, grid=[7.0])


def test_crps_with_a_far_number_of_hardly_any_probability() -> None:
    """Of 1 to 10 with a tenth each: E|X - 5.5| = 2.5 and E|X - X'| = 99/30. A sum of tenths is not quite 1."""
    values = torch.tensor([[*range(1, 11), 4e20]], dtype=torch.float64)
    masses = torch.tensor([[0.1] * 10 + [1e-39]], dtype=torch.float64).log()
    found = expected_error(values, masses, torch.tensor([5.5], dtype=torch.float64), kind="crps", outside=0.0)
    assert found.item() == pytest.approx(2.5 - 99 / 60)


def test_what_a_narrow_search_leaves_out_has_no_gradient_that_is_not_finite() -> None:
    model = tiny("decoder")
    for kind in KINDS:
        assert all(each.isfinite().all() for each in gradients(model, of_the_tree(model, 2, kind=kind).sum()))


@pytest.mark.gpu
@pytest.mark.parametrize("num_beams", [5, EVERY])
@pytest.mark.parametrize("architecture", [name for name in MODELS if name != "fixed_mask"])
def test_a_gpu_finds_the_same(architecture: str, num_beams: int) -> None:
    """There, prefixes that do not exist are read as well, since nothing tells the host which ones do."""
    model = tiny(architecture)
    expected = gradients(model, (of_the_tree(model, num_beams) ** 2).sum())
    tokens, limits = NumberTokens.from_tokenizer(TreeTokenizer(), device="cuda"), {"max_new_tokens": LENGTH}
    inputs = {name: values.to("cuda") for name, values in prompts(model, ASKED).items()}
    masses = number_masses(model.to("cuda"), inputs, tokens, num_beams=num_beams, **limits)
    found = gradients(model, (expected_error(*masses, TARGETS.to("cuda")) ** 2).sum())
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-7)
    broken = next(model.parameters())
    torch.nn.init.constant_(broken, torch.nan)
    with pytest.raises(Diverged, match="NaN or infinite"):
        number_masses(model, inputs, tokens, num_beams=num_beams, **limits)
