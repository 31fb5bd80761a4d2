"""Add to published records what younger ones measure: mean log(1 + APE), APE clipped at 10, bits of the right answer.

NTL_DATA_DIR=... python scripts/later_metrics.py, after `make weights`

The first two are of products, from the errors that a record packs: of up to 1,000 rows of a split (500 in the oldest
records), each within 0.4%. Bits are the validation loss times the tokens of a right answer. What records have measured
themselves is computed, too, and has to agree; and the rows with an error of 0 have to be the exact ones.
"""

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from tempfile import TemporaryDirectory

import numpy as np

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS
from ntl.results import RunRecord, load_records
from ntl.results.record import dumps, unpack_bits, unpack_errors
from ntl.system.files import write_atomically

NUMBERS = ("multiplication", "arithmetic", "melting_points", "sentiment", "noisy_numbers")
PARTS = ("dataset", "scale", "model", "tokenizer", "seed")
AGREES = {"log_ape": 1e-3, "ape_clipped_10": 1e-3, "bits": 1e-4}


class Data:
    """The data and the tokenizers of runs, each made once."""

    def __init__(self, folder: str) -> None:
        self.parts, self.answers, self.tokens = cache(self._parts), cache(self._answers), cache(self._tokens)
        self.folder = folder

    def _parts(self, overrides: tuple[str, ...]):
        from ntl.config.composition import compose
        from ntl.runs.parts import RunParts

        path = ["model.path=data/weights/smollm2_135m"] * ("model=smollm2_135m" in overrides)
        return RunParts(compose([*overrides, *path, f"data_dir={self.folder}"], check=False))

    def _answers(self, overrides: tuple[str, ...], split: str) -> tuple[np.ndarray, list[bytes], str]:
        """The sizes of the answers, what samples are sorted by, and the hash of the ids."""
        from ntl.evaluation.scores import sample_key

        rows = [*self.parts(overrides).rows(split)]
        ids = [row["id"] for row in rows]
        sizes = np.abs([float(row["answer"]) for row in rows])
        return sizes, [sample_key(id) for id in ids], hashlib.sha256("\n".join(ids).encode()).hexdigest()

    def _tokens(self, overrides: tuple[str, ...], rows: int) -> float:
        from ntl.losses.rows import IGNORE_INDEX

        parts = self.parts(overrides)
        examples = parts.encoded("validation").first(rows)
        labels = parts.collator([examples[index] for index in range(len(examples))])["labels"]
        return int((labels != IGNORE_INDEX).sum()) / len(examples)


def of_errors(record: RunRecord, overrides: tuple[str, ...], data: Data) -> Iterator[tuple[str, float]]:
    older = not any(name.endswith("/log_ape") for name in record.metrics)
    for key, packed in record.errors.items():
        split, _, reading = key.partition("@")
        sizes, keys, ids_sha256 = data.answers(overrides, split)
        if split == "validation":
            sizes = sizes[: (rows := record.config["trainer"]["eval_rows"])]
            keys = keys[:rows]
        elif ids_sha256 != record.ids_sha256[split]:
            raise ValueError(f"{record.id}: {split} has other rows")
        errors = unpack_errors(packed)
        kept = sorted(range(len(keys)), key=keys.__getitem__)[: len(errors)]
        kept = kept if older else sorted(kept)  # older ones are in the order of the sample
        if split in record.correct and not reading:
            exact = unpack_bits(record.correct[split], len(sizes))[kept]
            if ((errors == 0) != exact).any():
                raise ValueError(f"{record.id}: {split}: errors of 0 are not the exact answers")
        if len(errors) != len(kept) or not sizes.all():
            raise ValueError(f"{record.id}: {split} has {len(kept)} rows, not {len(errors)}, or an answer of 0")
        relative = np.where(np.isnan(errors), 100.0, 100 * errors.astype(float) / sizes[kept])
        ending = f"@{reading}" if reading else ""
        yield f"{split}/log_ape{ending}", float(np.log1p(relative).mean())
        yield f"{split}/ape_clipped_10{ending}", float(np.minimum(relative, 10.0).mean())


def later(record: RunRecord, data: Data) -> Iterator[tuple[str, float]]:
    overrides = tuple(word for word in record.overrides if word.split("=")[0].split(".")[0] in PARTS)
    if record.config["dataset"]["name"] == "multiplication":
        for name, value in of_errors(record, overrides, data):
            yield name, float(f"{value:.4g}")
    ce = record.metrics.get("validation/ce")
    if record.config["model"]["head"] == "lm" and ce is not None:
        tokens = data.tokens(overrides, record.config["trainer"]["eval_rows"])
        yield "validation/bits", ce * tokens / math.log(2)


def _with(added: Mapping[str, dict[str, float]], line: str) -> str:
    """The line of a record with its added metrics, else as it was."""
    values = json.loads(line)
    values["metrics"] |= added.get(values["id"], {})
    return f"{dumps(values)}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Print how many values were added, and how far the others are from what was measured."""
    Parser(description=__doc__).parse_args(argv)
    added, agreed, furthest = dict[str, dict[str, float]](), Counter[str](), dict[str, float]()
    with TemporaryDirectory() as folder:
        data = Data(folder)
        for record in load_records([RESULTS / "runs"]):
            if record.config["dataset"]["name"] not in NUMBERS:
                continue
            new = dict[str, float]()
            for name, value in later(record, data):
                metric = name.partition("@")[0].rpartition("/")[2]
                if (measured := record.metrics.get(name)) is None:
                    new[name] = value
                    continue
                if (off := abs(value / measured - 1)) > AGREES[metric]:
                    raise ValueError(f"{record.id}: {name} is {measured}, not {value}")
                agreed[metric] += 1
                furthest[metric] = max(furthest.get(metric, 0.0), off)
            added[record.id] = new
    for path in (RESULTS / "runs").glob("*.jsonl"):
        write_atomically(path, "".join(map(partial(_with, added), path.read_text(encoding="utf-8").splitlines())))
    for metric in AGREES:
        count = sum(metric == name.partition("@")[0].rpartition("/")[2] for new in added.values() for name in new)
        print(f"{metric}: {count} added, {agreed[metric]} agree within {furthest[metric]:.1g}")


if __name__ == "__main__":
    sys.exit(report(main, extra="report"))
