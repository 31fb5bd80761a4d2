"""README and the pages of docs/: links, length, and what they say was never run."""

import ast
import copy
import csv
import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "results" / "benchmarks"
PAGES = [
    ROOT / "README.md",
    ROOT / "data" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").glob("*.md")),
    *sorted((ROOT / "results" / "log").glob("*.md")),
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


def test_the_log_lists_every_entry() -> None:
    log, files = ROOT / "results" / "LOG.md", sorted((ROOT / "results" / "log").glob("*.md"), reverse=True)
    entries = [entry for path in files for entry in re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.M)]
    listed = re.findall(r"^- \[([\d-]+)\]\(log/.*?\): (.+)$", log.read_text(encoding="utf-8"), re.M)
    assert [": ".join(each) for each in listed] == entries


def test_the_readme_is_read_in_one_sitting_and_names_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    assert len(text.split()) <= 1_100
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f"(docs/{path.name})" not in text] == []
    code_map = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for path in (ROOT / "src" / "ntl").glob("*/__init__.py")]
    assert len(rooms) > 10
    assert [room for room in rooms if f"\n  {room}/" not in code_map] == []


def test_the_results_are_read_in_one_sitting() -> None:
    assert len((ROOT / "results" / "README.md").read_text(encoding="utf-8").split()) <= 3_500


def test_docs_are_ten_pages_of_at_most_12100_words() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")]
    assert len(pages) == 10
    assert sum(len(page.split()) for page in pages) <= 12_100


def test_what_the_readme_says_was_never_run_has_no_table() -> None:
    said = "the paper's own experiments (`scale=paper`) and our settings for one GPU (`scale=small`) were never run"
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")
    tables = [path.stem for path in (ROOT / "results" / "tables").glob("*.md")]
    assert len(tables) > 10
    assert [stem for stem in tables if stem.endswith(("_paper", "_small"))] == []


def measured(name: str) -> list[dict[str, str]]:
    with (BENCHMARKS / name).open(encoding="utf-8") as stream:
        return list(csv.DictReader(line for line in stream if not line.startswith("#")))


def interval(row: dict[str, str], column: str) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*(float(row[column + end]) for end in ("", "_low", "_high")))


def test_the_page_on_speed_has_the_numbers_of_its_files() -> None:
    """Of those whose figures are typed by hand."""
    page = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())

    def ratios(name: str, *columns: str) -> dict[tuple[str, ...], str]:
        return {tuple(row[each] for each in columns): interval(row, "ratio") for row in measured(name)}

    linear = ratios("linear.csv", "loss")
    ce, was, torchs = (
        f"{float(row['peak_mib']):.0f} MiB" for row in measured("linear.csv") if "chunk" not in row["loss"]
    )
    assert f"`linear` takes {linear['was linear',]} times as long as `F.linear`" in page
    assert f"in {was} instead of {ce.removesuffix(' MiB')} " in page
    assert f"`linear_cross_entropy` takes {linear['torch CE',]} times as long in {torchs}." in page
    ignored = ratios("implementations.csv", "ignored", "part", "loss")
    assert f"72% of the labels are ignored, {ignored['0.72', 'linear', 'was linear']} times" in page
    bare = {row["speed_ratio"] for row in json.loads((BENCHMARKS / "training.json").read_text()) if row["loss"] != "ce"}
    assert f"NTL-WAS is {min(bare):.2f} to {max(bare):.2f} times as fast as a bare" in page
    rivals = ratios("rivals.csv", "share", "loss", "part")
    kernels = ratios("kernels.csv", "model", "attention", "precision")
    assert f"NTL-WAS took {rivals['0.8', 'ntl_was', 'forward+backward']}" in page
    assert f"EMO {rivals['0.8', 'emo', 'forward+backward']}" in page
    assert f"takes {kernels['llama_tiny', 'fused', 'float32']} of a step in bfloat16" in page
    one_digit, _, two_digits, _ = (
        1 / row["speed_ratio"] for row in json.loads((BENCHMARKS / "expected_error.json").read_text())
    )
    assert f"takes {one_digit:.2f} times as long with ten prefixes" in page
    assert f"SmolLM2, {two_digits:.1f} times with 16" in page


def test_the_page_on_objectives_has_the_numbers_of_its_files() -> None:
    """How fast drafts are, and what a head costs."""
    page = " ".join((ROOT / "docs" / "objectives.md").read_text(encoding="utf-8").split())
    drafts = measured("speculative.csv")
    assert [(row["batch"], row["heads"]) for row in drafts] == [("1", "2"), ("1", "3"), ("8", "2"), ("8", "3")]
    one, two, batch, batches = (f"{float(row['speedup']):.2f}" for row in drafts)
    assert f"decodes {one} and {two} times as fast as" in page
    assert f"In batches of eight it decodes {batch} and {batches} times as fast." in page
    assert "All answers were the same." in page
    assert [row for row in drafts if row["same_answers"] != row["answers"]] == []
    over = [float(row["over_floor"]) for row in measured("mtp_floor.csv")]
    assert max(abs(each - 1) for each in over) < 0.02
    assert "measured within 2% of this floor" in page
    heads = [row for row in measured("mtp.csv") if row["form"] == "one at a time" and row["heads"] in ("2", "4")]
    two, four, *_ = (f"{float(row['ratio']):.2f}" for row in heads)
    assert f"takes {two} times with two heads and {four} times with four, in less memory" in page
    assert max(float(row["peak_ratio"]) for row in heads) < 1


# The notebooks are for reading: they import ntl, hold no logic, and show what their cells compute.


FOLDER = ROOT / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.While
IMAGE_BYTES = 50_000
notebooks = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "notebooks.py")))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def code(notebook: Any) -> list[str]:
    return [cell.source for cell in code_cells(notebook)]


def kinds(output: Any) -> dict[str, str]:
    """What one output holds, by its type; of an image only that it is one, as fonts differ."""
    held = output.get("data", {"text/plain": output.get("text")})
    return {kind: "" if kind.startswith("image/") else text for kind, text in held.items()}


def committed(name: str) -> str:
    """Everything that a notebook shows as text where it is read."""
    outputs = [output for cell in code_cells(notebooks.read(FOLDER / name)) for output in cell.outputs]
    return "\n".join(held.get("text/markdown") or held.get("text/plain", "") for held in map(kinds, outputs))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_was_run_from_top_to_bottom_and_holds_no_logic(path: Path) -> None:
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert notebook.metadata.keys() == {"kernelspec", "language_info"}
    assert {key for cell in notebook.cells for key in cell.metadata} <= {"tags"}  # no times
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    images = [text for each in outputs for kind, text in each.get("data", {}).items() if kind.startswith("image/")]
    assert [len(image) for image in images if len(image) > IMAGE_BYTES] == []
    assert not re.search(r"0x[0-9a-f]{6,}|site-packages|\d+(?:\.\d+)? s\b", committed(path.name))
    trees = [ast.parse(source) for source in code(notebook)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    assert any(module.split(".")[0] == "ntl" for module in modules)
    assert not any(isinstance(node, DEFINITIONS) for node in nodes)


@pytest.mark.slow
def test_the_notebooks_show_what_they_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one kernel, whose imports take most of the time; before each it forgets all names."""
    # The kernel is a process of its own, which must test this tree, too, and not an installed copy.
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=":")
    monkeypatch.delenv("WANDB_MODE", raising=False)  # which wandb prints a line about, for a reader there is none
    files, (first, *others) = sorted(FOLDER.iterdir()), [notebooks.read(path) for path in PATHS]
    for other in others:
        first.cells += [nbformat.v4.new_code_cell("%reset -f"), *other.cells]
    again = copy.deepcopy(first)
    notebooks.execute(again)
    assert sorted(FOLDER.iterdir()) == files
    assert again.metadata == first.metadata
    for cell, new in zip(code_cells(first), code_cells(again), strict=True):
        assert [kinds(output) for output in cell.outputs] == [kinds(output) for output in new.outputs], (
            f"{cell.source}\n\nshows something else now: make notebooks"
        )


def test_a_page_points_to_each_and_the_table_is_the_committed_one() -> None:
    pages = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    assert len(PATHS) == 5
    assert [path.name for path in PATHS if f"(notebooks/{path.name})" not in pages] == []
    shown = committed("2_from_record_to_table.ipynb")
    assert shown.endswith((ROOT / "results" / "tables" / "evidence_tiny.md").read_text(encoding="utf-8"))
