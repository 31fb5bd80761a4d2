"""README and the pages of docs/: links, length, and what they say was never run."""

import csv
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "data" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").glob("*.md")),
    *sorted((ROOT / "results" / "tables").rglob("*.md")),
    ROOT / "results" / "figures" / "README.md",
]
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Those that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((page.name, link))
    assert broken == []


def test_the_readme_is_read_in_one_sitting_and_names_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f"(docs/{path.name})" not in text] == []
    rooms = [path.parent.name for path in (ROOT / "src" / "ntl").glob("*/__init__.py")]
    assert len(rooms) > 10
    assert [room for room in rooms if f"\n  {room}/" not in text] == []


def test_docs_are_nine_pages_of_at_most_13400_words() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")]
    assert len(pages) == 9
    assert sum(len(page.split()) for page in pages) <= 13_400


def test_what_the_readme_says_was_never_run_has_no_table() -> None:
    """Its first paragraph."""
    assert (
        "(`scale=paper`) but were never run. The same holds for our settings for one GPU (`scale=small`)"
        in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    )
    tables = [path.stem for path in (ROOT / "results" / "tables").glob("*.md")]
    assert len(tables) > 10
    assert [stem for stem in tables if stem.endswith(("_paper", "_small"))] == []


def test_the_page_on_speed_has_the_numbers_of_its_files() -> None:
    """Of those whose figures are typed by hand: each ratio with its quartiles, and the memory beside it."""
    page, folder = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), ROOT / "results" / "benchmarks"

    def ratios(name: str, *columns: str) -> dict[tuple[str, ...], str]:
        with (folder / name).open(encoding="utf-8") as stream:
            rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
        numbers = ("ratio", "ratio_low", "ratio_high")
        text = "{:.2f} [{:.2f}, {:.2f}]"
        return {
            tuple(row[each] for each in columns): text.format(*(float(row[each]) for each in numbers)) for row in rows
        }

    linear = ratios("linear.csv", "loss", "peak_mib")
    said = [f"| 0.0 | {loss} | {ratio} | {float(peak):.0f} |" for (loss, peak), ratio in linear.items()]
    assert len(said) == 5
    assert [line for line in said if line not in page] == []
    rivals, kernels = (
        ratios("rivals.csv", "share", "loss", "part"),
        ratios("kernels.csv", "model", "attention", "precision"),
    )
    assert f"NTL-WAS took {rivals['0.8', 'ntl_was', 'forward+backward']}" in page
    assert f"EMO {rivals['0.8', 'emo', 'forward+backward']}" in page
    assert f"{kernels['llama_tiny', 'fused', 'float32']} of a step in bfloat16" in page
    one_digit, _, two_digits, _ = (
        1 / row["speed_ratio"] for row in json.loads((folder / "expected_error.json").read_text())
    )
    assert f"takes {one_digit:.2f} times as long with ten prefixes" in " ".join(page.split())
    assert f"SmolLM2, {two_digits:.1f} times with 16" in " ".join(page.split())
