"""``scripts/benchmark_data.py``: how fast data is prepared and tokenized, and in how much memory, by size.

Each stage runs in a process of its own. Memory is the peak of its anonymous memory (RssAnon): files that are mapped
are the system's to drop, and do not count. The text is made up, in the layout and the lengths of the official release.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ntl.benchmarks.timing import Row, measured, timed
from ntl.config.data import MathematicsConfig
from ntl.data.prepared import Prepared
from ntl.data.sets.mathematics import OFFICIAL_TREE, TESTS, TRAIN, Mathematics

COLUMNS = ("pairs", "stage", "seconds", "pairs_per_s", "peak_anon_mib")
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
# Pairs that datasets.map is shown: its speed does not depend on them.
MAP_PAIRS = 100_000


def made_up_pair(number: int) -> tuple[str, str]:
    """A short or a long question, in turns, with the numbers and the lengths of the real ones."""
    a, b, c = number * 7919 % 1999 - 999, number * 104_729 % 19_997, number % 97 + 2
    if number % 2:
        return f"Solve {a}*h + {b} = -{c}*h - {b % 613} for h.", str(-number % 89 - 40)
    question = f"Let y = {a} + {b}. Suppose -{c}*s - 1 = -2*n + y, s - 5*n = -{b % 211}. What is n rounded to tens?"
    return question, str(number * 31 % 1_000_003)


def write_tree(folder: Path, rows_per_file: int) -> None:
    """The official tree with made-up text: 39 training files of that many pairs, 20 test files of one."""
    number = 0
    for name in (*TRAIN, *TESTS["interpolate"], *TESTS["extrapolate"]):
        path = folder / OFFICIAL_TREE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        count = rows_per_file if name in TRAIN else 1
        with open(path, "w", encoding="ascii") as stream:
            stream.writelines("{}\n{}\n".format(*made_up_pair(number + i)) for i in range(count))
        number += count


def data_set(folder: Path, rows_per_file: int) -> Prepared:
    """mathematics at this size."""
    return Prepared(Mathematics(MathematicsConfig(rows_per_file=rows_per_file, test_rows_per_file=1)), folder)


def prepare(folder: Path, rows_per_file: int) -> Row:
    """From text files to prepared files, every answer checked."""
    prepared = data_set(folder, rows_per_file)
    return timed(lambda: prepared.prepare(lambda line: None, download=False))


def _encode(folder: Path, rows_per_file: int, tokenizer: Any, split: str = "train") -> Any:
    from ntl.data.encode import encode_dataset

    prepared = data_set(folder, rows_per_file)
    options: Any = {"cache_dir": folder / ".encoded", "decoder_only": False, "max_length": 512}
    return encode_dataset(lambda: prepared.rows(split), tokenizer, key=prepared.content_key(split), **options)


def _load(tokenizer: str) -> Any:
    from ntl.tokenizers import load_tokenizer

    return load_tokenizer(tokenizer, kind="digit")


def tokenize(folder: Path, rows_per_file: int, tokenizer: str) -> Row:
    """Ours, as a run does it on first use."""
    loaded = _load(tokenizer)
    for split in ("validation", "interpolate", "extrapolate"):  # a few rows, not timed
        _encode(folder, rows_per_file, loaded, split)
    return timed(lambda: _encode(folder, rows_per_file, loaded))


def map_datasets(folder: Path, rows_per_file: int, tokenizer: str) -> Row:
    """``datasets.map(batched=True)`` on the same rows with the same tokenizer, in its Rust threads."""
    import datasets

    datasets.disable_progress_bars()
    loaded = _load(tokenizer)
    data = data_set(folder, rows_per_file).load("train")
    data = data.select(range(min(len(data), MAP_PAIRS)))

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {
            "input_ids": loaded(batch["question"], return_attention_mask=False)["input_ids"],
            "labels": loaded(batch["answer"], return_attention_mask=False)["input_ids"],
        }

    options: Any = {"remove_columns": data.column_names, "load_from_cache_file": False}
    return {"pairs": len(data)} | timed(lambda: data.map(encode, batched=True, **options))


def measure(pairs: int, tokenizer: str, scratch: Path, say: Callable[[Row], None]) -> None:
    """All stages at one size; each row is handed to ``say`` as it is known."""
    rows_per_file = -(-pairs // len(TRAIN))
    total = len(TRAIN) * rows_per_file
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        write_tree(folder, rows_per_file)
        prepared = measured(prepare, folder, rows_per_file)
        shutil.rmtree(folder / OFFICIAL_TREE)

        def tell(stage: str, row: Row) -> None:
            row = {"pairs": total, **row, "stage": stage}
            say({**row, "pairs_per_s": round(row["pairs"] / row["seconds"])})

        tell("prepare", prepared)
        common = (folder, rows_per_file, tokenizer)
        tell("tokenize", measured(tokenize, *common))
        tell("datasets.map, threads", measured(map_datasets, *common))
