"""The page as one string: markup, style, scripts and data together, so that it opens from disk without a network."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files

from ntl.results.claims import load_claims
from ntl.results.judge import judge_claims
from ntl.results.record import RunRecord
from ntl.results.report import explorer, figures, findings, runs, tables
from ntl.results.report.figures import Picture
from ntl.results.report.findings import ClaimRow
from ntl.results.report.markup import Html, data, element, join
from ntl.results.table import Table

# One module: each script sees what those before it define.
SCRIPTS = ("losses.js", "charts.js", "explorer.js", "tables.js", "runs.js")
TITLE = "Number Token Loss: results"


def _static(name: str) -> str:
    return (files("ntl.results.report") / "static" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """What the browser may load and run: nothing from anywhere but the page's own script, style and images."""
    style_hash, script_hash = (b64encode(sha256(text.encode()).digest()).decode() for text in (style, script))
    return f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'"


def _head(style: str, script: str) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", TITLE),
        element("style", Html(style)),
    )


def _claims(filled: Sequence[tables.Ruled], empty: Sequence[Table]) -> list[ClaimRow]:
    every = [*(ruled.default for ruled in filled), *empty]
    judged = judge_claims(load_claims(known=[table.spec for table in every]), every)
    return [
        ClaimRow(
            claim.spec.text,
            claim.verdict.value,
            [f"{each.source} {each.scale}: {each.name}: {each.text}" for each in claim.comparisons if each.ran],
        )
        for claim in judged
    ]


def render(records: Sequence[RunRecord], pictures: Sequence[Picture], names: Sequence[str] = ()) -> str:
    """The page for these records and pictures; ``names`` chooses tables, none means all. Same input, same bytes.

    The claims of ``config/claims.yaml`` stand first, where every table is there to judge them by.
    """
    style, script = _static("style.css"), "\n".join(map(_static, SCRIPTS))
    filled, empty = tables.compute(records, names)
    chapters = {
        "claims": ("Claims", Html() if names else findings.claims_section(_claims(filled, empty))),
        "findings": ("Findings", findings.section([ruled.default for ruled in filled])),
        "tables": ("Tables", tables.section(filled, empty)),
        "figures": ("Figures", figures.section(pictures)),
        "explorer": ("Loss explorer", explorer.section()),
        "runs": ("All runs", runs.section(records)),
    }
    chapters = {name: chapter for name, chapter in chapters.items() if chapter[1]}
    links = [element("a", title, href=f"#{name}") for name, (title, _) in chapters.items()]
    body = element(
        "body",
        element(
            "header",
            element("h1", TITLE),
            element("p", f"Computed from {len(records)} run records by ", element("code", "make report"), "."),
            element("nav", *links, aria_label="Chapters"),
        ),
        element("main", *(chapter for _, chapter in chapters.values())),
        data(
            "report-data", {"examples": explorer.examples(), "runs": {each.id: runs.details(each) for each in records}}
        ),
        element("script", Html(script), type="module"),
    )
    return join(Html("<!doctype html>\n"), element("html", _head(style, script), body, lang="en"), Html("\n"))
