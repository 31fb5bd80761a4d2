"""The notebooks are for reading: they import ntl, hold no logic, and show what their cells compute."""

import ast
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.While
IMAGE_BYTES = 50_000
SPEC = spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
assert SPEC is not None
assert SPEC.loader is not None
notebooks = module_from_spec(SPEC)
SPEC.loader.exec_module(notebooks)


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


def test_the_readme_points_to_each() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(PATHS) == 4
    assert [path.name for path in PATHS if f"(notebooks/{path.name})" not in readme] == []


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


def test_ntl_takes_five_lines_in_a_trainer_of_ones_own() -> None:
    notebook = nbformat.read(FOLDER / "3_your_own_trainer.ipynb", as_version=nbformat.NO_CONVERT)
    (shown,) = [source for source in code(notebook) if "NumberTokenLoss" in source]
    assert len([line for line in shown.splitlines() if line.strip()]) == 5
    assert not re.search(r"ntl\.(?:training|config)", "\n".join(code(notebook)))


# Run after the last cell.
CHECKS = {
    "3_your_own_trainer": """
learnt = {tuple(row["input_ids"]) for row in trainer.train_dataset}
asked_for = {tuple(rows[index]["input_ids"]) for index in held_out}
assert (len(learnt), len(asked_for), learnt & asked_for) == (656, 73, set())
"""
}


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_computes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel is a process of its own, which must test this tree, too, and not an installed copy.
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=":")
    monkeypatch.delenv("WANDB_MODE", raising=False)  # which wandb prints a line about, for a reader there is none
    before = sorted(FOLDER.iterdir())
    notebook, again = notebooks.read(path), notebooks.read(path)
    again.cells.append(nbformat.v4.new_code_cell(CHECKS.get(path.stem, "")))
    notebooks.execute(again)
    assert sorted(FOLDER.iterdir()) == before
    assert again.metadata == notebook.metadata
    for cell, new in zip(code_cells(notebook), code_cells(again), strict=False):
        assert [kinds(output) for output in cell.outputs] == [kinds(output) for output in new.outputs], (
            f"{cell.source}\n\nshows something else now: make notebooks"
        )


def test_the_losses_are_those_that_the_text_says() -> None:
    shown = committed("1_losses.ipynb")
    for line in (r"cross_entropy +inf", r"ntl_mse +0\.0", r"ntl_was +4\.0", r"ntl_crps +2\.0"):
        assert re.search(rf"^{line}$", shown, re.MULTILINE)
    # Steps of gradient descent from equal logits: cross entropy, the control, WAS, MSE.
    assert re.search(r"^9 +-0\.1 +-0\.1 +-0\.25 +-0\.45$", shown, re.MULTILINE)
    # Torn between 0 and 8, the last column, MSE, is 0 throughout; and so are value and gradient without numbers.
    assert re.search(r"^4 +0\.991 +0\.991 +0\.033 +0\.0$", shown, re.MULTILINE)
    assert shown.endswith("(0.0, 0.0)")


def test_the_table_is_the_committed_one() -> None:
    shown = committed("2_from_record_to_table.ipynb")
    assert shown.endswith((ROOT / "results" / "tables" / "evidence_tiny.md").read_text(encoding="utf-8"))


def test_the_model_of_ones_own_trainer_answers_what_it_was_not_trained_on() -> None:
    shown = committed("3_your_own_trainer.ipynb")
    assert shown.startswith("73 of 73 are right.\n")
    answers = re.findall(r"What is (\d)00 plus (\d)0 plus (\d)\? (\d+)", shown)
    assert len(answers) == 7
    assert [answer for *digits, answer in answers if "".join(digits) != answer] == []
