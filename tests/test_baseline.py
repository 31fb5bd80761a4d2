"""What a change of the code must not change: ids, token ids, order, masks, metrics, tables, a run begun before.

``python tests/test_baseline.py`` writes what the tests compare with into ``tests/baseline``, from the code as it is.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ntl.config import compose, run_id
from ntl.results import read_record

ROOT = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).parent / "baseline"
FILE = KEPT / "baseline.json"

FEW = "dataset.train_rows=64 dataset.validation_rows=8 dataset.test_rows=8"
NOISY, DIGITS = f"dataset=noisy_numbers {FEW}", "tokenizer=digit"
MULTIPLICATION = "dataset=multiplication dataset.train_rows=64 dataset.validation_rows=8 dataset.test_rows_per_cell=1"
ARITHMETIC = (
    "dataset=arithmetic dataset.train_rows_per_difficulty=64 dataset.validation_rows_per_difficulty=8 "
    "dataset.test_rows=8 model=llama_tiny"
)
MATHEMATICS = "dataset=mathematics dataset.rows_per_file=20 dataset.test_rows_per_file=1"
RJOKES = "dataset=rjokes dataset.allow_dev_training=true dataset.train_rows=64 dataset.test_rows=8"
# Every data set, loss, family of models, objective and way of decoding once, as far as few runs can.
RUNS = {
    "noisy_numbers": f"{NOISY} {DIGITS} model=gpt2_tiny loss=ntl_crps extra_decodings=expectation",
    "multiplication": f"{MULTIPLICATION} {DIGITS} model=gpt2_tiny loss=ntl_mse probe_steps=3",
    "experts": f"{MULTIPLICATION} {DIGITS} model=granite_moe_tiny loss=ce_digits extra_decodings=median",
    "number_level": f"{MULTIPLICATION} {DIGITS} model=qwen2_tiny loss=ntl_number_level decoding=beam",
    "arithmetic": f"{ARITHMETIC} {DIGITS} loss=gce_ntl_was",
    "default tokenizer": f"{ARITHMETIC} tokenizer=default loss=ntl_was trainer.length_bucketing=true",
    "mathematics": f"{MATHEMATICS} {DIGITS} model=t5_tiny loss=ntl_huber",
    "rt": f"{MATHEMATICS} model=rt_tiny loss=ntl_was",
    "xval": f"{MULTIPLICATION} model=xval_tiny",
    "rjokes": f"{RJOKES} {DIGITS} model=t5_tiny loss=ntl_was",
    "rjokes regression": f"{RJOKES} model=t5_tiny_regression",
    "multirc": f"dataset=multirc {DIGITS} model=gpt2_tiny loss=ntl_was_vocab",
    "gsm8k": f"dataset=gsm8k dataset.test_rows=8 {DIGITS} model=gpt2_tiny loss=ntl_mae",
    "polynomial": f"dataset=polynomial {FEW} {DIGITS} loss=ce objective=mtp decoding=speculative",
    "induction": f"dataset=induction {FEW} dataset.sentences=2 model=llama_tiny loss=ce objective=mtp",
    "star_graph": f"dataset=star_graph {FEW} model=llama_tiny loss=ce",
    "needle": f"dataset=needle {FEW} {DIGITS} model=llama_tiny loss=ntl_was objective.mask.fraction=0.15",
    "key_values": f"dataset=key_values {FEW} {DIGITS} model=gpt2_tiny loss=ce objective.mask.fraction=0.3",
}
REAL = ("arithmetic", "default tokenizer", "mathematics", "rt", "rjokes", "rjokes regression", "multirc", "gsm8k")
SHORT = [
    *("scale=tiny", "seed=1", "trainer.max_steps=6", "trainer.warmup_steps=1", "trainer.batch_size=8"),
    *("trainer.eval_rows=8", "trainer.save_steps=0", "trainer.logging_steps=1", "decoding.max_new_tokens=4"),
    *("tracking=none", "device=cpu"),
]
BEGUN = [
    *(NOISY, DIGITS, "model=gpt2_tiny loss=ntl_was model.n_embd=8 model.n_layer=1", " ".join(SHORT)),
    *("trainer.max_steps=12", "output_dir=outputs", "data_dir=data"),
]
BEGUN = " ".join(BEGUN).split()


def sha256(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()


@contextmanager
def ids_seen() -> Iterator[list[list]]:
    """The ids that each embedding is given while a model trains: token ids, order of the rows, and masks in one."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook

    seen: list[list] = []

    def keep(module: torch.nn.Module, given: tuple) -> None:
        if isinstance(module, torch.nn.Embedding) and module.training:
            seen.append(given[0].tolist())

    hook = register_module_forward_pre_hook(keep)
    try:
        yield seen
    finally:
        hook.remove()


def said(record: Path) -> dict[str, Any]:
    """What a record says of the computation; of each group and curve, a sha256."""
    kept = ("id", "metrics", "predictions_sha256", "ids_sha256", "steps", "tokens_seen", "groups", "curves")
    values = json.loads(json.dumps({key: asdict(read_record(record))[key] for key in kept}))
    for name in ("groups", "curves"):
        values[name] = {key: sha256(series)[:16] for key, series in values[name].items()}
    return values


def run_of(name: str, folder: Path) -> dict[str, Any]:
    from ntl.training.train import train

    config = compose([*SHORT, *RUNS[name].split(), f"output_dir={folder / 'outputs'}", f"data_dir={folder / 'data'}"])
    with ids_seen() as seen:
        record = train(config)
    return {"inputs": sha256(seen), **said(record)}


def sources() -> dict[str, str]:
    """File, or id of a record -> sha256, of what tables and figures are computed from, which `.ci/run` makes again."""
    paths = [path for path in (ROOT / "results" / "benchmarks").rglob("*") if path.suffix in (".json", ".csv")]
    records = (ROOT / "results" / "runs").glob("*.jsonl")
    lines = [line for path in records for line in path.read_text(encoding="utf-8").split("\n") if line]
    found = {path.relative_to(ROOT).as_posix(): sha256(path.read_bytes()) for path in sorted(paths)}
    return found | {json.loads(line)["id"]: sha256(line.encode()) for line in lines}


def ids(tables: Iterable[str]) -> dict[str, list[str]]:
    """Table and scale -> the ids of its runs with the first seed, in order; "" for a row that runs nothing."""
    from ntl.results.match import plan_block
    from ntl.results.spec import load_table_spec

    found: dict[str, list[str]] = {}
    for name in tables:
        spec = load_table_spec(name)
        for block in spec.blocks:
            for scale in block.scales:
                for plan in plan_block(block, scale):
                    words = [*plan.overrides, "seed=1"] if plan.overrides else []
                    found.setdefault(f"{name} {scale}", []).append(run_id(compose(words)) if words else "")
    return found


def orders() -> dict[str, str]:
    """The order of two epochs, below and above the size from which it is computed by blocks, and by length."""
    import numpy as np

    from ntl.training.batches import epoch_order

    found = {}
    for n in (1000, 100_000):
        for by_length in (False, True):
            lengths = (lambda indices: indices % 37) if by_length else None
            blocks = [*epoch_order(n, 7, 0, batch_size=32, lengths=lengths)]
            blocks += epoch_order(n, 7, 1, batch_size=32, lengths=lengths)
            found[f"{n}{' by length' if by_length else ''}"] = sha256(np.concatenate(blocks).astype("<i8").tobytes())
    return found


@pytest.fixture(scope="module")
def before() -> dict[str, Any]:
    return json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("baseline")


def of_this_processor(before: dict[str, Any]) -> bool:
    """Whether a run rounds here as it did; another kind of processor adds in another order."""
    return before["processor"] == processor()


def processor() -> str:
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model name", "flags"))
    ]
    return sha256(sorted(set(names)))


def same(now: dict[str, Any], then: dict[str, Any], exact: bool) -> None:
    """Where rounding may differ: what no float decides. Keys that are new are no difference."""
    keys = then if exact else ("batches", "inputs", "id", "ids_sha256", "steps", "tokens_seen")
    assert {key: of(now[key], then[key]) for key in keys if key in then} == {
        key: then[key] for key in keys if key in then
    }


def of(now: Any, then: Any) -> Any:
    return {key: of(now.get(key), value) for key, value in then.items()} if isinstance(then, dict) else now


def test_what_tables_and_figures_are_computed_from(before: dict[str, Any]) -> None:
    now = sources()
    assert {path: now.get(path) for path in before["tables"]} == before["tables"]


def test_the_order_of_an_epoch(before: dict[str, Any]) -> None:
    assert orders() == before["orders"]


@pytest.mark.soak
def test_ids_of_all_tables_at_all_scales_and_the_published_records_of_their_rows(before: dict[str, Any]) -> None:
    """The other 75 of 639 records are of settings that no table has. `make tables` shows that rows have records."""
    from ntl.results import load_records
    from ntl.results.match import plan_table, row_records
    from ntl.results.spec import load_table_spec

    names = [*dict.fromkeys(name.split()[0] for name in before["ids"])]
    assert ids(names) == before["ids"]
    records, found = load_records([ROOT / "results" / "runs"]), []
    for spec in map(load_table_spec, names):
        plans = [plan for scale in spec.scales for _, plans in plan_table(spec, scale) for plan in plans]
        found += [record.id for plan in plans if plan.pins for record in row_records(plan, records).values()]
    assert (len(found), len(set(found))) == (757, 585)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    # MultiRC has no setting for fewer rows.
    [
        pytest.param(name, marks=[pytest.mark.data] * (name in REAL) + [pytest.mark.soak] * (name == "multirc"))
        for name in RUNS
    ],
)
def test_a_run_says_what_it_said(
    name: str, before: dict[str, Any], folder: Path, request: pytest.FixtureRequest
) -> None:
    if name in REAL:
        request.getfixturevalue("data_root")
    then = before["runs"][name]
    same(run_of(name, folder), then, of_this_processor(before))


def test_a_run_that_was_begun_before(before: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder was written by the code of then, at step 6 of 12."""
    from ntl.training.train import train

    monkeypatch.chdir(tmp_path)
    shutil.copytree(KEPT / "outputs", tmp_path / "outputs")
    with ids_seen() as seen:
        record = train(compose(BEGUN))
    # Steps 7 to 12 alone were trained.
    same({"batches": len(seen), **said(record)}, before["begun"], of_this_processor(before))


def begin(folder: Path) -> dict[str, Any]:
    """A run stopped by Ctrl-C in step 7, kept; and what it says at its end, when nothing stops it."""
    from ntl.training.train import train
    from ntl.training.trainer import ObjectiveTrainer

    folder.mkdir()
    os.chdir(folder)
    original: Callable[..., Any] = ObjectiveTrainer.training_step

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 5:
            signal.raise_signal(signal.SIGINT)
        return original(self, *args, **kwargs)

    setattr(ObjectiveTrainer, "training_step", interrupted)  # noqa: B010
    with suppress(KeyboardInterrupt):
        train(compose(BEGUN))
    setattr(ObjectiveTrainer, "training_step", original)  # noqa: B010
    shutil.rmtree(KEPT / "outputs", ignore_errors=True)
    shutil.copytree("outputs", KEPT / "outputs")
    shutil.rmtree("outputs")
    with ids_seen() as seen:
        record = train(compose(BEGUN))
    assert len(seen) % 12 == 0
    return {"batches": len(seen) // 2, **said(record)}


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    import tempfile

    import torch

    from ntl.results.spec import table_names

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        KEPT.mkdir(exist_ok=True)
        made = {"processor": processor(), "tables": sources(), "orders": orders(), "ids": ids(table_names())}
        made["runs"] = {name: run_of(name, Path(place)) for name in RUNS}
        made["begun"] = begin(Path(place) / "begun")
    FILE.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    sys.exit(0)
