"""DeepMind mathematics, seeded: the 13 modules that the paper trains on, and its ablations' set of sums.

Both sets shuffle the pairs of each training file; the first are for training, the next for validation, and smaller
counts take a prefix of the same order. Rows of train and validation go round the files, so that every prefix has all
modules and difficulties in equal parts. Test files keep their order.

The text files come from, in this order:

1. files already under the data folder or NTL_DATA_DIR: the official tree (``mathematics_dataset-v1.0/<regime>/``
   ``<module>.txt``), its archive, a regenerated archive, or what step 3 left;
2. the official release, when it can be downloaded;
3. the original generator, in an environment of its own: it needs sympy and numpy of its time.

A source must have every wanted file with enough pairs; otherwise the next one is tried. Generated text of the two
modules used for ``arithmetic`` is the same under either version of numpy (measured on Python 3.11, 3.12 and 3.13).
Composed modules (``..._composed``) are not reproducible: the generator iterates a set ordered by memory address.
"""

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ntl.config.data import ArithmeticConfig, MathematicsConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, Row, TextDataset, numbered, words
from ntl.data.prepared import Buffer, Lines, map_file
from ntl.data.raw import Missing
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import data_roots, lock, make_once

# What is wrong with a pair: 1 for the question's line or 2 for the answer's, and the reason.
LineFault = Callable[[str, str], tuple[int, str] | None]
ORIGIN = raw.origin("deepmind")
OFFICIAL_TREE = "mathematics_dataset-v1.0"
OFFICIAL_ARCHIVE = f"{OFFICIAL_TREE}.tar.gz"
GENERATED_TREE = "mathematics_dataset-generated"
# Folders the files may lie in, below a data root.
PLACES = ("", "mathematics_dataset")
SMALL_ARCHIVES = ("arithmetic-regen.tar.gz", "mathematics_dataset-regen-1k.tar.gz")
# Pairs above which generation must be allowed by a setting: it takes hours, at 100 to 1,000 pairs a second and core.
GENERATED_UNASKED = 500_000
# Least pairs in a generated training file of ``arithmetic``, so that one order serves every config: the paper's count.
SUMS, LEAST = "arithmetic__add_sub_multiple", 34_333
WORKER = Path(__file__).with_name("generator_worker.py")
# numpy 1.26 has no wheels from Python 3.13 on, and under numpy 2 the composed modules raise, which ends the run, while
# the plain ones are unchanged.
NUMPY = "numpy>=2.1" if sys.version_info >= (3, 13) else "numpy==1.26.4"
PINS = ("mathematics-dataset==1.0.1", "sympy==1.13.3", NUMPY)
MODULES = words(
    "algebra__linear_1d algebra__linear_1d_composed algebra__linear_2d algebra__linear_2d_composed "
    "algebra__sequence_next_term arithmetic__add_or_sub arithmetic__add_sub_multiple arithmetic__mul "
    "numbers__div_remainder numbers__div_remainder_composed numbers__place_value numbers__round_number "
    "numbers__round_number_composed"
)
HARDER = words(
    "arithmetic__add_or_sub_big arithmetic__add_sub_multiple_longer arithmetic__mixed_longer arithmetic__mul_big "
    "arithmetic__mul_div_multiple_longer numbers__place_value_big numbers__round_number_big"
)
DIFFICULTIES = ("easy", "medium", "hard")
TRAIN = tuple(f"train-{difficulty}/{module}.txt" for difficulty in DIFFICULTIES for module in MODULES)
TESTS = {
    "interpolate": tuple(f"interpolate/{module}.txt" for module in MODULES),
    "extrapolate": tuple(f"extrapolate/{module}.txt" for module in HARDER),
}
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
SUMS_TRAIN = tuple(f"train-{difficulty}/{SUMS}.txt" for difficulty in DIFFICULTIES)
SUMS_TESTS = {"interpolate": f"interpolate/{SUMS}.txt", "extrapolate": f"extrapolate/{SUMS}_longer.txt"}
TEMPLATE = re.compile(r"What is (?:the value of )?(?P<asked>.+)\?|(?:Calculate|Evaluate) (?P<told>.+)\.|(?P<bare>.+)")
SUM = re.compile(r"[-+ ]*[0-9]+(?: *[-+][-+ ]*[0-9]+)* *")


# ---- the text files


@dataclass
class Texts:
    """The pairs of ``<regime>/<module>.txt`` files: a line with a question, a line with its answer, and so on.

    ``labels`` are for error messages, ``source`` for the manifest.
    """

    lines: dict[str, Lines]
    labels: dict[str, str]
    source: dict[str, Any]

    def shuffled(self, name: str, seed: int, stream: int, count: int) -> np.ndarray:
        """Indices of the first ``count`` pairs of a file in an order that seed and stream decide, (count,) uint32."""
        order = np.arange(len(self.lines[name]) // 2)
        np.random.default_rng([seed, stream]).shuffle(order)
        return order[:count].astype(np.uint32)

    def checked(self, name: str, order: np.ndarray, fault: LineFault) -> Iterator[tuple[str, str]]:
        """The pairs of a file in this order; UserError with file and line where ``fault`` names one."""
        lines, label = self.lines[name], self.labels[name]
        for index in map(int, order):
            question, answer = lines[2 * index].decode(), lines[2 * index + 1].decode()
            if found := fault(question, answer):
                raise UserError(f"{label}:{2 * index + found[0]}: {found[1]}.")
            yield question, answer


def find_texts(
    wanted: Mapping[str, int], data_dir: Path, log: Log, *, download: bool = True, allow_generation: bool = False
) -> Texts:
    """The pairs of each wanted ``<regime>/<module>.txt``, at least as many as asked for.

    UserError for a damaged file and a generator that fails. Missing if the files are nowhere and cannot be generated
    here, or take hours to generate without ``allow_generation``.
    """
    with lock(data_dir / ".mathematics_dataset.lock", log):
        found = _on_disk(wanted, data_dir, log)
        if found is None and download and raw.fetch(raw.RawFile(OFFICIAL_ARCHIVE, ORIGIN.home), data_dir, log):
            found = _on_disk(wanted, data_dir, log)
        if found is None:
            if sum(wanted.values()) > GENERATED_UNASKED and not allow_generation:
                raise Missing(
                    f"{sum(wanted.values()):,} pairs of DeepMind mathematics are nowhere under "
                    f"{' or '.join(map(str, data_roots(data_dir)))}: put {ORIGIN.home} there, or take fewer rows, or "
                    "set dataset.allow_generation=true, which takes hours."
                )
            generate(wanted, data_dir / GENERATED_TREE, data_dir / ".generator", log)
            found = _read_tree("generator", data_dir / GENERATED_TREE, wanted, log)
    assert found is not None
    return found


def _on_disk(wanted: Mapping[str, int], data_dir: Path, log: Log) -> Texts | None:
    folders = [root / place for root in data_roots(data_dir) for place in PLACES]
    for folder in folders:
        found = _read_tree("official tree", folder / OFFICIAL_TREE, wanted, log)
        if found is None and (folder / OFFICIAL_ARCHIVE).is_file():
            unpack(folder / OFFICIAL_ARCHIVE, data_dir / OFFICIAL_TREE, wanted, log)
            found = _read_tree("official archive", data_dir / OFFICIAL_TREE, wanted, log)
        if found is not None:
            return found
    for archive in (folder / name for folder in folders for name in SMALL_ARCHIVES):
        contents = dict(members(archive, wanted)) if archive.is_file() else {}
        if found := _texts("regenerated archive", archive, contents, wanted, log):
            return found
    return _read_tree("generator", data_dir / GENERATED_TREE, wanted, log)


def _read_tree(kind: str, tree: Path, wanted: Mapping[str, int], log: Log) -> Texts | None:
    is_whole = all((tree / name).is_file() for name in wanted)
    contents = {name: map_file(tree / name) for name in wanted} if is_whole else {}
    return _texts(kind, tree, contents, wanted, log)


def _texts(kind: str, where: Path, contents: Mapping[str, Buffer], wanted: Mapping[str, int], log: Log) -> Texts | None:
    if set(contents) != set(wanted):
        return None
    labels = {name: str(where / name) for name in wanted}
    lines = {name: Lines(contents[name]) for name in wanted}
    for name, count in wanted.items():
        if len(lines[name]) % 2 or not len(lines[name]):
            raise UserError(
                f"{labels[name]}:{len(lines[name])}: question without an answer; the file is truncated or damaged."
            )
        if len(lines[name]) // 2 < count:
            log(f"{labels[name]}: {len(lines[name]) // 2} pairs, {count} are wanted; looking further")
            return None
    log(f"reading {where}")
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in wanted}
    return Texts(lines, labels, {"kind": kind, "path": str(where), "sha256": digests})


def members(archive: Path, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Members of a ``.tar.gz`` by their path below its top folder, in its order; those not in it are left out."""
    try:
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                below_top = member.name.removeprefix("./").partition("/")[2]
                content = tar.extractfile(member) if below_top in wanted else None
                if content is not None:
                    yield below_top, content.read()
            while stream.read(1 << 20):  # at the end the checksum is compared
                pass
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise UserError(f"{archive}: truncated or damaged ({error}); fetch it again.") from error


def unpack(archive: Path, tree: Path, wanted: Collection[str], log: Log) -> None:
    """Take the wanted files out of the official archive: all of them, or none where it is damaged."""
    log(f"unpacking {archive} (it is read through once)")
    with one_line_errors("unpack into", tree):
        tree.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=tree) as part:
            found = []
            for name, content in members(archive, wanted):
                (Path(part) / str(len(found))).write_bytes(content)
                found.append(tree / name)
            for number, path in enumerate(found):
                path.parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(part) / str(number), path)


def generate(wanted: Mapping[str, int], tree: Path, environment: Path, log: Log) -> None:
    """Write each wanted ``<regime>/<module>.txt`` under ``tree``, unless it is there with enough pairs.

    A file takes its name only when it is whole. Missing when the generator cannot be had, UserError when it fails.
    """
    counts = {}
    for name, count in wanted.items():
        usual = max(count, LEAST if name.startswith("train-") and SUMS in name else 0)
        if not (tree / name).is_file() or len(Lines(map_file(tree / name))) < 2 * usual:
            counts[name] = usual

    def install(new: Path) -> None:
        log(f"installing {', '.join(PINS)} in {environment} (about 15 s)")
        options = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
        done = _run(["-m", "pip", "install", *options, "--target", str(new), *PINS])
        if done.returncode:
            raise Missing(
                f"the generator of DeepMind mathematics cannot be had: pip: {_last_line(done.stderr or done.stdout)}; "
                f"put {ORIGIN.home} or its tree under the data folder, or in the one that NTL_DATA_DIR names, instead."
            )

    make_once(environment, lambda: environment if environment.is_dir() else None, install, log, "write")
    log(f"generating {sum(counts.values())} pairs with {PINS[0]}")
    with one_line_errors("write", tree):
        tree.mkdir(parents=True, exist_ok=True)
        done = _run([str(WORKER), str(tree), json.dumps(counts)], PYTHONPATH=str(environment))
        if done.returncode:
            raise UserError(f"the generator failed: {_last_line(done.stderr)}.")


def _run(arguments: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    return subprocess.run([sys.executable, *arguments], env={**os.environ, **environment}, **options)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1]


# ---- the data sets


class Mathematics(TextDataset):
    """Some 26 million pairs, whose answer is one number; ids carry the module (``interpolate/arithmetic__mul/00012``).

    ``interpolate`` has the test files of the 13 modules one after the other, ``extrapolate`` those of 7 harder ones.
    """

    splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    origin = ORIGIN
    config: MathematicsConfig

    @property
    def values(self) -> dict[str, Any]:
        """Without the consent to generate, which changes no row."""
        return {key: value for key, value in super().values.items() if key != "allow_generation"}

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows from the first source that has all 59 files; they are read and checked while they are written."""
        config, cut = self.config, train_rows(self.config)
        rows, test_rows = config.rows_per_file, config.test_rows_per_file
        tests = [name for names in TESTS.values() for name in names]
        wanted = {**dict.fromkeys(TRAIN, rows), **dict.fromkeys(tests, test_rows)}
        texts = find_texts(wanted, data_dir, log, download=download, allow_generation=config.allow_generation)
        log(f"mathematics: writing and checking {sum(wanted.values()):,} pairs")
        orders = {name: texts.shuffled(name, config.seed, stream, rows) for stream, name in enumerate(TRAIN)}
        train = [_rows(texts, name, order[:cut]) for name, order in orders.items()]
        validation = [_rows(texts, name, order[cut:]) for name, order in orders.items()]
        splits = {
            "train": numbered("train", _in_turns(train), len(TRAIN) * cut),
            "validation": numbered("validation", _in_turns(validation), len(TRAIN) * (rows - cut)),
        }
        for split, names in TESTS.items():
            files = [_rows(texts, name, np.arange(test_rows)) for name in names]
            splits[split] = numbered(split, chain.from_iterable(files), len(names) * test_rows)
        return Material(splits, texts.source)


def train_rows(config: MathematicsConfig) -> int:
    """How many rows of a training file are for training; the rest are for validation. UserError where one has none."""
    # Rounded first: 0.98 x 1000 must be 980 whatever the float says.
    rows = int(round(config.train_share * config.rows_per_file, 6))
    if not 0 < rows < config.rows_per_file:
        raise UserError(
            f"dataset.train_share={config.train_share} of dataset.rows_per_file={config.rows_per_file} leaves no row "
            f"for {'validation' if rows else 'training'}."
        )
    return rows


def _rows(texts: Texts, name: str, order: np.ndarray) -> Iterator[Row]:
    module = Path(name).stem
    return (Row(question, answer, module) for question, answer in texts.checked(name, order, _no_number))


def _no_number(question: str, answer: str) -> tuple[int, str] | None:
    return None if NUMBER.fullmatch(answer) else (2, f"the answer {answer!r} is not a number")


def _in_turns(files: Iterable[Iterable[Row]]) -> Iterator[Row]:
    """One row of each file, then the next of each; all have the same number."""
    return chain.from_iterable(zip(*files, strict=True))


class Arithmetic(TextDataset):
    """Sums of several integers with parentheses: the set of Tables 2 and 3. Every answer is recomputed before its use.

    A few easy questions occur twice in the generator's output, as in the authors' set; no test question occurs in
    training. ``extrapolate`` has longer sums.
    """

    splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    origin = ORIGIN
    config: ArithmeticConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows from the first source that has all five files; UserError names file and line of a wrong answer."""
        config = self.config
        cut, count = config.train_rows_per_difficulty, config.validation_rows_per_difficulty
        wanted = dict.fromkeys(SUMS_TRAIN, cut + count) | dict.fromkeys(SUMS_TESTS.values(), config.test_rows)
        texts = find_texts(wanted, data_dir, log, download=download)
        log(f"arithmetic: checking {sum(wanted.values())} answers")
        pairs: dict[str, list[Row]] = {}
        for stream, (name, rows) in enumerate(wanted.items()):
            order = texts.shuffled(name, config.seed, stream, rows) if name in SUMS_TRAIN else np.arange(rows)
            pairs[name] = [Row(*pair) for pair in texts.checked(name, order, _wrong_sum)]
        splits = {
            "train": list(_in_turns(pairs[name][:cut] for name in SUMS_TRAIN)),
            "validation": list(_in_turns(pairs[name][cut:] for name in SUMS_TRAIN)),
            **{split: pairs[name] for split, name in SUMS_TESTS.items()},
        }
        return Material({split: numbered(split, rows) for split, rows in splits.items()}, texts.source)

    def shortcut(self, question: str) -> str:
        """What the answer would be if there were no parentheses in the sum; ValueError as for ``answer_of``."""
        return str(value_of(_expression(question).replace("(", "").replace(")", "")))


def answer_of(question: str) -> str:
    """The answer to a question of arithmetic__add_sub_multiple (or ..._longer); ValueError if it is none."""
    return str(value_of(_expression(question)))


def _expression(question: str) -> str:
    match = TEMPLATE.fullmatch(question)
    if match is None:
        raise ValueError("not a sum")
    return match["asked"] or match["told"] or match["bare"]


def _wrong_sum(question: str, answer: str) -> tuple[int, str] | None:
    try:
        expected = answer_of(question)
    except ValueError as error:
        return 1, f"{question!r}: {error}"
    return None if answer == expected else (2, f"the answer {answer!r} is wrong, {expected} is right")


def value_of(expression: str) -> int:
    """The value of a sum such as ``-13 + (10 - 5) + -4``; ValueError if it is none."""
    inner = True
    while inner:  # the innermost parentheses first; a space keeps "1(2)" from becoming a number
        expression, inner = re.subn(r"\(([^()]*)\)", lambda found: f" {value_of(found[1])} ", expression)
    if not SUM.fullmatch(expression):
        raise ValueError(f"not a sum: {expression[:40]!r}")
    terms = re.findall(r"([-+ ]*)([0-9]+)", expression)
    return sum((-1) ** signs.count("-") * int(digits) for signs, digits in terms)
