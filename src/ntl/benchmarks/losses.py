"""``scripts/benchmark_losses.py``: time and memory of losses relative to torch's cross-entropy, which take turns.

Every loss as in the paper's Figure 3: the total, base + weight × number term, on the same random logits, of whose
labels the given share are number tokens (the original draws labels from the whole vocabulary, where numbers are very
rare). Or from hidden states, with the product that makes logits of them; torch's own ``linear_cross_entropy`` is
compared where there is one, and on a GPU the cross-entropies of Liger and of Apple's cut-cross-entropy.

Shapes: B batch, T length, V vocabulary, D hidden size.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from ntl.benchmarks.timing import Call, Row, measure
from ntl.config import compose
from ntl.config.folders import choices
from ntl.config.loss import SQUARED_ERROR, NextTokenConfig
from ntl.losses import NumberTokenLoss, ce_ntl
from ntl.losses.fast import LMHead
from ntl.losses.joint import triton_kernel
from ntl.losses.rows import IGNORE_INDEX
from ntl.numbers import NumberVocabulary
from ntl.objectives.next_token import NextToken, loss_of
from ntl.system.errors import UserError

BASELINE = "ce"
IMPLEMENTATIONS = ("reference", "fused", "inplace", "triton")  # "inplace" is fused, and overwrites the logits
# Kernels of a GPU, where they are installed: module, the functions of logits and of hidden states.
KERNELS = {
    "liger": ("liger_kernel.transformers.functional", "liger_cross_entropy", "liger_fused_linear_cross_entropy"),
    "cut": ("cut_cross_entropy", None, "linear_cross_entropy"),
}
Chosen = dict[str, tuple[str, NumberTokenLoss]]  # name of a row -> implementation and loss


@dataclass(frozen=True)
class Setting:
    """The shape, type and device of the logits, and the shares of labels that are digits, and that are ignored.

    With ``hidden`` > 0 losses begin at hidden states of this width.
    """

    device: str = "cpu"
    dtype: str = "float32"
    batch: int = 16
    length: int = 64
    vocab: int = 32_128
    hidden: int = 0
    ignored: float = 0.0
    share: float = 0.8

    def leaf(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Return random values that get gradients."""
        return (torch.randn(*shape, dtype=getattr(torch, self.dtype)) * scale).to(self.device).requires_grad_()


def vocabulary_and_labels(setting: Setting) -> tuple[NumberVocabulary, Tensor]:
    """Return a vocabulary with ten digits, and random labels (B, T), of which the exact shares are what they should."""
    values = torch.full((setting.vocab,), math.nan)
    values[torch.arange(10) * (setting.vocab // 10) + setting.vocab // 20] = torch.arange(10.0)
    vocab, text = NumberVocabulary.from_values(values), values.isnan().nonzero().squeeze(-1)
    total = setting.batch * setting.length
    labels = text[torch.randint(len(text), (total,))]
    positions = torch.randperm(total)[: round(setting.share * total)]
    labels[positions] = vocab.token_ids[torch.randint(10, (len(positions),))]
    labels[torch.randperm(total)[: round(setting.ignored * total)]] = IGNORE_INDEX
    return vocab.to(setting.device), labels.reshape(setting.batch, setting.length).to(setting.device)


def token_losses() -> list[str]:
    """Return the names in config/loss of losses of tokens, cross-entropy first."""
    return sorted({*choices("loss")} - {SQUARED_ERROR}, key=lambda name: (name != BASELINE, name))


def check_losses(names: Sequence[str]) -> None:
    """Raise UserError for a name that is not one of ``token_losses``."""
    if unknown := [name for name in names if name not in token_losses()]:
        raise UserError(f"--losses {unknown[0]}: choose from {', '.join(token_losses())}")


def benchmark(setting: Setting, losses: Sequence[str], implementations: Sequence[str], rounds: int) -> Iterator[Row]:
    """Yield a row for each part, loss and implementation that has the loss; torch's cross-entropy is the baseline.

    Parts are the loss forward, forward and backward and, from logits, in a training step of a small model, whose
    baseline is the objective with cross-entropy. UserError for an unknown loss, or a setting that is not possible.
    """
    check_losses(losses)
    if setting.vocab < 20 or not (0 <= setting.share <= 1 and 0 <= setting.ignored < 1):
        options = f"--vocab {setting.vocab} --shares {setting.share} --ignored {setting.ignored}"
        raise UserError(f"{options}: at least 20, and shares between 0 and 1")
    if setting.hidden and "inplace" in implementations:
        raise UserError("--implementations inplace: writes over logits, and --hidden has none; take fused")
    if "triton" in implementations:
        try:
            triton_kernel(torch.device(setting.device))
        except ValueError as error:
            raise UserError(f"--implementations triton: {error}") from error
    torch.manual_seed(0)
    vocab, labels = vocabulary_and_labels(setting)
    known = {"point_id": None, "embedding": torch.randn(setting.vocab, 64, device=setting.device)}
    made = {name: loss_of(compose([f"loss={name}"]).loss, vocab, known) for name in (BASELINE, *losses)}
    chosen = {BASELINE: ("reference", made[BASELINE])}
    for how in implementations:
        known_to = {name: made[name] for name in losses if how == "reference" or made[name].terms.knows}
        chosen |= {name if how == "reference" else f"{name} {how}": (how, loss) for name, loss in known_to.items()}
    leaves, forward = totals(setting, chosen, vocab, labels)

    def backward(total: Callable[[], Tensor]) -> None:
        total().backward()
        for leaf in leaves:
            leaf.grad = None

    parts: dict[str, dict[str, Call]] = {"forward": {**forward}}
    parts["forward+backward"] = {name: partial(backward, total) for name, total in forward.items()}
    if not setting.hidden:
        parts["training step"] = steps(setting, chosen, labels)
    common = {**asdict(setting), "threads": 1 if setting.device == "cpu" else None}
    if setting.device == "cuda":
        common["family"] = torch.cuda.get_device_capability()[0]
    for part, calls in parts.items():
        for name, row in measure(calls, setting.device, rounds):
            yield {**common, "part": part, "rounds": rounds, "loss": name, **row}


def totals(
    setting: Setting, chosen: Chosen, vocab: NumberVocabulary, labels: Tensor
) -> tuple[list[Tensor], dict[str, Callable[[], Tensor]]]:
    """Return the tensors that get gradients, and the total of each loss, torch's cross-entropy as the first."""
    inputs, flat = setting.leaf(*labels.shape, setting.hidden or setting.vocab), labels.flatten()
    weight = setting.leaf(setting.vocab, setting.hidden, scale=setting.hidden**-0.5) if setting.hidden else None
    head = None if weight is None else LMHead(weight)

    def torch_ce() -> Tensor:
        logits = inputs if weight is None else F.linear(inputs, weight)
        return F.cross_entropy(logits.flatten(0, 1), flat)

    def ours(how: str, loss: NumberTokenLoss) -> Tensor:
        how_to: Any = {"inplace": True} if how == "inplace" else {"implementation": how}
        return ce_ntl(inputs, labels, vocab, kind=loss.terms, head=head, **how_to).total

    calls = {name: partial(ours, *pair) for name, pair in chosen.items()} | {BASELINE: torch_ce}
    for name, (module, of_logits, of_hidden) in KERNELS.items():
        function = of_logits if weight is None else of_hidden
        if function and setting.device == "cuda" and find_spec(module.partition(".")[0]):
            call, extra = getattr(import_module(module), function), [] if weight is None else [weight]
            # Flattened anew: what the last backward pass went through is freed.
            calls[name] = lambda call=call, extra=extra: call(inputs.flatten(0, 1), *extra, flat)
    if weight is None:
        return [inputs], calls
    if torch_linear := getattr(F, "linear_cross_entropy", None):  # only newer versions of torch have it
        calls["torch linear"] = lambda: torch_linear(inputs.flatten(0, 1), weight, flat)
    return [inputs, weight], calls


def steps(setting: Setting, chosen: Chosen, labels: Tensor) -> dict[str, Call]:
    """Return for each loss an AdamW step of a GPT-2 with two layers of width 64."""
    size: Any = {"vocab_size": setting.vocab, "n_positions": setting.length, "n_embd": 64, "n_layer": 2, "n_head": 2}
    size |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0) | {"bos_token_id": None}
    network: Any = GPT2LMHeadModel(GPT2Config(**size, eos_token_id=None)).to(setting.device)  # pyright: ignore
    optimizer, inputs, mask = torch.optim.AdamW(network.parameters()), labels.roll(1, dims=1), torch.ones_like(labels)

    def step(objective: NextToken) -> None:
        objective(labels, objective.count(labels), input_ids=inputs, attention_mask=mask).total.backward()
        optimizer.step()
        optimizer.zero_grad()

    make = partial(NextToken, NextTokenConfig(), model=network)
    possible = {name: make(loss=loss, implementation=how) for name, (how, loss) in chosen.items() if how != "inplace"}
    return {name: partial(step, objective.train()) for name, objective in possible.items()}
