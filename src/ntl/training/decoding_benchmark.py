"""Our decoding against a bare loop over the model's own ``generate``: the same model, examples and batches."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ntl.config import compose
from ntl.config.target import locate
from ntl.training.prediction import max_new_tokens
from ntl.training.session import Session

Answers = list[str]
WARM_UP = 32


def ours(session: Session, rows: int) -> Answers:
    """From encoded examples to text, as a run decodes its test sets."""
    config = session.config.decoding
    answers = locate(config._target_)(
        config,
        model=session.model,
        tokenizer=session.tokenizer,
        examples=session.encoded("test").first(rows),
        collate=session.collator.prompts,
        max_new_tokens=max_new_tokens(session),
    )
    return [answer.text for answer in answers]


@torch.inference_mode()
def bare(session: Session, rows: int) -> Answers:
    """What one would write by hand: pad, generate, decode, batch by batch in the order of the file."""
    model: Any = session.model.eval()
    tokenizer, config = session.tokenizer, session.config.decoding
    seq2seq = model.config.is_encoder_decoder
    examples = session.encoded("test").first(rows)
    prompts = [{"input_ids": examples[index]["question_ids"].tolist()} for index in range(rows)]
    answers: Answers = []
    for start in range(0, rows, config.batch_size):
        batch, side = prompts[start : start + config.batch_size], "right" if seq2seq else "left"
        inputs = tokenizer.pad(batch, padding_side=side, return_tensors="pt").to(model.device)
        output = model.generate(
            **inputs, num_beams=config.num_beams, do_sample=False, max_new_tokens=max_new_tokens(session)
        )
        ids = output if seq2seq else output[:, inputs["input_ids"].shape[1] :]
        answers += [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    return answers


def measure(decode: Callable[[Session, int], Answers], session: Session, rows: int) -> float:
    """Examples per second."""
    started = time.perf_counter()
    decode(session, rows)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return rows / (time.perf_counter() - started)


def compare(overrides: Sequence[str], *, rows: int, rounds: int) -> dict[str, Any]:
    """Alternate the two; ratios are taken within a round, so that what slows the machine slows both.

    RuntimeError where they do not give the same answers.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = [f"data_dir={folder}/data", f"output_dir={folder}", "tracking=none"]
        session = Session(compose([*overrides, *places]), Path(folder) / "run", say=lambda line: None)
        session.model.to(session.device)  # pyright: ignore[reportArgumentType] - a device is one
        sides = {"ours": ours, "bare": bare}
        rows = min(rows, len(session.encoded("test")))
        if ours(session, WARM_UP) != bare(session, WARM_UP):
            raise RuntimeError(f"{' '.join(overrides)}: the two sides give different answers")
        measured = []
        for turn in range(rounds):
            order = list(sides) if turn % 2 else list(sides)[::-1]
            measured.append({name: measure(sides[name], session, rows) for name in order})
    return {
        "overrides": list(overrides),
        "model": session.config.model.name,
        "num_beams": session.config.decoding.num_beams,
        "batch_size": session.config.decoding.batch_size,
        "max_new_tokens": max_new_tokens(session),
        "rows": rows,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "examples_per_s": {name: median(turn[name] for turn in measured) for name in sides},
        "speed_ratio": median(turn["ours"] / turn["bare"] for turn in measured),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print, or with ``--json`` dump, one row for each combination of model and number of beams."""
    parser = argparse.ArgumentParser(prog="benchmark_decoding.py", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, for example dataset=noisy_numbers")
    parser.add_argument("--models", nargs="+", default=["gpt2_tiny", "t5_tiny", "granite_tiny", "granite_moe_tiny"])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(argv)
    results = [
        compare(
            [f"model={model}", f"decoding.num_beams={beams}", *chosen.overrides],
            rows=chosen.rows,
            rounds=chosen.rounds,
        )
        for model in chosen.models
        for beams in chosen.beams
    ]
    if chosen.json:
        print(json.dumps(results, indent=1))
        return
    title = f"Decoding speed, {torch.get_num_threads()} threads, medians of {chosen.rounds} rounds"
    table = Table("model", "beams", "ours, examples/s", "bare, examples/s", "speed ratio", title=title)
    for result in results:
        speed = result["examples_per_s"]
        row = (f"{speed['ours']:.0f}", f"{speed['bare']:.0f}", f"{result['speed_ratio']:.3f}")
        table.add_row(result["model"], str(result["num_beams"]), *row)
    Console().print(table)
