"""The title of a table at a scale: what it is, the models that ran, and those they stand in for."""

from collections.abc import Iterable, Sequence

from ntl.config.table import BlockSpec, TableSpec
from ntl.results.match import RowPlan

# What a model is called in a text. A head of its own is the row's affair.
MODELS = {
    "gpt2_large": "GPT-2 Large",
    "gpt2_medium": "GPT-2 Medium",
    "gpt2_small": "GPT-2 Small",
    "gpt2_small_regression": "GPT-2 Small",
    "gpt2_tiny": "a tiny GPT-2",
    "gpt2_tiny_regression": "a tiny GPT-2",
    "gpt2_xl": "GPT-2 XL",
    "granite_3_1_moe_1b": "Granite 3.1 1B (MoE)",
    "granite_3_2_2b": "Granite 3.2 2B",
    "granite_moe_tiny": "a tiny Granite MoE",
    "granite_tiny": "a tiny Granite",
    "llama_mini": "a small Llama",
    "llama_tiny": "a tiny Llama",
    "qwen2_tiny": "a tiny Qwen2",
    "rt": "the Regression Transformer",
    "rt_tiny": "a tiny Regression Transformer",
    "t5_3b": "T5-3B",
    "t5_base": "T5-Base",
    "t5_mini": "a small T5",
    "t5_small": "T5-Small",
    "t5_small_regression": "T5-Small",
    "t5_tiny": "a tiny T5",
    "t5_tiny_regression": "a tiny T5",
    "xval": "xVal",
    "xval_tiny": "a tiny xVal",
}


def stands_in(block: BlockSpec, scale: str, plan: RowPlan) -> bool:
    """Whether the row's model takes the place of another at this scale."""
    return f"model={plan.pins.get('model')}" in block.scales[scale].replace.values()


def heading(spec: TableSpec, scale: str, parts: Sequence[tuple[BlockSpec, Sequence[RowPlan]]]) -> str:
    """``Table 2 with a tiny GPT-2 in place of T5-Small: loss variants``; ``Table 2: loss variants, T5-Small`` without.

    Models that are trained from scratch though there are published weights are said to be.
    """
    ran, took, own = {}, {}, {}
    for block, plans in parts:
        places = {new: old for old, new in block.scales[scale].replace.items()}
        for plan in (plan for plan in plans if plan.overrides and "model" in plan.pins):
            scratch = " from scratch" if plan.pins.get("model.pretrained") is False else ""
            name = f"{model_name(plan.pins['model'])}{scratch}"
            if stands_in(block, scale, plan):
                ran[name] = took[model_name(places[f"model={plan.pins['model']}"].removeprefix("model="))] = None
            else:
                own[name] = None
    what, colon, subject = spec.title.partition(": ")
    if took:
        return f"{what} with {_listed(ran)} in place of {_listed(took)}{colon}{subject}"
    return f"{spec.title}, {_listed(own)}" if own else spec.title


def model_name(model: str) -> str:
    """What a model of ``config/model`` is called in a text."""
    return MODELS.get(model, model)


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
