"""Schema of ``results/paper``: the numbers that the paper prints, each file with its source."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from ntl.config.typed import read_typed
from ntl.system.errors import UserError

PAPER_FOLDER = Path(__file__).resolve().parents[3] / "results" / "paper"


@dataclass
class PaperRow:
    """One printed row. ``block``, ``group`` and ``label`` say which row of the table it stands beside.

    ``values``: metric -> [value] or [mean, standard deviation].
    """

    label: str = MISSING
    values: dict[str, list[float]] = MISSING
    block: int = 0
    group: str = ""


@dataclass
class PaperNumbers:
    """What one table or figure of the paper prints. ``runs`` is what it says of their number, empty where nothing.

    ``cited`` are printed rows that the paper took from elsewhere, and that no run here stands beside.
    """

    source: str = MISSING
    title: str = MISSING
    rows: list[PaperRow] = MISSING
    runs: str = ""
    note: str = ""
    cited: list[PaperRow] = field(default_factory=list)
    cited_from: str = ""


def read_paper(path: Path) -> PaperNumbers:
    """The numbers in a file. UserError names the file and the key."""
    numbers: PaperNumbers = read_typed(PaperNumbers, path)
    _check(numbers.rows, f"{path}: rows")
    _check(numbers.cited, f"{path}: cited")
    if bool(numbers.cited) != bool(numbers.cited_from):
        raise UserError(f"{path}: cited_from: say where the cited rows are from, and only where there are some")
    return numbers


def _check(rows: Sequence[PaperRow], where: str) -> None:
    seen = set()
    for row in rows:
        place = (row.block, row.group, row.label)
        if place in seen:
            raise UserError(f"{where}: {row.label}: the row stands twice")
        seen.add(place)
        if not row.values:
            raise UserError(f"{where}: {row.label}: values: at least one number is expected")
        if wrong := [metric for metric, numbers in row.values.items() if len(numbers) not in (1, 2)]:
            raise UserError(f"{where}: {row.label}: {wrong[0]} must be [value] or [mean, standard deviation]")
