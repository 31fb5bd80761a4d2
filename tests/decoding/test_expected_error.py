"""The expected error of the whole answer against the enumeration of every token sequence, values and gradients."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from tree_models import END, MODELS, TreeTokenizer, answer_logits, prompts

from ntl.decoding.expected_error import expected_error, number_masses
from ntl.decoding.tree import ENDS, START, NumberTokens, advance
from ntl.numbers import parse_number
from ntl.system.errors import Diverged

QUESTIONS = [[2, 3, 4], [5], [6, 2, 7, 8, 9]]
TARGETS = torch.tensor([12.0, -1.0, 2.1], dtype=torch.float64)
TOKENS = NumberTokens.from_tokenizer(TreeTokenizer())
PIECES = dict(zip(TOKENS.ids.tolist(), TOKENS.pieces, strict=True))
KINDS = ("squared", "absolute", "crps")
# Up to three tokens and the end: numbers of up to three digits and more, with sign and decimals.
LENGTH, ALL = 4, 10_000


def enumerated(model: Any, question: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the value and the probability of every sequence that writes a number, by teacher forcing, (L,) each."""
    values, masses = [], []
    for length in range(1, LENGTH):
        sequences = [
            each
            for each in itertools.product(PIECES, repeat=length)
            if advance(START, "".join(PIECES[token] for token in each)) in ENDS
        ]
        log_p = answer_logits(model, question, sequences).log_softmax(-1)
        for row, tokens in zip(log_p, sequences, strict=True):
            number = parse_number("".join(PIECES[token] for token in tokens).strip())
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


def of_the_tree(model: Any, num_beams: int = ALL, **options: Any) -> Tensor:
    limits = {"num_beams": num_beams, "max_new_tokens": LENGTH}
    return expected_error(*number_masses(model, prompts(model, QUESTIONS), TOKENS, **limits), TARGETS, **options)


@pytest.mark.parametrize("architecture", [name for name in MODELS if name != "fixed_mask"])  # attention in float32
def test_values_and_gradients_are_those_of_the_enumeration(architecture: str) -> None:
    model = MODELS[architecture]()
    numbers = [enumerated(model, question) for question in QUESTIONS]
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
    model = MODELS["decoder"]()
    for kind in KINDS:
        assert all(each.isfinite().all() for each in gradients(model, of_the_tree(model, 2, kind=kind).sum()))


@pytest.mark.gpu
@pytest.mark.parametrize("num_beams", [5, ALL])
@pytest.mark.parametrize("architecture", [name for name in MODELS if name != "fixed_mask"])
def test_a_gpu_finds_the_same(architecture: str, num_beams: int) -> None:
    """There, prefixes that do not exist are read as well, since nothing tells the host which ones do."""
    model = MODELS[architecture]()
    expected = gradients(model, (of_the_tree(model, num_beams) ** 2).sum())
    tokens, limits = NumberTokens.from_tokenizer(TreeTokenizer(), device="cuda"), {"max_new_tokens": LENGTH}
    inputs = {name: values.to("cuda") for name, values in prompts(model, QUESTIONS).items()}
    masses = number_masses(model.to("cuda"), inputs, tokens, num_beams=num_beams, **limits)
    found = gradients(model, (expected_error(*masses, TARGETS.to("cuda")) ** 2).sum())
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-7)
    broken = next(model.parameters())
    torch.nn.init.constant_(broken, torch.nan)
    with pytest.raises(Diverged, match="NaN or infinite"):
        number_masses(model, inputs, tokens, num_beams=num_beams, **limits)
