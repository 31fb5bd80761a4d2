"""Train twenty tiny runs and keep what they say, or compare with what was kept, as before and after a change of code.

python scripts/same_runs.py before.json      # on the old code
python scripts/same_runs.py before.json      # on the new code: exit code 1, and what differs, where anything does

Both on one machine with one thread a run: another kind of processor, or number of threads, rounds in another way.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ntl.config.cli import report
from ntl.system.errors import UserError

ARITHMETIC = "dataset=arithmetic model=llama_tiny"
MULTIPLICATION = "dataset=multiplication tokenizer=digit"
RJOKES = "dataset=rjokes dataset.allow_dev_training=true trainer.lr=1e-2"
MATHEMATICS = "dataset=mathematics trainer.max_steps=400"
# One of each table at scale=tiny, every kind of loss, and every family of models with each of its heads.
RUNS = {
    "evidence": "dataset=noisy_numbers model=gpt2_tiny tokenizer=digit loss=ntl_crps beside=expectation",
    "quickstart": f"{MULTIPLICATION} model=gpt2_tiny loss=ntl_mse probe_steps=50",
    "1": f"{MATHEMATICS} model=t5_tiny tokenizer=digit loss=ntl_was",
    "1, Regression Transformer": f"{MATHEMATICS} model=rt_tiny loss=ntl_was",
    "1, xVal": f"{MATHEMATICS} model=xval_tiny",
    "2": f"{ARITHMETIC} tokenizer=digit loss=ntl_huber beside=expectation",
    "3": f"{ARITHMETIC} tokenizer=digit loss=gce_ntl_was",
    "4": f"{RJOKES} model=t5_tiny tokenizer=digit loss=ntl_was loss.weight=2.0 beside=expectation",
    "4, regression": f"{RJOKES} model=t5_tiny_regression",
    "5": f"{MULTIPLICATION} model=granite_tiny loss=ntl_was beside=median probe_steps=50",
    "5, experts": f"{MULTIPLICATION} model=granite_moe_tiny loss=ce_digits",
    "6": f"{RJOKES} model=t5_tiny tokenizer=default loss=ntl_mae",
    "7": f"{ARITHMETIC} tokenizer=default loss=ntl_was",
    "8": "dataset=multirc model=gpt2_tiny tokenizer=digit loss=ntl_was_vocab",
    "9": "dataset=gsm8k model=gpt2_tiny tokenizer=digit loss=ce",
    "a5": f"{ARITHMETIC} tokenizer=digit loss=ce trainer.bf16=true trainer.length_bucketing=true",
    "a6": f"{ARITHMETIC} tokenizer=digit loss=gce",
    "a7": f"{MULTIPLICATION} model=gpt2_tiny loss=ntl_was_squashed",
    "xval": f"{MULTIPLICATION} model=qwen2_tiny loss=ntl_number_level decoding=beam",
    "regression of a decoder": "dataset=noisy_numbers model=gpt2_tiny_regression",
}


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, or 1 where a run failed or says something else."""
    from ntl.launch import plan_runs, run_all

    words = sys.argv[1:] if argv is None else argv
    if len(words) != 1:
        raise UserError("usage: same_runs.py FILE.json")
    kept = Path(words[0])
    before = json.loads(kept.read_text()) if kept.is_file() else None
    if before is not None and before.keys() != RUNS.keys():
        raise UserError(f"{kept}: kept of other runs than today's")
    runs = [[*text.split(), "scale=tiny", "seed=1"] for text in RUNS.values()]
    with tempfile.TemporaryDirectory() as folder:
        todo, _ = plan_runs(runs, Path(folder))
        if failed := run_all(todo).failed:
            raise UserError("\n".join(f"{ended.run.id}: {ended.error}" for ended in failed))
        now = {name: of_record(run.folder) for name, run in zip(RUNS, todo, strict=True)}
    if before is None:
        kept.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        print(f"{kept}: written")
        return 0
    return compare(before, now)


def of_record(folder: Path) -> dict[str, Any]:
    from ntl.results import read_record

    record = read_record(folder / "record.json")
    kept = ("id", "metrics", "predictions_sha256", "ids_sha256", "steps", "tokens_seen", "groups", "curves")
    said: dict[str, Any] = json.loads(json.dumps({key: getattr(record, key) for key in kept}, sort_keys=True))
    return said


def common(value: Any, before: Any) -> Any:
    """Of a mapping, the entries that ``before`` has, too."""
    return {key: value[key] for key in before if key in value} if isinstance(before, dict) else value


def compare(before: dict[str, Any], now: dict[str, Any]) -> int:
    different = 0
    for name in now:
        # A series or metric that is new is no difference. As text, so that a NaN is the same as a NaN.
        known = {key: common(value, before[name][key]) for key, value in now[name].items()}
        keys = [key for key, value in known.items() if json.dumps(value) != json.dumps(before[name][key])]
        different += bool(keys)
        print(f"{name}: {'other ' + ', '.join(keys) if keys else 'the same'}")
    print(f"{len(now) - different} of {len(now)} runs say the same as before")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(report(main))
