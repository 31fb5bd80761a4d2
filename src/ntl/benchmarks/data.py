"""``scripts/benchmark_data.py``: how fast data is tokenized, and in how much memory, by size.

The text is made up, with the lengths of the official release.
"""

import multiprocessing
import os
import re
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import datasets

from ntl.benchmarks.timing import Row
from ntl.data.encode import encode_dataset
from ntl.tokenizers import load_tokenizer

MAP_PAIRS = 100_000  # that datasets.map is shown: its speed does not depend on them


def made_up_pairs(count: int) -> Iterator[dict[str, str]]:
    """Short and long questions, in turns, with the numbers and the lengths of the real ones."""
    for number in range(count):
        a, b, c = number * 7919 % 1999 - 999, number * 104_729 % 19_997, number % 97 + 2
        question, answer = f"Solve {a}*h + {b} = -{c}*h - {b % 613} for h.", number % 89 - 40
        if number % 2:
            question = f"Let y = {a} + {b}. Suppose -{c}*s - 1 = -2*n + y, s - 5*n = -{b % 211}."
            question, answer = f"{question} What is n rounded to tens?", number * 31 % 1_000_003
        yield {"question": question, "answer": str(answer)}


def tokenize(pairs: int, tokenizer: str, folder: str) -> tuple[int, float]:
    """Ours, as a run does it on first use: pairs and seconds."""
    data, loaded = _written(pairs, folder), load_tokenizer(tokenizer, kind="digit")
    options, started = {"decoder_only": False, "max_length": 512}, time.perf_counter()
    encode_dataset(lambda place: data, loaded, key=str(pairs), cache_dir=Path(folder), **options)
    return pairs, time.perf_counter() - started


def _written(pairs: int, folder: str) -> Any:
    datasets.disable_progress_bars()
    return datasets.Dataset.from_generator(made_up_pairs, cache_dir=folder, gen_kwargs={"count": pairs})


def map_datasets(pairs: int, tokenizer: str, folder: str) -> tuple[int, float]:
    """``datasets.map(batched=True)`` on the same rows with the same tokenizer, in its Rust threads."""
    data, loaded = _written(min(pairs, MAP_PAIRS), folder), load_tokenizer(tokenizer, kind="digit")

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        texts = {"input_ids": batch["question"], "labels": batch["answer"]}
        return {name: loaded(each, return_attention_mask=False)["input_ids"] for name, each in texts.items()}

    started = time.perf_counter()
    data.map(encode, batched=True, remove_columns=data.column_names, load_from_cache_file=False)
    return len(data), time.perf_counter() - started


def compare_stages(sizes: list[int], tokenizer: str, scratch: Path) -> Iterator[Row]:
    """Yield a row for each size and stage, each in a process of its own, with its peak of anonymous memory."""
    scratch.mkdir(parents=True, exist_ok=True)
    stages = {"tokenize": tokenize, "datasets.map, threads": map_datasets}
    for size, (name, stage) in product(sizes, stages.items()):
        with (
            tempfile.TemporaryDirectory(dir=scratch) as folder,
            ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        ):
            status, peak = Path(f"/proc/{pool.submit(os.getpid).result()}/status"), 0
            running = pool.submit(stage, size, tokenizer, folder)
            while not running.done():
                with suppress(OSError):  # it has ended
                    peak = max(peak, *map(int, re.findall(r"^RssAnon:\s+(\d+)", status.read_text(), re.M)), 0)
                time.sleep(0.02)
            pairs, seconds = running.result()
        row = {"pairs": pairs, "stage": name, "seconds": seconds, "pairs_per_s": round(pairs / seconds)}
        yield {**row, "peak_anon_mib": round(peak / 1024)}
