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
import json
import os
import re
import subprocess
import sys
import tarfile
import zlib
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from ntl.config.settings import Rule, setting
from ntl.data import raw
from ntl.data.dataset import CODE, SEED, Material, Row, TextDataset, numbered, rows, words
from ntl.data.prepared import Lines
from ntl.data.raw import Missing
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import data_roots, lock, make_once, scratch, sha256_of
from ntl.system.messages import logger

ORIGIN = raw.origin("deepmind")
OFFICIAL_TREE = "mathematics_dataset-v1.0"
OFFICIAL_ARCHIVE = f"{OFFICIAL_TREE}.tar.gz"
GENERATED_TREE = "mathematics_dataset-generated"
# Trees that are looked for, each with its archive, in this order: below a data root, or in a folder of these.
TREES = {OFFICIAL_TREE: "official", "arithmetic-regen": "regenerated", "mathematics_dataset-regen-1k": "regenerated"}
PLACES = ("", "mathematics_dataset")
# Pairs above which generation must be allowed by a setting: it takes hours, at 100 to 1,000 pairs a second and core.
GENERATED_UNASKED = 500_000
# Least pairs in a generated training file of ``arithmetic``, so that one order serves every config: the paper's count.
SUMS, LEAST = "arithmetic__add_sub_multiple", 34_333
WORKER = Path(__file__).parents[1] / "generator_worker.py"
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
SUMS_TESTS = {"interpolate": (f"interpolate/{SUMS}.txt",), "extrapolate": (f"extrapolate/{SUMS}_longer.txt",)}
ASKED = re.compile(r"^What is (?:the value of )?(.+)\?$|^(?:Calculate|Evaluate) (.+)\.$")
SUM = re.compile(r"[-+ ]*[0-9]+(?: *[-+][-+ ]*[0-9]+)* *")


# ---- the text files


class Texts(NamedTuple):
    """The pairs of ``<regime>/<module>.txt`` files of a tree: a line with a question, one with its answer, in turn."""

    kind: str
    tree: Path
    lines: dict[str, Lines]


def find_texts(
    wanted: Mapping[str, int], data_dir: Path, *, download: bool = True, allow_generation: bool = False
) -> Texts:
    """The pairs of each wanted ``<regime>/<module>.txt``, at least as many as asked for.

    UserError for a damaged file and a generator that fails. Missing if the files are nowhere and cannot be generated
    here, or take hours to generate without ``allow_generation``.
    """
    with lock(data_dir / ".mathematics_dataset.lock", wait=True):
        if texts := _on_disk(wanted, data_dir):
            return texts
        has_release = download and raw.fetch(raw.RawFile(OFFICIAL_ARCHIVE, ORIGIN.home), data_dir)
        if has_release and (texts := _on_disk(wanted, data_dir)):
            return texts
        if (count := sum(wanted.values())) > GENERATED_UNASKED and not allow_generation:
            raise Missing(
                f"{count:,} pairs of DeepMind mathematics are nowhere under "
                f"{' or '.join(map(str, data_roots(data_dir)))}: put {ORIGIN.home} there, or take fewer rows, or "
                "set dataset.allow_generation=true, which takes hours."
            )
        generate(wanted, data_dir / GENERATED_TREE, data_dir / ".generator")
        return cast(Texts, _read("generator", data_dir / GENERATED_TREE, wanted))


def _on_disk(wanted: Mapping[str, int], data_dir: Path) -> Texts | None:
    folders = [root / place for root in data_roots(data_dir) for place in PLACES]
    for (name, kind), folder in product(TREES.items(), folders):
        texts = _read(f"{kind} tree", folder / name, wanted)
        if not texts and (archive := folder / f"{name}.tar.gz").is_file():
            unpack(archive, data_dir / name, wanted)
            texts = _read(f"{kind} archive", data_dir / name, wanted)
        if texts:
            return texts
    return _read("generator", data_dir / GENERATED_TREE, wanted)


def _read(kind: str, tree: Path, wanted: Mapping[str, int]) -> Texts | None:
    if not all((tree / name).is_file() for name in wanted):
        return None
    texts = Texts(kind, tree, {name: Lines(tree / name) for name in wanted})
    for name, lines in texts.lines.items():
        if len(lines) % 2 or not len(lines):
            raise UserError(f"{lines.path}:{len(lines)}: question without an answer; the file is truncated or damaged.")
        if len(lines) // 2 < wanted[name]:
            logger.info(f"{lines.path}: {len(lines) // 2} pairs, {wanted[name]} are wanted; looking further")
            return None
    logger.info(f"reading {tree}")
    return texts


def unpack(archive: Path, tree: Path, wanted: Collection[str]) -> None:
    """Take the wanted files out of a ``.tar.gz``, by their path below its top folder: none where it is damaged."""
    logger.info(f"unpacking {archive} (it is read through once)")
    with one_line_errors("unpack into", tree), scratch(tree) as part:
        paths = []
        try:
            with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    name = member.name.removeprefix("./").partition("/")[2]
                    if name in wanted and (content := tar.extractfile(member)):
                        (part / str(len(paths))).write_bytes(content.read())
                        paths.append(tree / name)
                while stream.read(1 << 20):  # at the end the checksum is compared
                    pass
        except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
            raise UserError(f"{archive}: truncated or damaged ({error}); fetch it again.") from error
        for number, path in enumerate(paths):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(part / str(number), path)


def generate(wanted: Mapping[str, int], tree: Path, environment: Path) -> None:
    """Write each wanted ``<regime>/<module>.txt`` under ``tree``, unless it is there with enough pairs.

    A file takes its name only when it is whole. Missing when the generator cannot be had, UserError when it fails.
    """
    counts = {}
    for name, count in wanted.items():
        usual = max(count, LEAST if name.startswith("train-") and SUMS in name else 0)
        if not (tree / name).is_file() or len(Lines(tree / name)) < 2 * usual:
            counts[name] = usual

    def install(new: Path) -> None:
        logger.info(f"installing {', '.join(PINS)} in {environment} (about 15 s)")
        options = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
        if wrong := _run(["-m", "pip", "install", *options, "--target", str(new), *PINS]):
            raise Missing(
                f"the generator of DeepMind mathematics cannot be had: pip: {wrong}; "
                f"put {ORIGIN.home} or its tree under the data folder, or in the one that NTL_DATA_DIR names, instead."
            )

    make_once(environment, lambda: environment if environment.is_dir() else None, install, "write")
    logger.info(f"generating {sum(counts.values())} pairs with {PINS[0]}")
    with one_line_errors("write", tree):
        tree.mkdir(parents=True, exist_ok=True)
        if wrong := _run([str(WORKER), str(tree), json.dumps(counts)], PYTHONPATH=str(environment)):
            raise UserError(f"the generator failed: {wrong}.")


def _run(arguments: list[str], **environment: str) -> str:
    """Run Python; returns the line that says why it failed, or an empty text."""
    options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    done = subprocess.run([sys.executable, *arguments], env={**os.environ, **environment}, **options)
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1] if done.returncode else ""


# ---- the data sets


class DeepMind(TextDataset):
    """Rows of ``train_files`` and ``test_files``, which are read and checked while they are written."""

    all_splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    origin = ORIGIN
    train_files: ClassVar[tuple[str, ...]]
    test_files: ClassVar[Mapping[str, tuple[str, ...]]]
    modules_are_groups: ClassVar[bool]
    seed: int

    @abstractmethod
    def counts(self) -> tuple[int, int, int]:
        """How many rows of a training file are for training and for validation, and how many of a test file."""

    @abstractmethod
    def fault(self, question: str, answer: str) -> tuple[int, str] | None:
        """What is wrong with a pair: 1 for the question's line or 2 for the answer's, and the reason."""

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        """Rows from the first source that has all files; UserError names file and line of a wrong answer."""
        rows, held_out, test_rows = self.counts()
        wanted = dict[str, int]()
        for split in self.wanted:
            is_test = split in self.test_files
            names = self.test_files[split] if is_test else self.train_files
            wanted |= dict.fromkeys(names, test_rows if is_test else rows + held_out)
        consent = getattr(self, "allow_generation", False)
        texts = find_texts(wanted, data_dir, download=download, allow_generation=consent)
        logger.info(f"{self.name}: writing and checking {sum(wanted.values()):,} pairs")
        orders = dict[str, np.ndarray]()  # of the pairs of each training file, those that are used
        for stream, name in enumerate(self.train_files if self.train_files[0] in wanted else ()):
            order = np.random.default_rng([self.seed, stream]).permutation(len(texts.lines[name]) // 2)
            orders[name] = order[: rows + held_out].astype(np.uint32)
        splits = {}
        for split, count, part in (("train", rows, slice(rows)), ("validation", held_out, slice(rows, None))):
            files = [self._rows(texts, name, order[part]) for name, order in orders.items()]
            # One row of each file, then the next of each.
            splits[split] = numbered(split, chain.from_iterable(zip(*files, strict=True)), len(files) * count)
        for split, names in self.test_files.items():
            files = [self._rows(texts, name, np.arange(test_rows)) for name in names]
            splits[split] = numbered(split, chain.from_iterable(files), len(names) * test_rows)
        digests = {name: sha256_of(lines.path) for name, lines in texts.lines.items()}
        return Material(splits, {"kind": texts.kind, "path": str(texts.tree), "sha256": digests})

    def _rows(self, texts: Texts, name: str, order: np.ndarray) -> Iterator[Row]:
        """The pairs of a file in this order. UserError with file and line where ``fault`` names one."""
        lines, group = texts.lines[name], Path(name).stem if self.modules_are_groups else ""
        for index in map(int, order):
            question, answer = lines[2 * index].decode(), lines[2 * index + 1].decode()
            if fault := self.fault(question, answer):
                raise UserError(f"{lines.path}:{2 * index + fault[0]}: {fault[1]}.")
            yield Row(question, answer, group)


@dataclass
class Mathematics(DeepMind):
    """DeepMind mathematics, 13 modules of three difficulties: the paper's 26 million pairs.

    An answer is one number; ids carry the module (``interpolate/arithmetic__mul/00012``). ``interpolate`` has the test
    files of the 13 modules one after the other, ``extrapolate`` those of 7 harder ones.
    """

    train_files, test_files, modules_are_groups = TRAIN, TESTS, True

    _target_: str = "ntl.data.sets.mathematics.Mathematics"
    name: str = "mathematics"
    rows_per_file: int = rows(666_666, "Training and validation rows of each of 39 training files.", origin=CODE, min=2)
    train_share: float = setting(0.9995, "The share of these that is for training.", origin=CODE, above=0, max=1)
    test_rows_per_file: int = rows(10_000, "Rows of each of the 13 + 7 test files.", origin=CODE)
    seed: int = setting(0, SEED)
    allow_generation: bool = setting(False, "Allow hours of generating where the official release is not available.")

    def conditions(self) -> Iterator[Rule]:
        rows, held_out, _ = self.counts()
        split = "validation" if rows else "training"
        if not (rows and held_out):
            yield ".train_share .rows_per_file", f"leaves no row for {split}."

    def counts(self) -> tuple[int, int, int]:
        # Rounded first: 0.98 x 1000 must be 980 whatever the float says.
        rows = int(round(self.train_share * self.rows_per_file, 6))
        return rows, self.rows_per_file - rows, self.test_rows_per_file

    def fault(self, question: str, answer: str) -> tuple[int, str] | None:
        return None if NUMBER.fullmatch(answer) else (2, f"the answer {answer!r} is not a number")


@dataclass
class Arithmetic(DeepMind):
    """DeepMind mathematics, module arithmetic__add_sub_multiple: the paper's 100k ablation set.

    Sums of several integers with parentheses, of Tables 2 and 3. Every answer is recomputed before its use. A few easy
    questions occur twice in the generator's output, as in the authors' set; no test question occurs in training.
    ``extrapolate`` has longer sums.
    """

    train_files, test_files, modules_are_groups = SUMS_TRAIN, SUMS_TESTS, False

    _target_: str = "ntl.data.sets.mathematics.Arithmetic"
    name: str = "arithmetic"
    train_rows_per_difficulty: int = rows(33_333, "Rows for training, of each of three difficulties.", origin=CODE)
    validation_rows_per_difficulty: int = rows(1_000, "Rows for validation, of each difficulty.", origin=CODE)
    test_rows: int = rows(10_000, "Rows of each of the two tests.", origin=CODE)
    seed: int = setting(0, SEED)

    def counts(self) -> tuple[int, int, int]:
        return self.train_rows_per_difficulty, self.validation_rows_per_difficulty, self.test_rows

    def fault(self, question: str, answer: str) -> tuple[int, str] | None:
        try:
            expected = answer_of(question)
        except ValueError as error:
            return 1, f"{question!r}: {error}"
        return None if answer == expected else (2, f"the answer {answer!r} is wrong, {expected} is right")

    def shortcut(self, question: str) -> str:
        """What the answer would be if there were no parentheses in the sum; ValueError as for ``answer_of``."""
        return answer_of(question.replace("(", "").replace(")", ""))


def answer_of(question: str) -> str:
    """The answer to a question of arithmetic__add_sub_multiple (or ..._longer); ValueError if it is none."""
    return str(value_of(ASKED.sub(r"\1\2", question)))


def value_of(expression: str) -> int:
    """The value of a sum such as ``-13 + (10 - 5) + -4``; ValueError if it is none."""
    inner = True
    while inner:  # the innermost parentheses first; a space keeps "1(2)" from becoming a number
        expression, inner = re.subn(r"\(([^()]*)\)", lambda match: f" {value_of(match[1])} ", expression)
    if not SUM.fullmatch(expression):
        raise ValueError(f"not a sum: {expression[:40]!r}")
    terms = re.findall(r"([-+ ]*)([0-9]+)", expression)
    return sum((-1) ** signs.count("-") * int(digits) for signs, digits in terms)
