"""Schemas of the data sets: the class that reads each, and how many rows are generated or used.

Those of the package's own sets stand here, so that a command answers before numpy is imported. Another set has its
schema in its own file, where ``added_schema`` finds it.
"""

from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from string import Formatter
from typing import ClassVar

from omegaconf import MISSING

from ntl.config.legality import HUB_ID, check_place, nearest, shorten
from ntl.system.errors import UserError
from ntl.system.files import data_roots

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".jsonl", ".ndjson", ".json", *DELIMITERS, ".parquet")
PLAIN_TEXT = (".txt", ".md")
# What `save_to_disk` of datasets writes for several splits, and for one.
SAVED = ("dataset_dict.json", "state.json")
CELLS = ("quoted", "plain", "escaped")


def _count(default: int) -> int:
    return field(default=default, metadata={"min": 1})


@dataclass
class DatasetConfig:
    """``name`` is the group's choice, ``_target_`` the class in ``ntl.data`` that is built from this config.

    An answer is a ``number``, ``reasoning`` that ends in one, or ``text``; ``none`` is plain text, without questions
    (``ntl.config.legality``). ``contents`` is computed: the sha256 of the files that other settings name
    (``ntl.config.identity.read_contents``).
    """

    _target_: str = MISSING
    name: str = MISSING
    answers: str = "number"
    contents: dict[str, str] = field(default_factory=dict)

    def check(self, data_dir: str) -> None:
        """UserError for settings that do not fit each other or name nothing. Not called for a config read back."""


@dataclass
class NoisyNumbersConfig(DatasetConfig):
    """Six fields and a noisy two-digit target written as text; the noise-free truth is known."""

    _target_: str = "ntl.data.sets.noisy_numbers.NoisyNumbers"
    name: str = "noisy_numbers"
    train_rows: int = _count(2000)
    validation_rows: int = _count(500)
    test_rows: int = _count(2000)
    noise_sd: float = field(default=6.0, metadata={"min": 0})
    seed: int = 0


@dataclass
class ArithmeticConfig(DatasetConfig):
    """DeepMind mathematics, module arithmetic__add_sub_multiple: the paper's 100k ablation set."""

    _target_: str = "ntl.data.sets.arithmetic.Arithmetic"
    name: str = "arithmetic"
    train_rows_per_difficulty: int = _count(33_333)
    validation_rows_per_difficulty: int = _count(1_000)
    test_rows: int = _count(10_000)
    seed: int = 0


@dataclass
class MathematicsConfig(DatasetConfig):
    """DeepMind mathematics, 13 modules of three difficulties: the paper's 26 million pairs.

    ``rows_per_file`` counts training and validation rows of each of the 39 training files, ``train_share`` of them for
    training; ``test_rows_per_file`` those of each of the 13 + 7 test files. ``allow_generation`` allows hours of work
    by the original generator where the official release is not available.
    """

    _target_: str = "ntl.data.sets.mathematics.Mathematics"
    name: str = "mathematics"
    rows_per_file: int = field(default=666_666, metadata={"min": 2})
    train_share: float = field(default=0.9995, metadata={"above": 0, "max": 1})
    test_rows_per_file: int = _count(10_000)
    seed: int = 0
    allow_generation: bool = False


@dataclass
class MultiplicationConfig(DatasetConfig):
    """``What is A times B?`` for operands of 1 to ``max_digits`` digits; tests go one digit further.

    ``exhaustive_digits`` n > 0 selects another set: every ordered pair of n-digit operands once, divided into
    ``train_rows``, ``validation_rows`` and ``test_rows_per_cell``.
    """

    _target_: str = "ntl.data.sets.multiplication.Multiplication"
    name: str = "multiplication"
    max_digits: int = field(default=5, metadata={"min": 1, "max": 9})
    extrapolate_digits: int = field(default=6, metadata={"min": 2, "max": 10})
    train_rows: int = _count(1_000_000)
    validation_rows: int = _count(5_000)
    test_rows_per_cell: int = _count(500)
    test_share: float = field(default=0.2, metadata={"above": 0, "max": 0.3})
    seed: int = 0
    exhaustive_digits: int = field(default=0, metadata={"min": 0, "max": 3})


def _limit() -> int:
    return field(default=0, metadata={"min": 0})


@dataclass
class GSM8KConfig(DatasetConfig):
    """Grade-school word problems, whose answer is a text that ends in ``#### number``.

    ``paper_compat`` corrupts the text as the original code did; ``test_rows`` 0 means all.
    """

    _target_: str = "ntl.data.sets.gsm8k.GSM8K"
    name: str = "gsm8k"
    answers: str = "reasoning"
    paper_compat: bool = False
    test_rows: int = _limit()


@dataclass
class RJokesConfig(DatasetConfig):
    """Jokes and their log-upvotes, 0 to 11; counts of 0 mean all rows.

    ``allow_dev_training`` trains and validates on parts of dev; the result is not comparable to the paper's.
    ``paper_compat`` keeps the file's backslash escapes and strips trailing white space, as the original code did.
    """

    _target_: str = "ntl.data.sets.rjokes.RJokes"
    name: str = "rjokes"
    allow_dev_training: bool = False
    paper_compat: bool = False
    train_rows: int = _limit()
    test_rows: int = _limit()


@dataclass
class MultiRCConfig(DatasetConfig):
    """Questions on a passage; an answer is all correct options. ``paper_compat`` keeps rows without any."""

    _target_: str = "ntl.data.sets.multirc.MultiRC"
    name: str = "multirc"
    answers: str = "text"
    paper_compat: bool = False


@dataclass
class SharesConfig:
    """The share of the different questions, or documents, that goes into a split of which there is no file."""

    validation: float = field(default=0.05, metadata={"above": 0, "max": 0.9})
    test: float = field(default=0.1, metadata={"above": 0, "max": 0.9})


@dataclass
class OwnConfig(DatasetConfig):
    """Where the rows of a user's own are (docs/your_own_data.md).

    ``path``, and ``validation_path`` and ``test_path`` where these splits have files of their own: a file, a folder
    that ``save_to_disk`` wrote, or ``owner/name`` of the hub with its ``config_name``. Without ``header`` the columns
    of CSV and TSV are called 1, 2, ...; ``cells`` are ``quoted``, ``plain`` or ``escaped`` (``ntl.data.formats``).
    ``seed`` draws the splits, and the ``train_rows`` and ``test_rows`` that are used, where 0 means all.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    path: str = ""
    validation_path: str = ""
    test_path: str = ""
    config_name: str = ""
    header: bool = True
    cells: str = "quoted"
    splits: SharesConfig = field(default_factory=SharesConfig)
    seed: int = field(default=0, metadata={"min": 0, "max": 2**32 - 1})
    train_rows: int = _limit()
    test_rows: int = _limit()
    licence: str = ""

    @property
    def paths(self) -> dict[str, str]:
        """Split -> its path, without those that have none."""
        paths = {"train": self.path, "validation": self.validation_path, "test": self.test_path}
        return {split: path for split, path in paths.items() if path}

    def check(self, data_dir: str) -> None:
        if not self.path:
            raise UserError(
                f"dataset={self.name}: no file; give one by dataset.path=my.jsonl ({', '.join(self.suffixes)}, a "
                "folder from save_to_disk, or owner/name of the hub)."
            )
        for split, path in self.paths.items():
            name = "dataset.path" if split == "train" else f"dataset.{split}_path"
            _check_path(name, path, data_dir, self.suffixes)
        if self.config_name and not any(is_on_hub(path, data_dir) for path in self.paths.values()):
            raise UserError(
                f"dataset.config_name={self.config_name}: only a data set of the hub has one; leave it out."
            )
        if self.cells not in CELLS:
            raise UserError(
                f"dataset.cells={self.cells}: choose one of {', '.join(CELLS)}.{nearest(self.cells, CELLS)}"
            )
        if self.splits.validation + self.splits.test >= 1:
            raise UserError(
                f"dataset.splits.validation={self.splits.validation} dataset.splits.test={self.splits.test}: nothing "
                "is left for training; make them smaller."
            )
        for split in ("validation", "test"):
            share = getattr(self.splits, split)
            if split in self.paths and share != getattr(SharesConfig, split):
                raise UserError(
                    f"dataset.splits.{split}={share}: that split is all of dataset.{split}_path; leave one of them out."
                )


@dataclass
class FileConfig(OwnConfig):
    """Questions and answers of one's own.

    ``question`` and ``answer`` name columns; ``template`` makes the question from several: ``"Convert {value} {unit} to
    metres"``. ``mark`` stands before the final number of ``answers=reasoning``.
    """

    _target_: str = "ntl.data.sets.file.File"
    name: str = "file"
    question: str = "question"
    answer: str = "answer"
    template: str = ""
    mark: str = "####"

    @property
    def columns(self) -> list[str]:
        """The columns that the question is made from."""
        return [name for _, name, *_ in Formatter().parse(self.template) if name] if self.template else [self.question]

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        if self.answers == "none":
            raise UserError("dataset=file dataset.answers=none: text without answers is read by dataset=text.")
        if self.template:
            self._check_template()

    def _check_template(self) -> None:
        where = f"dataset.template={self.template!r}"
        try:
            parts = list(Formatter().parse(self.template))
        except ValueError as error:
            raise UserError(f"{where}: {error}; write {{{{ and }}}} for braces that are text.") from error
        if wrong := [name for _, name, kind, how in parts if name is not None and (not name.strip() or kind or how)]:
            raise UserError(f"{where}: {{{wrong[0]}}} must be the name of a column and nothing else.")
        if not any(name for _, name, *_ in parts):
            raise UserError(f"{where}: it names no column, so that all questions are equal; write {{COLUMN}} in it.")
        if self.question != "question":
            raise UserError(f"{where} dataset.question={self.question}: the template is the question; leave one out.")


class Documents(Enum):
    """What a document of a plain text file is: what stands between blank lines, a line, or the whole file."""

    paragraph = "paragraph"
    line = "line"
    file = "file"


@dataclass
class TextConfig(OwnConfig):
    """Plain text of one's own: text files divided into ``documents``, or a ``column`` with a document in each row."""

    suffixes: ClassVar[tuple[str, ...]] = (*PLAIN_TEXT, *SUFFIXES)

    _target_: str = "ntl.data.sets.text.Text"
    name: str = "text"
    answers: str = "none"
    column: str = "text"
    documents: Documents = Documents.paragraph

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        if self.answers != "none":
            raise UserError(f"dataset=text dataset.answers={self.answers}: plain text has no answers; leave it out.")
        plain = [suffix_of(Path(path)) in PLAIN_TEXT for path in self.paths.values()]
        if all(plain) and self.column != "text":
            raise UserError(f"dataset.column={self.column}: a text file has no columns; leave it out.")
        if not any(plain) and self.documents is not Documents.paragraph:
            raise UserError(
                f"dataset.documents={self.documents.name}: only text files ({', '.join(PLAIN_TEXT)}) are divided, of "
                "all others each row is a document; leave it out."
            )


def suffix_of(path: Path) -> str:
    """``.jsonl`` of ``my.jsonl`` and of ``my.JSONL.gz``."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def find_file(path: str, data_dir: str | Path) -> Path | None:
    """The file or folder of this path, or of this path below a data folder."""
    return next(
        (each for each in (Path(path), *(root / path for root in data_roots(Path(data_dir)))) if each.exists()), None
    )


def is_on_hub(path: str, data_dir: str | Path) -> bool:
    """Whether a path that is nowhere here may be ``owner/name``."""
    return (
        not find_file(path, data_dir)
        and bool(HUB_ID.fullmatch(path))
        and suffix_of(Path(path)) not in TextConfig.suffixes
    )


def _check_path(name: str, path: str, data_dir: str, suffixes: tuple[str, ...]) -> None:
    check_place(name, path)
    if is_on_hub(path, data_dir):
        return
    if (found := find_file(path, data_dir)) is None:
        near = [each.name for each in Path(path).parent.glob("*")] if Path(path).parent.is_dir() else []
        raise UserError(f"{name}={shorten(path)}: no such file or folder.{nearest(Path(path).name, near)}")
    if found.is_dir():
        if not any((found / each).is_file() for each in SAVED):
            raise UserError(
                f"{name}={path}: a folder that save_to_disk did not write; give one that it wrote, or a file."
            )
    elif suffix_of(found) not in suffixes or (found.suffix == ".gz" and suffix_of(found) == ".parquet"):
        plain = "plain text is read by dataset=text; otherwise " if suffix_of(found) in PLAIN_TEXT else ""
        raise UserError(
            f"{name}={path}: unknown format; {plain}rename it after what it holds: {', '.join(suffixes)}, all but "
            "Parquet also with .gz."
        )


def added_schema(name: str) -> type[DatasetConfig] | None:
    """The subclass of ``DatasetConfig`` that ``ntl.data.sets.NAME`` defines; None if there is no such file or class."""
    module = f"ntl.data.sets.{name}"
    found = vars(import_module(module)).values() if find_spec(module) else ()
    schemas = (each for each in found if isinstance(each, type) and issubclass(each, DatasetConfig))
    return next((each for each in schemas if each.__module__ == module), None)
