"""The notebooks are for reading: they import ntl and hold no logic, are committed without outputs, and run."""

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.While


def code(notebook: Any) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_three_and_the_readme_points_to_each() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(PATHS) == 3
    assert [path.name for path in PATHS if f"(notebooks/{path.name})" not in readme] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_has_no_outputs_and_holds_no_logic(path: Path) -> None:
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.source for cell in cells if cell.outputs or cell.execution_count is not None] == []
    trees = [ast.parse(source) for source in code(notebook)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    assert any(module.split(".")[0] == "ntl" for module in modules)
    assert not any(isinstance(node, DEFINITIONS) for node in nodes)


def test_ntl_takes_five_lines_in_a_trainer_of_ones_own() -> None:
    notebook = nbformat.read(FOLDER / "3_your_own_trainer.ipynb", as_version=nbformat.NO_CONVERT)
    (shown,) = [source for source in code(notebook) if "NumberTokenLoss" in source]
    assert len([line for line in shown.splitlines() if line.strip()]) == 5
    assert not re.search(r"ntl\.(?:training|config)", "\n".join(code(notebook)))


def executed(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything that the notebook's cells show as text; an error in a cell fails the test."""
    from nbclient import NotebookClient

    # The kernel is a process of its own, which must test this tree, too, and not an installed copy.
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=":")
    before = sorted(FOLDER.iterdir())
    notebook = nbformat.read(FOLDER / name, as_version=4)
    place = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=500, kernel_name="python3", resources=place).execute()
    assert sorted(FOLDER.iterdir()) == before
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.get("data", {}) for output in outputs]
    return "\n".join(data.get("text/markdown") or data.get("text/plain", "") for data in shown)


@pytest.mark.slow
def test_the_losses_are_those_that_the_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = executed("1_losses.ipynb", monkeypatch)
    for line in (r"cross_entropy +inf", r"ntl_mse +0\.0", r"ntl_was +4\.0", r"ntl_crps +2\.0"):
        assert re.search(rf"^{line}$", shown, re.MULTILINE)
    # Steps of gradient descent from equal logits: cross entropy, the control, WAS, MSE.
    assert re.search(r"^9 +-0\.1 +-0\.1 +-0\.25 +-0\.45$", shown, re.MULTILINE)
    # Torn between 0 and 8, the last column, MSE, is 0 throughout; and so are value and gradient without numbers.
    assert re.search(r"^4 +0\.991 +0\.991 +0\.033 +-?0\.0$", shown, re.MULTILINE)
    assert shown.endswith("(0.0, 0.0)")


@pytest.mark.slow
def test_the_table_is_the_committed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = executed("2_from_record_to_table.ipynb", monkeypatch)
    assert shown.endswith((ROOT / "results" / "tables" / "evidence_tiny.md").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_model_of_ones_own_trainer_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = executed("3_your_own_trainer.ipynb", monkeypatch)
    answers = re.findall(r"\? (\S+) \(right: (\d+)\)", shown)
    assert len(answers) == 17
    assert sum(written == right for written, right in answers) >= 10
