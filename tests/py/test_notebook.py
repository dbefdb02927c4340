"""The notebook in examples/ runs from top to bottom, in a kernel of its own, and says what it promises."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOK = EXAMPLES / "tack_notebook.ipynb"


def text_of(cell: dict) -> str:
    """What a cell printed and showed as text."""
    outputs = cell.get("outputs", ())
    return "".join(part.get("text", "") or part.get("data", {}).get("text/plain", "") for part in outputs)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict:
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel (pip install 'tack-memory[test]')")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel (pip install 'tack-memory[test]')")
    runtime = tmp_path_factory.mktemp("jupyter")
    kept = {name: os.environ.get(name) for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLBACKEND")}
    os.environ.update(JUPYTER_RUNTIME_DIR=str(runtime), IPYTHONDIR=str(runtime))
    os.environ.pop("MPLBACKEND", None)
    try:
        run = nbformat.read(NOTEBOOK, as_version=4)
        nbclient.NotebookClient(run, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    return run


def test_it_runs_and_the_results_under_a_budget_are_the_same(notebook: dict) -> None:
    printed = "".join(text_of(cell) for cell in notebook["cells"])
    assert "the same results: True" in printed
    assert "over the budget 0 times" in printed
    assert re.search(r"\b[1-9]\d* spills", printed)
    assert "cannot be had" in printed


def test_it_names_the_lines_of_the_filter_and_not_the_frameworks(notebook: dict) -> None:
    rows = next(text for cell in notebook["cells"] if "together, and the peak was" in (text := text_of(cell)))
    assert "filters.py:" in rows
    assert "backend.py" not in rows


def test_it_shows_a_picture_and_tables(notebook: dict) -> None:
    kinds = [kind for cell in notebook["cells"] for part in cell.get("outputs", ()) for kind in part.get("data", {})]
    assert "image/png" in kinds
    assert kinds.count("text/html") >= 2, "MemoryInfo and MemoryReport are shown as tables"


def test_the_outputs_that_are_kept_in_it_are_of_a_whole_run(notebook: dict) -> None:
    import nbformat

    kept = nbformat.read(NOTEBOOK, as_version=4)
    assert [cell["source"] for cell in kept["cells"]] == [cell["source"] for cell in notebook["cells"]]
    for cell in kept["cells"]:
        if cell["cell_type"] == "code":
            assert cell["execution_count"], "run all cells before you commit the notebook"
            assert not any(part["output_type"] == "error" for part in cell["outputs"])
            assert str(EXAMPLES.parent) not in str(cell["outputs"])
