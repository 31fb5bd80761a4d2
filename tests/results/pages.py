"""Parts of the report's page, for the tests of what it shows."""

from collections.abc import Sequence

from ntl.results import RunRecord
from ntl.results.report.make_report import Picture, render


def chapter(
    name: str, records: Sequence[RunRecord], tables: Sequence[str] = ("table2",), pictures: Sequence[Picture] = ()
) -> str:
    """One section of the page of some records and tables."""
    _, found, rest = render(records, pictures, tables).partition(f'<section id="{name}"')
    assert found
    return found + rest.partition("</section>")[0]
