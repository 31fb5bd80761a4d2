"""Schemas of the data sets: the class that reads each, and how many rows are generated or used.

Those of the package's own sets stand here, so that a command answers before numpy is imported. Another set has its
schema in its own file, where ``added_schema`` finds it.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from omegaconf import MISSING

from ntl.config.settings import setting

_SEED = "Seed of the order and the choice of rows; that of the training is the run's own."


@dataclass
class DatasetConfig:
    """Settings of every data set."""

    _target_: str = MISSING
    name: str = setting(MISSING, "The choice of the group, part of the run's name.")
    answers: str = setting(
        "number",
        "What an answer is: one number, a text that ends in one, or text; decides which models and decodings fit.",
        choices=("number", "reasoning", "text"),
    )


@dataclass
class NoisyNumbersConfig(DatasetConfig):
    """Six fields and a noisy two-digit target written as text; the noise-free truth is known."""

    _target_: str = "ntl.data.sets.noisy_numbers.NoisyNumbers"
    name: str = "noisy_numbers"
    train_rows: int = setting(2000, "Rows for training.", unit="rows", min=1)
    validation_rows: int = setting(500, "Rows for validation.", unit="rows", min=1)
    test_rows: int = setting(2000, "Rows for the test.", unit="rows", min=1)
    noise_sd: float = setting(6.0, "Standard deviation of the noise of a target of two digits.", min=0)
    seed: int = setting(0, _SEED)


@dataclass
class ArithmeticConfig(DatasetConfig):
    """DeepMind mathematics, module arithmetic__add_sub_multiple: the paper's 100k ablation set."""

    _target_: str = "ntl.data.sets.arithmetic.Arithmetic"
    name: str = "arithmetic"
    train_rows_per_difficulty: int = setting(
        33_333, "Rows for training, of each of three difficulties.", unit="rows", origin="original code", min=1
    )
    validation_rows_per_difficulty: int = setting(
        1_000, "Rows for validation, of each of three difficulties.", unit="rows", origin="original code", min=1
    )
    test_rows: int = setting(10_000, "Rows of each of the two tests.", unit="rows", origin="original code", min=1)
    seed: int = setting(0, _SEED)


@dataclass
class MathematicsConfig(DatasetConfig):
    """DeepMind mathematics, 13 modules of three difficulties: the paper's 26 million pairs."""

    _target_: str = "ntl.data.sets.mathematics.Mathematics"
    name: str = "mathematics"
    rows_per_file: int = setting(
        666_666,
        "Rows for training and validation together, of each of the 39 training files.",
        unit="rows",
        origin="original code",
        min=2,
    )
    train_share: float = setting(
        0.9995, "The share of these that is for training; the rest validates.", origin="original code", above=0, max=1
    )
    test_rows_per_file: int = setting(
        10_000, "Rows of each of the 13 + 7 test files.", unit="rows", origin="original code", min=1
    )
    seed: int = setting(0, _SEED)
    allow_generation: bool = setting(
        False, "Allow hours of work by the original generator where the official release is not available."
    )


@dataclass
class MultiplicationConfig(DatasetConfig):
    """`What is A times B?` for operands of few digits; the extrapolation test has longer ones."""

    _target_: str = "ntl.data.sets.multiplication.Multiplication"
    name: str = "multiplication"
    max_digits: int = setting(
        5, "The longest operand of training and interpolation.", unit="digits", origin="paper, Table 5", min=1, max=9
    )
    extrapolate_digits: int = setting(
        6, "The longer operand of each extrapolation row.", unit="digits", origin="paper, Table 5", min=2, max=10
    )
    train_rows: int = setting(1_000_000, "Rows for training.", unit="rows", min=1)
    validation_rows: int = setting(5_000, "Rows for validation.", unit="rows", min=1)
    test_rows_per_cell: int = setting(
        500, "Test rows of each pair of lengths, at most.", unit="rows", origin="paper (read off its heat map)", min=1
    )
    test_share: float = setting(
        0.2, "The largest share of all pairs of two lengths that is for the test.", above=0, max=0.3
    )
    seed: int = setting(0, _SEED)
    exhaustive_digits: int = setting(
        0,
        "Above 0 another set: every ordered pair of operands of so many digits once, divided into `train_rows`, "
        "`validation_rows` and `test_rows_per_cell`.",
        unit="digits",
        min=0,
        max=3,
    )


@dataclass
class GSM8KConfig(DatasetConfig):
    """Grade-school word problems, whose answer is a text that ends in `#### number`."""

    _target_: str = "ntl.data.sets.gsm8k.GSM8K"
    name: str = "gsm8k"
    answers: str = "reasoning"
    paper_compat: bool = setting(False, "Corrupt numbers of the text as the original code did.")
    test_rows: int = setting(0, "Test on the first so many rows; 0: on all.", unit="rows", min=0)


@dataclass
class RJokesConfig(DatasetConfig):
    """Jokes and their log-upvotes, 0 to 11."""

    _target_: str = "ntl.data.sets.rjokes.RJokes"
    name: str = "rjokes"
    allow_dev_training: bool = setting(
        False, "Train and validate on parts of dev; the result is not comparable to the paper's."
    )
    paper_compat: bool = setting(
        False, "Keep the file's backslash escapes and strip trailing white space, as the original code did."
    )
    train_rows: int = setting(0, "Train on the first so many rows; 0: on all.", unit="rows", min=0)
    test_rows: int = setting(0, "Test on the first so many rows; 0: on all.", unit="rows", min=0)


@dataclass
class MultiRCConfig(DatasetConfig):
    """Questions on a passage; an answer is all correct options."""

    _target_: str = "ntl.data.sets.multirc.MultiRC"
    name: str = "multirc"
    answers: str = "text"
    paper_compat: bool = setting(False, "Keep questions without a correct option, as the original code did.")


def added_schema(name: str) -> type[DatasetConfig] | None:
    """The subclass of ``DatasetConfig`` that ``ntl.data.sets.NAME`` defines; None if there is no such file or class."""
    module = f"ntl.data.sets.{name}"
    found = vars(import_module(module)).values() if find_spec(module) else ()
    schemas = (each for each in found if isinstance(each, type) and issubclass(each, DatasetConfig))
    return next((each for each in schemas if each.__module__ == module), None)
