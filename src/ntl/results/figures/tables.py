"""The small CSV files that figures are drawn from where there are no records."""

import csv
from pathlib import Path

from ntl.system.errors import UserError


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, by column name; lines that begin with # are remarks.

    UserError where the file is not there or a row has another number of values than the header.
    """
    try:
        with open(path, encoding="utf-8", newline="") as stream:
            header, *rows = csv.reader(line for line in stream if not line.startswith("#"))
        return [dict(zip(header, values, strict=True)) for values in rows]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): restore it, or run its script again") from error
    except ValueError as error:
        raise UserError(f"{path}: not a table ({error}): restore it, or run its script again") from error
