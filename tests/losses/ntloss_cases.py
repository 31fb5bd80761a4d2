"""The inputs of the calls in docs/losses.md's section on ntloss, and their evaluation, with ntl or with ntloss.

As a command, ``python ntloss_cases.py IN OUT``, in an environment with ntloss and without ntl.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

DIGITS, POINT, TEXT, WIDTH = [*"0123456789"], 10, 15, 16


def tokenizer(*others: str, digits: Sequence[str] = DIGITS) -> PreTrainedTokenizerFast:
    """Writes every digit alone, and none of the other tokens. Ids 0 to 9 are the digits."""
    names = {name: index for index, name in enumerate([*digits, ".", *others, "<unk>", "text"])}
    backend = Tokenizer(models.WordLevel(names, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def row_of(*labels: int) -> Tensor:
    """Labels (2, 6) that are text behind these."""
    return torch.tensor([[*labels, *[TEXT] * (6 - len(labels))], [TEXT] * 6])


def inputs() -> dict[str, Any]:
    """What the expressions of both sides name."""
    generator = torch.Generator().manual_seed(3)
    x = 2 * torch.randn(2, 6, WIDTH, generator=generator)
    y = torch.tensor([[7, 0, 12, -100, 3, 11], [15, 9, POINT, 2, 13, 4]])
    is_digit, is_number = torch.arange(WIDTH) < 10, ((y >= 0) & (y < 10)).unsqueeze(-1)
    x.requires_grad_()
    return {
        **{
            "t": tokenizer("▁4", "1e3", "٣"),
            "wide": tokenizer("12", "-5", "007"),
            "lacking": tokenizer(digits=DIGITS[:8]),
        },
        **{"x": x, "y": y, "w": torch.rand(2, 6, generator=generator), "wider": F.pad(x, (0, 4))},
        **{"many": x.detach().repeat(4000, 1, 1), "many_y": y.repeat(4000, 1)},
        **{"text": row_of(), "zero": row_of(0), "ten": row_of(1, 0), "one_point_zero": row_of(1, POINT, 0)},
        "no_digits_at_text": x.detach().masked_fill(is_digit & ~is_number, -torch.inf).requires_grad_(),
        "no_digits_at_numbers": x.detach().masked_fill(is_digit & is_number, -torch.inf),
        **{"torch": torch, "F": F, "gradient": gradient},
    }


def gradient(loss: Callable[..., Tensor], logits: Tensor, *labels: Tensor) -> Tensor:
    return torch.autograd.grad(loss(logits, *labels), logits)[0]


def evaluate(expressions: Sequence[str], names: Mapping[str, Any]) -> list[tuple[Any, Tensor | None]]:
    """Return the value and the gradient with respect to ``x`` of each; for an error, its name."""
    found: list[tuple[Any, Tensor | None]] = []
    for expression in expressions:
        try:
            value = eval(expression, {**names, "nan": math.nan})
        except Exception as error:
            value = type(error).__name__
        slope = None
        if isinstance(value, Tensor) and value.requires_grad:
            factors = torch.linspace(1.0, 2.0, value.numel(), dtype=value.dtype).view(value.shape)
            slope, value = torch.autograd.grad(value, names["x"], factors)[0], value.detach()
        found.append((value, slope))
    return found


def of_ntloss() -> dict[str, Any]:
    """Return the names for `evaluate`."""
    import ntloss  # pyright: ignore[reportMissingImports]

    names = inputs() | {name: each for name, each in vars(ntloss).items() if isinstance(each, type)}
    make = partial(ntloss.NTLoss, reweigh=False)

    def value(token: str) -> float:
        return make(names["t"], digit_level=False).number_values[names["t"].convert_tokens_to_ids(token)].item()

    names |= {"make": make, "value": value, "was": make(names["t"])}
    names |= {"squash": lambda factor: make(names["t"], squash_factor=factor)}
    names |= {"weighted": lambda logits, labels, weights: make(names["t"])(logits, labels, loss_weights=weights)}
    return names | {"level": ntloss.NumberLevelLoss(names["t"], reweigh=False)}


if __name__ == "__main__":
    torch.save(evaluate(torch.load(sys.argv[1], weights_only=True), of_ntloss()), sys.argv[2])
