"""The notebooks are for reading: they import ntl, hold no logic, and show what their cells compute."""

import ast
import copy
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
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


def test_the_readme_points_to_each_and_the_table_is_the_committed_one() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(PATHS) == 5
    assert [path.name for path in PATHS if f"(notebooks/{path.name})" not in readme] == []
    shown = committed("2_from_record_to_table.ipynb")
    assert shown.endswith((ROOT / "results" / "tables" / "evidence_tiny.md").read_text(encoding="utf-8"))
