"""Schemas of the data sets: the class that reads each, and how many rows are generated or used.

Those of the package's own sets stand here, so that a command answers before numpy is imported. Another set has its
schema in its own file, where ``added_schema`` finds it.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ntl.config.folders import check_plain
from ntl.config.legality import LISTS, NUMERIC
from ntl.config.model import HUB_ID
from ntl.config.settings import MISSING, nearest, setting, shorten
from ntl.system.errors import UserError
from ntl.system.files import data_roots

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".jsonl", ".ndjson", ".json", *DELIMITERS, ".parquet")
PLAIN_TEXT = (".txt", ".md")
PLAIN_NUMBERS = "plain"
# What `save_to_disk` of datasets writes for several splits, and for one.
SAVED = ("dataset_dict.json", "state.json")
CODE = "original code"
# In a template: ``{COLUMN}``, or a doubled brace, which is a single one. Any other brace stands for itself.
COLUMN = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")
_SEED = "Seed of the order and the choice of rows; that of the training is the run's own."


def rows(default: int, meaning: str, **about: Any) -> Any:
    """A number of rows, at least one."""
    return setting(default, meaning, "rows", **{"min": 1, **about})


@dataclass
class DatasetConfig:
    """Settings of every data set.

    ``contents`` is computed: the sha256 of the files that other settings name (``ntl.config.identity.read_contents``).
    ``computes``: whether an answer is computed from the numbers of its question; None: where it is a number.
    """

    computes: ClassVar[bool | None] = None

    _target_: str = MISSING
    name: str = setting(MISSING, "The choice of the group, part of the run's name.")
    answers: str = setting(
        "number",
        "What an answer is: one number, a text that ends in a mark and one, a sentence whose last number counts, "
        "several numbers, or text; exact is text that counts symbol by symbol, continuation the rest of the question's "
        "text, none plain text, without questions.",
        choices=(*NUMERIC, LISTS, "text", "exact", "continuation", "none"),
    )
    format: str = setting(
        "plain",
        "A question is put as its text, through the tokenizer's chat template, or auto: where there is one.",
        choices=("plain", "chat", "auto"),
    )
    exclude_numbers: str = setting("", "Regular expression of numbers of answers that the number loss leaves out.")
    contents: dict[str, str] = setting(dict, "Computed.")

    @property
    def is_computed(self) -> bool:
        """Whether an answer is computed from the numbers of its question, so that it needs every one of them."""
        return self.answers in (*NUMERIC, LISTS) if self.computes is None else self.computes

    def check(self, data_dir: str) -> None:
        """UserError for a setting that does not fit the others or names nothing. Not called for a config read back."""
        try:
            re.compile(self.exclude_numbers)
        except re.error as error:
            line = f"no regular expression ({error}); correct it, or write \\ before a sign that is text."
            raise UserError(f"dataset.exclude_numbers={self.exclude_numbers}: {line}") from error


@dataclass
class NoisyNumbersConfig(DatasetConfig):
    """Six fields and a noisy two-digit target written as text; the noise-free truth is known."""

    _target_: str = "ntl.data.sets.noisy_numbers.NoisyNumbers"
    name: str = "noisy_numbers"
    train_rows: int = rows(2000, "Rows for training.")
    validation_rows: int = rows(500, "Rows for validation.")
    test_rows: int = rows(2000, "Rows for the test.")
    noise_sd: float = setting(6.0, "Standard deviation of the noise of a target of two digits.", min=0)
    seed: int = setting(0, _SEED)


@dataclass
class ArithmeticConfig(DatasetConfig):
    """DeepMind mathematics, module arithmetic__add_sub_multiple: the paper's 100k ablation set."""

    _target_: str = "ntl.data.sets.mathematics.Arithmetic"
    name: str = "arithmetic"
    train_rows_per_difficulty: int = rows(33_333, "Rows for training, of each of three difficulties.", origin=CODE)
    validation_rows_per_difficulty: int = rows(1_000, "Rows for validation, of each difficulty.", origin=CODE)
    test_rows: int = rows(10_000, "Rows of each of the two tests.", origin=CODE)
    seed: int = setting(0, _SEED)


@dataclass
class MathematicsConfig(DatasetConfig):
    """DeepMind mathematics, 13 modules of three difficulties: the paper's 26 million pairs."""

    _target_: str = "ntl.data.sets.mathematics.Mathematics"
    name: str = "mathematics"
    rows_per_file: int = rows(666_666, "Training and validation rows of each of 39 training files.", origin=CODE, min=2)
    train_share: float = setting(0.9995, "The share of these that is for training.", origin=CODE, above=0, max=1)
    test_rows_per_file: int = rows(10_000, "Rows of each of the 13 + 7 test files.", origin=CODE)
    seed: int = setting(0, _SEED)
    allow_generation: bool = setting(False, "Allow hours of generating where the official release is not available.")


@dataclass
class MultiplicationConfig(DatasetConfig):
    """`What is A times B?` for operands of few digits; the extrapolation test has longer ones."""

    _target_: str = "ntl.data.sets.multiplication.Multiplication"
    name: str = "multiplication"
    max_digits: int = setting(5, "The longest operand of training.", "digits", origin="paper, Table 5", min=1, max=9)
    extrapolate_digits: int = setting(6, "That of extrapolation.", "digits", origin="paper, Table 5", min=2, max=10)
    train_rows: int = rows(1_000_000, "Rows for training.")
    validation_rows: int = rows(5_000, "Rows for validation.")
    test_rows_per_cell: int = rows(500, "Test rows of two lengths, at most.", origin="paper (read off its heat map)")
    test_share: float = setting(0.2, "The largest share of all pairs of two lengths that tests.", above=0, max=0.3)
    seed: int = setting(0, _SEED)
    exhaustive_digits: int = setting(
        0,
        "Above 0 another set: every ordered pair of operands of so many digits once, divided into `train_rows`, "
        "`validation_rows` and `test_rows_per_cell`.",
        "digits",
        min=0,
        max=3,
    )


@dataclass
class GSM8KConfig(DatasetConfig):
    """Grade-school word problems, whose answer is a text that ends in `#### number`."""

    _target_: str = "ntl.data.sets.official.GSM8K"
    name: str = "gsm8k"
    answers: str = "reasoning"
    paper_compat: bool = setting(False, "Corrupt numbers of the text as the original code did.")
    test_rows: int = rows(0, "Test on the first so many rows; 0: on all.", min=0)


@dataclass
class RJokesConfig(DatasetConfig):
    """Jokes and their log-upvotes, 0 to 11."""

    computes: ClassVar[bool | None] = False

    _target_: str = "ntl.data.sets.official.RJokes"
    name: str = "rjokes"
    allow_dev_training: bool = setting(False, "Train on parts of dev; the result is not comparable to the paper's.")
    paper_compat: bool = setting(
        False, "Keep backslash escapes and strip trailing white space, as the original code did."
    )
    train_rows: int = rows(0, "Train on the first so many rows; 0: on all.", min=0)
    test_rows: int = rows(0, "Test on the first so many rows; 0: on all.", min=0)


@dataclass
class MultiRCConfig(DatasetConfig):
    """Questions on a passage; an answer is all correct options."""

    _target_: str = "ntl.data.sets.official.MultiRC"
    name: str = "multirc"
    answers: str = "text"
    paper_compat: bool = setting(False, "Keep questions without a correct option, as the original code did.")


@dataclass
class PackagedConfig(DatasetConfig):
    """A data set for regression that is read from a file of a package. What is not held out is for training."""

    computes: ClassVar[bool | None] = False

    train_rows: int = rows(0, "Train on the first so many rows; 0: on all.", min=0)
    validation_rows: int = rows(500, "Rows for validation, or a few more.")
    test_rows: int = rows(1_000, "Rows for the test, or a few more.")
    seed: int = setting(0, "Seed of the splits.", min=0, max=2**32 - 1)


@dataclass
class MeltingPointsConfig(PackagedConfig):
    """Melting points of organic molecules, in whole kelvin: 90 to 766."""

    _target_: str = "ntl.data.sets.official.MeltingPoints"
    name: str = "melting_points"
    text: str = setting("name", "A molecule is written by its IUPAC name or as SMILES.", choices=("name", "smiles"))
    cut: int = setting(160, "A longer name or SMILES is cut after so many characters.", "characters", min=1)


@dataclass
class SentimentConfig(PackagedConfig):
    """Sentences and tweets, and how positive some twenty people find each, on average: -4.0 to 4.0."""

    _target_: str = "ntl.data.sets.official.Sentiment"
    name: str = "sentiment"
    domain: str = setting("all", "Texts that are taken.", choices=("all", "movies", "editorials", "tweets", "products"))


@dataclass
class SharesConfig:
    """The share of the different questions, or documents, that goes into a split of which there is no file."""

    validation: float = setting(0.05, "Share of the validation split.", above=0, max=0.9)
    test: float = setting(0.1, "Share of the test split.", above=0, max=0.9)


@dataclass
class OwnDataConfig(DatasetConfig):
    """Where the rows of a user's own are (docs/your_own_data.md)."""

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    path: str = setting("", "File, folder that `save_to_disk` wrote, or `owner/name` of the hub.")
    validation_path: str = setting("", "The same for the validation split, if it has a file of its own.")
    test_path: str = setting("", "The same for the test split, if it has a file of its own.")
    config_name: str = setting("", "Configuration of a data set of the hub.")
    header: bool = setting(True, "The first row of CSV and TSV names the columns; else they are called 1, 2, ...")
    cells: str = setting(
        "quoted",
        "Cells of CSV and TSV have quotation marks around those that need them, or stand as they are.",
        choices=("quoted", "plain"),
    )
    splits: SharesConfig = setting(SharesConfig, "Shares of the splits that have no file of their own.")
    weight: str = setting("", "Column of the weight of each row in the loss; none: all rows count 1.")
    seed: int = setting(0, "Seed of the splits, and of the rows that are used.", min=0, max=2**32 - 1)
    train_rows: int = rows(0, "Training rows that are used; 0 means all.", min=0)
    test_rows: int = rows(0, "Test rows that are used; 0 means all.", min=0)
    licence: str = setting("", "Licence of the text; without one, none of it is published.")

    @property
    def paths(self) -> dict[str, str]:
        """Split -> its path, without those that have none."""
        paths = {"train": self.path, "validation": self.validation_path, "test": self.test_path}
        return {split: path for split, path in paths.items() if path}

    def check(self, data_dir: str) -> None:
        if not self.path:
            kinds = f"{', '.join(self.suffixes)}, a folder from save_to_disk, or owner/name of the hub"
            raise UserError(f"dataset={self.name}: no file; give one by dataset.path=my.jsonl ({kinds}).")
        for split, path in self.paths.items():
            name = "dataset.path" if split == "train" else f"dataset.{split}_path"
            _check_path(name, path, data_dir, self.suffixes)
        super().check(data_dir)
        if self.splits.validation + self.splits.test >= 1:
            given = f"dataset.splits.validation={self.splits.validation} dataset.splits.test={self.splits.test}"
            raise UserError(f"{given}: nothing is left for training; make them smaller.")


@dataclass
class FileConfig(OwnDataConfig):
    """Questions and answers of one's own."""

    _target_: str = "ntl.data.sets.file.File"
    name: str = "file"
    question: str = setting("question", "Column of the question.")
    answer: str = setting("answer", "Column of the answer.")
    template: str = setting("", "Question made from several columns, as in `Convert {value} {unit} to metres`.")
    number_format: str = setting(
        PLAIN_NUMBERS,
        "How the numbers of dataset.answers=number are written: plain, kept as they stand; point or comma, the decimal "
        "mark of numbers as people write them, which are rewritten as digits; auto, as the column tells.",
        choices=(PLAIN_NUMBERS, "auto", "point", "comma"),
    )
    mark: str = setting("####", "What stands before the final number of `dataset.answers=reasoning`.")

    @property
    def columns(self) -> list[str]:
        """The columns that the question is made from."""
        return [*filter(None, COLUMN.findall(self.template))] if self.template else [self.question]

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        if self.answers not in (known := (*NUMERIC, LISTS, "text")):
            line = f"choose one of {', '.join(known)}; text without answers is read by dataset=text."
            raise UserError(f"dataset=file dataset.answers={self.answers}: {line}")
        if self.number_format != PLAIN_NUMBERS and self.answers != "number":
            line = "an answer that is no number alone is kept as it stands; leave dataset.number_format out."
            raise UserError(f"dataset.number_format={self.number_format} dataset.answers={self.answers}: {line}")
        where = f"dataset.template={self.template!r}"
        if self.template and not self.columns:
            raise UserError(f"{where}: it names no column, so that all questions are equal; write {{COLUMN}} in it.")
        if self.template and self.question != "question":
            line = "the template is the question; leave one out."
            raise UserError(f"{where} dataset.question={self.question}: {line}")


@dataclass
class TextConfig(OwnDataConfig):
    """Plain text of one's own: text files divided into ``documents``, or a ``column`` with a document in each row."""

    suffixes: ClassVar[tuple[str, ...]] = (*PLAIN_TEXT, *SUFFIXES)

    _target_: str = "ntl.data.sets.file.Text"
    name: str = "text"
    answers: str = "none"
    column: str = setting("text", "Column with a document in each row, of all but text files.")
    documents: str = setting(
        "paragraph",
        "What a document of a text file is: what stands between blank lines, a line, or the file.",
        choices=("paragraph", "line", "file"),
    )

    def check(self, data_dir: str) -> None:
        super().check(data_dir)
        plain = [suffix_of(Path(path)) in PLAIN_TEXT for path in self.paths.values()]
        if self.answers != "none":
            raise UserError(f"dataset=text dataset.answers={self.answers}: plain text has no answers; leave it out.")
        if all(plain) and self.column != "text":
            raise UserError(f"dataset.column={self.column}: a text file has no columns; leave it out.")
        if not any(plain) and self.documents != "paragraph":
            line = f"only text files ({', '.join(PLAIN_TEXT)}) are divided, of all others each row is a document"
            raise UserError(f"dataset.documents={self.documents}: {line}; leave it out.")


def suffix_of(path: Path) -> str:
    """``.jsonl`` of ``my.jsonl`` and of ``my.JSONL.gz``."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def find_file(path: str, data_dir: str | Path) -> Path | None:
    """The file or folder of this path, or of this path below a data folder."""
    places = (Path(path), *(root / path for root in data_roots(Path(data_dir))))
    return next((each for each in places if each.exists()), None)


def is_on_hub(path: str, data_dir: str | Path) -> bool:
    """Whether a path that is nowhere here may be ``owner/name``."""
    is_file = find_file(path, data_dir) or suffix_of(Path(path)) in TextConfig.suffixes
    return not is_file and bool(HUB_ID.fullmatch(path))


def _check_path(name: str, path: str, data_dir: str, suffixes: tuple[str, ...]) -> None:
    check_plain(path, f"{name}={path}")
    if is_on_hub(path, data_dir):
        return
    if (found := find_file(path, data_dir)) is None:
        near = [each.name for each in Path(path).parent.glob("*")]
        raise UserError(f"{name}={shorten(path)}: no such file or folder.{nearest(Path(path).name, near)}")
    if found.is_dir():
        if not any((found / each).is_file() for each in SAVED):
            raise UserError(f"{name}={path}: a folder that save_to_disk did not write; give such a folder, or a file.")
    elif suffix_of(found) not in suffixes or (found.suffix.lower() == ".gz" and suffix_of(found) == ".parquet"):
        plain = "plain text is read by dataset=text; otherwise " if suffix_of(found) in PLAIN_TEXT else ""
        known = f"export a spreadsheet as CSV, or rename it after what it holds: {', '.join(suffixes)}"
        raise UserError(f"{name}={path}: unknown format; {plain}{known}, all but Parquet also with .gz.")
