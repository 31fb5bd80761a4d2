"""`scripts/estimate.py`: how large a model is, and what training it keeps in memory, without weights or a download."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ntl.config import Config, UserError, build, compose

BYTES = {
    "weights_float32": 4,
    "weights_bfloat16": 2,  # for decoding: trainer.bf16=true computes in bfloat16 on weights that stay float32
    "gradients": 4,
    "adamw_state": 8,  # two float32 moments
    "training": 4 + 4 + 8,
}


@dataclass(frozen=True)
class _Vocabulary:
    """What a model asks of its tokenizer when it is built from shapes alone."""

    size: int
    pad_token_id: None = None
    eos_token_id: None = None

    def __len__(self) -> int:
        return self.size


def estimate(config: Config) -> dict[str, Any]:
    """Parameters (tied ones once), embedding rows and bytes of the model of ``config``, built on torch's meta device.

    A published model has its published rows; a tokenizer with more tokens, as GPT-2's with a pad token, adds rows in
    training. A stand-in, whose tokenizer is trained on the data, is counted with the most rows that it may get,
    ``tokenizer.vocab_size``; ``note`` says so. ``bytes`` are without activations, and those of "training" are float32
    weights, gradients and the state of AdamW.
    """
    import torch

    from ntl.models.pretrained import embedding_rows

    if config.model.path:
        raise UserError(f"model.path={config.model.path}: the estimate reads the shapes of config/model; leave it out.")
    published = bool(getattr(config.model, "vocab_size", 0))
    vocabulary = _Vocabulary(0 if published else config.tokenizer.vocab_size)
    with torch.device("meta"):
        model = build(replace(config.model, pretrained=False), tokenizer=vocabulary)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rows = embedding_rows(model)
    of_numbers = f" and {rows - vocabulary.size} of number tokens" if rows > vocabulary.size else ""
    most = f"with tokenizer.vocab_size={vocabulary.size} rows{of_numbers}, the most its tokenizer may need"
    return {
        "model": config.model.name,
        "parameters": parameters,
        "embedding_rows": rows,
        "bytes": {name: parameters * each for name, each in BYTES.items()},
        "note": "" if published else most,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """The command line. UserError: an override that does not compose."""
    parser = argparse.ArgumentParser(
        description="Print a model's number of parameters and the memory that its weights and their training need."
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as of train.py: model=gpt2_small")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_intermixed_args(argv)
    result = estimate(compose(arguments.overrides))
    print(json.dumps(result, indent=1) if arguments.json else text(result))


def text(result: dict[str, Any]) -> str:
    """The result for a reader, sizes in MiB (2^20 bytes)."""
    note = f" ({result['note']})" if result["note"] else ""
    lines = [f"{result['model']}: {result['parameters']:,} parameters, {result['embedding_rows']:,} tokens{note}"]
    width = max(map(len, result["bytes"]))
    lines += [f"  {name:<{width}}  {size / 2**20:12,.1f} MiB" for name, size in result["bytes"].items()]
    return "\n".join([*lines, "training is weights_float32 + gradients + adamw_state, without activations"])
