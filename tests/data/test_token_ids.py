"""What no change of the code may change: the prepared files of every data set, its name, and the token ids of runs.

``python tests/data/test_token_ids.py`` writes what is compared with, from the code as it is.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "baseline" / "token_ids.json"
FEW = "dataset.train_rows=20 dataset.validation_rows=4 dataset.test_rows=2"
MULTIPLICATION = "dataset=multiplication dataset.train_rows=20 dataset.validation_rows=8 dataset.test_rows_per_cell=1"
ARITHMETIC = (
    "dataset=arithmetic dataset.train_rows_per_difficulty=9 dataset.validation_rows_per_difficulty=2 "
    "dataset.test_rows=2"
)
MATHEMATICS = "dataset=mathematics dataset.rows_per_file=3 dataset.test_rows_per_file=1"
RJOKES = "dataset=rjokes dataset.allow_dev_training=true dataset.train_rows=30 dataset.test_rows=8"
DIGIT, T5 = "tokenizer=digit", "model=t5_tiny"
OWN, TEXT, GIVEN = "dataset=file dataset.path", "dataset=text dataset.path", "tokenizer=default tokenizer.path"
CASES = {
    "noisy digit": f"dataset=noisy_numbers {FEW} {DIGIT} model=gpt2_tiny",
    "noisy t5": f"dataset=noisy_numbers {FEW} tokenizer=default {T5}",
    "noisy target": f"dataset=noisy_numbers {FEW} model=t5_tiny_regression",
    "arithmetic cut": f"{ARITHMETIC} {DIGIT} {T5} trainer.max_input_length=8",
    "noisy excluded": f"dataset=noisy_numbers {FEW} {DIGIT} model=gpt2_tiny loss=ntl_was dataset.exclude_numbers=5",
    "multiplication": f"{MULTIPLICATION} {DIGIT} model=llama_tiny",
    "multiplication xval": f"{MULTIPLICATION} model=xval_tiny",
    "every pair": "dataset=multiplication dataset.exhaustive_digits=1 dataset.train_rows=60 dataset.validation_rows=9 "
    "dataset.test_rows_per_cell=9",
    "arithmetic": f"{ARITHMETIC} {DIGIT} {T5}",
    "mathematics rt": f"{MATHEMATICS} model=rt_tiny",
    "gsm8k": f"dataset=gsm8k dataset.test_rows=8 {DIGIT} model=gpt2_tiny",
    "gsm8k paper": f"dataset=gsm8k dataset.test_rows=8 dataset.paper_compat=true {DIGIT} {T5}",
    "rjokes": f"{RJOKES} {DIGIT} {T5}",
    "rjokes paper": f"{RJOKES} dataset.paper_compat=true tokenizer=default model=gpt2_tiny",
    "multirc": f"dataset=multirc {DIGIT} model=gpt2_tiny",
    "polynomial": f"dataset=polynomial {FEW} {DIGIT} loss=ce",
    "induction": f"dataset=induction {FEW} loss=ce model=llama_tiny",
    "star_graph": f"dataset=star_graph {FEW} loss=ce model=llama_tiny",
    "needle": f"dataset=needle {FEW} {DIGIT} dataset.lengths=[64] dataset.extrapolate_lengths=[72] model=llama_tiny",
    "key_values": f"dataset=key_values {FEW} {DIGIT} model=gpt2_tiny",
    "json lines": f"{OWN}=a.jsonl {DIGIT} model=gpt2_tiny",
    "json list": f"{OWN}=a.json {DIGIT} {T5} dataset.train_rows=9 dataset.test_rows=1",
    "csv": f"{OWN}=a.csv dataset.number_format=auto {DIGIT} {T5}",
    "tsv": f"{OWN}=a.tsv dataset.header=false dataset.cells=plain dataset.question=2 dataset.answer=1 {DIGIT} {T5}",
    "parquet": f"{OWN}=a.parquet {DIGIT} model=gpt2_tiny dataset.seed=3",
    "saved folder": f"{OWN}=saved dataset.test_path=a.jsonl {DIGIT} model=gpt2_tiny",
    "template": f"{OWN}=a.parquet 'dataset.template=Say {{answer}}, {{question}}!' {DIGIT} model=gpt2_tiny",
    "lists": f"{OWN}=lists.jsonl dataset.answers=numbers {DIGIT} model=gpt2_tiny",
    "sentences": f"{OWN}=sentences.csv dataset.answers=sentence {DIGIT} {T5}",
    "instructions": f"{OWN}=instructions.jsonl dataset.answers=text {DIGIT} {T5}",
    "chats": f"{OWN}=chats.jsonl dataset.answers=text dataset.format=chat {GIVEN}=smollm2 model=gpt2_tiny",
    "chats, prefix": f"{OWN}=chats.jsonl dataset.answers=text dataset.format=chat {GIVEN}=llama3 model=gpt2_tiny",
    "plain, prefix": f"{OWN}=a.jsonl {GIVEN}=llama3 model=gpt2_tiny trainer.max_input_length=8",
    "weights of rows": f"{OWN}=a.jsonl dataset.weight=w {DIGIT} {T5}",
    "weights of parts": f"{OWN}=parts.jsonl dataset.answers=text dataset.format=chat dataset.weight=w "
    rf"'dataset.exclude_numbers=\b1' {GIVEN}=smollm2 model=gpt2_tiny",
    "text": f"{TEXT}=a.md {DIGIT} model=gpt2_tiny trainer.max_input_length=16",
    "dates": f"{OWN}=dates.csv {DIGIT} {T5}",
    "text, prefix": f"{TEXT}=a.jsonl dataset.column=question dataset.weight=w {GIVEN}=llama3 model=gpt2_tiny "
    "trainer.max_input_length=13 dataset.exclude_numbers=1",
    "weighted text": f"{TEXT}=a.jsonl dataset.column=question dataset.weight=w {DIGIT} model=gpt2_tiny",
}
OF_PACKAGES = "dataset.validation_rows=3 dataset.test_rows=3 tokenizer=digit model=gpt2_tiny"
PACKAGES = {name: f"dataset={name} {OF_PACKAGES}" for name in ("melting_points", "sentiment")}
LONG = {"multirc", "gsm8k", "gsm8k paper"}
REAL = {"arithmetic", "arithmetic cut", "mathematics rt", "gsm8k", "gsm8k paper", "rjokes", "rjokes paper", "multirc"}


def write_files(folder: Path) -> None:
    """The user's own files that the cases read, and tokenizers."""
    import pyarrow
    from datasets import Dataset
    from pyarrow import parquet

    sys.path.append(str(ROOT / "tests" / "tokenizers"))
    from given import MAKES

    rows: list[dict[str, Any]] = [
        {"question": f"What is {n} plus “1”?", "answer": n + 1.5, "w": n % 3 + 0.5} for n in range(40)
    ]
    before = [{"role": role, "content": f"{role} says"} for role in ("system", "user", "assistant")]
    asked = [[*before[: 3 * (n % 2)], {"role": "user", "content": f"And {n}?"}] for n in range(24)]
    weighted = [{"content": [{"text": "It is ", "w": 0}, {"text": f"{n}."}], "w": n + 1} for n in range(24)]
    files: dict[str, Sequence[Any]] = {
        "a": rows,
        "lists": [{"question": f"to {n}", "answer": [0.5, n, 1e-7]} for n in range(30)],
        "instructions": [{"instruction": f"Add {n}", "input": "1" * (n % 2), "output": f"so {n}"} for n in range(30)],
        "chats": [{"messages": [*each, {"role": "assistant", "content": "It is 1."}]} for each in asked],
        "parts": [{"messages": [*q, {"role": "assistant", **a}]} for q, a in zip(asked, weighted, strict=True)],
    }
    for name, content in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    (folder / "a.json").write_text(json.dumps(rows, indent=1))
    (folder / "a.csv").write_text("answer;question\n" + "".join(f'"1.{n:03},5 €";"q; {n}"\n\n' for n in range(30)))
    (folder / "a.tsv").write_text("".join(f'{n}\t"q" {n}\r\n' for n in range(30)))
    (folder / "dates.csv").write_text("question,answer\n" + "".join(f"2020-01-{n:02},{n}\n" for n in range(1, 30)))
    (folder / "sentences.csv").write_text("question,answer\n" + "".join(f"q{n},It is {n} m.\n" for n in range(30)))
    table = pyarrow.table({"answer": pyarrow.array([n / 10 for n in range(30)], pyarrow.float32())})
    parquet.write_table(table.append_column("question", [[f"q{n}" for n in range(30)]]), folder / "a.parquet")
    Dataset.from_list(rows).select(range(2, 40)).save_to_disk(str(folder / "saved"))
    (folder / "a.md").write_text("\n\n".join(f"# {n}\nThe {n}th of {n + 7} lines, 1.{n}." for n in range(40)))
    for name, make in MAKES.items():
        make().save_pretrained(folder / name)


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def found_in(words: str, folder: Path) -> dict[str, Any]:
    """What a run of these overrides reads: its id, the prepared files, and what it trains on and is scored on."""
    import shlex

    from ntl.config import compose, run_id
    from ntl.runs.parts import RunParts

    own = ["scale=tiny", "seed=1", "tracking=none", "device=cpu", f"data_dir={folder / 'data'}"]
    config = compose([*own, *shlex.split(words)])
    parts = RunParts(config)
    about = {split: dict(parts.encoded(split).about) for split in parts.dataset.all_splits}
    examples = {
        split: [
            {name: array.tolist() for name, array in example.items() if name != "documents"}
            for example in data.__getitems__(range(len(data)))
        ]
        for split in parts.dataset.all_splits
        for data in [parts.encoded(split)]
    }
    return {
        "id": run_id(config),
        "folder": parts.dataset.folder_name,
        "files": digest(parts.fingerprint),
        "about": digest(about),
        "ids": {split: digest(part) for split, part in examples.items()},
    }


@pytest.fixture(scope="module")
def before() -> dict[str, Any]:
    return json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("token_ids")
    write_files(place)
    return place


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.data] * (name in REAL) + [pytest.mark.slow] * (name in LONG))
        for name in CASES
    ],
)
def test_a_run_reads_what_it_read(name: str, before: dict[str, Any], folder: Path, request, monkeypatch) -> None:
    if name in REAL:
        request.getfixturevalue("data_root")
    monkeypatch.chdir(folder)
    assert found_in(CASES[name], folder) == before[name]


def test_packages(before: dict[str, Any], tmp_path: Path, packages: Callable[[Path], None], monkeypatch) -> None:
    monkeypatch.delenv("NTL_DATA_DIR", raising=False)
    packages(tmp_path / "data")
    assert {name: found_in(words, tmp_path) for name, words in PACKAGES.items()} == {
        name: before[name] for name in PACKAGES
    }


if __name__ == "__main__":
    import tempfile

    sys.path.insert(0, str(ROOT / "tests"))
    import conftest

    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        os.chdir(place)
        write_files(Path(place))
        made = {name: found_in(words, Path(place)) for name, words in CASES.items()}
        patch.delenv("NTL_DATA_DIR", raising=False)
        conftest.packages.__wrapped__(patch)(Path(place, "data"))  # pyright: ignore
        made |= {name: found_in(words, Path(place)) for name, words in PACKAGES.items()}
    FILE.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
