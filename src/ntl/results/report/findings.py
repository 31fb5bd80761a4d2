"""What the page opens with: the paper's claims where there are any, then what each table shows in a sentence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ntl.results.report.markup import Html, element, join
from ntl.results.table import Primary, Table, Verdict

# Title -> what it means, in the order of the page.
GROUPS = {
    "Shown": "the interval excludes 0, and the exact p is at most 0.05",
    "Shown by the interval alone": "it excludes 0, but the exact p is above 0.05",
    "Not shown": "the interval holds 0, or there are too few runs for one",
    "Not learnt": "no row of the comparison beats a constant answer, so that it says nothing of the losses",
}
_SHOWN, _BY_INTERVAL, _NOT_SHOWN, _NOT_LEARNT = GROUPS
_PLACES = {Verdict.better: _BY_INTERVAL, Verdict.worse: _BY_INTERVAL, Verdict.not_learnt: _NOT_LEARNT}


@dataclass(frozen=True)
class ClaimRow:
    """A row of the page's first table. ``evidence`` are lines of text, or of markup such as ``link`` gives."""

    statement: str
    verdict: str
    evidence: Sequence[str]


def anchor(table: Table) -> str:
    """The id of the table's place in the page."""
    return f"{table.name}-{table.scale}"


def link(table: Table) -> Html:
    """The table's short name, which leads to its place in the page."""
    return element("a", table.subject.partition(": ")[0], href=f"#{anchor(table)}")


def group_of(primary: Primary) -> str:
    """Which of ``GROUPS`` the comparison belongs to."""
    return _SHOWN if primary.confirmed else _PLACES.get(primary.verdict, _NOT_SHOWN)


def grouped(tables: Iterable[Table]) -> dict[str, list[Table]]:
    """All of ``GROUPS``, each with its tables in their order."""
    found: dict[str, list[Table]] = {title: [] for title in GROUPS}
    for table in tables:
        found[group_of(table.primary)].append(table)
    return found


def claims_section(claims: Sequence[ClaimRow]) -> Html:
    """A row a claim: the statement, its verdict, its evidence unfolds. Nothing at all without claims."""
    if not claims:
        return Html()
    heads = [element("th", name, scope="col") for name in ("claim", "verdict")]
    rows = [
        element(
            "tr",
            element("th", claim.statement, _evidence(claim.evidence), scope="row"),
            element("td", element("strong", claim.verdict)),
        )
        for claim in claims
    ]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return element(
        "section",
        element("h2", "Claims", id="claims-title"),
        element("div", table, class_="scroll", tabindex=0, role="region", aria_labelledby="claims-title"),
        id="claims",
        aria_labelledby="claims-title",
    )


def _evidence(lines: Sequence[str]) -> Html:
    """Folded, so that all claims are seen at once."""
    if not lines:
        return Html()
    summary = element("summary", f"evidence: {len(lines)} result{'s' * (len(lines) > 1)}")
    return element("details", summary, element("ul", *(element("li", line) for line in lines)))


def section(tables: Sequence[Table]) -> Html:
    """One sentence a table, under what kind of finding it is; of the groups only the first may be empty."""
    by_group = grouped(tables)
    counts = ", ".join(f"{len(found)} {title[0].lower()}{title[1:]}" for title, found in by_group.items())
    scales = len({table.scale for table in tables}) > 1
    return element(
        "section",
        element("h2", "Findings", id="findings-title"),
        element(
            "p",
            f"The primary comparisons of {len(tables)} tables, paired by seed, with 95% t intervals and the exact p of "
            f"the sign-flip test: {counts}.",
        ),
        *(_group(title, found, scales) for title, found in by_group.items() if found or title == _SHOWN),
        id="findings",
        aria_labelledby="findings-title",
    )


def _group(title: str, tables: Sequence[Table], scales: bool) -> Html:
    nothing = "" if tables else ": nothing yet"
    heading = element("h3", title + nothing, element("small", f" ({GROUPS[title]})"))
    lines = []
    for table in tables:
        scale = element("small", f" {table.scale}") if scales else Html()
        lines.append(element("li", element("span", link(table), scale), element("span", table.finding)))
    return join(heading, element("ul", *lines) if lines else Html())
