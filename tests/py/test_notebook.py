"""The notebooks in examples/ run from top to bottom, each in a kernel of its own, and say what they promise."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TACK, NUMPY = "tack_notebook.ipynb", "numpy_notebook.ipynb"


def text_of(cell: dict) -> str:
    """What a cell printed and showed as text."""
    outputs = cell.get("outputs", ())
    return "".join(part.get("text", "") or part.get("data", {}).get("text/plain", "") for part in outputs)


def executed(name: str, folder: Path) -> dict:
    """The notebook after a run of all its cells."""
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel (pip install 'tack-memory[test]')")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel (pip install 'tack-memory[test]')")
    runtime = folder
    kept = {variable: os.environ.get(variable) for variable in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLBACKEND")}
    os.environ.update(JUPYTER_RUNTIME_DIR=str(runtime), IPYTHONDIR=str(runtime))
    os.environ.pop("MPLBACKEND", None)
    try:
        run = nbformat.read(EXAMPLES / name, as_version=4)
        nbclient.NotebookClient(run, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    finally:
        for variable, value in kept.items():
            os.environ.pop(variable, None) if value is None else os.environ.update({variable: value})
    return run


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return executed(TACK, tmp_path_factory.mktemp("jupyter"))


@pytest.fixture(scope="module")
def numpy_notebook(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return executed(NUMPY, tmp_path_factory.mktemp("jupyter"))


def test_it_runs_and_the_results_under_a_budget_are_the_same(notebook: dict) -> None:
    printed = "".join(text_of(cell) for cell in notebook["cells"])
    assert "the same results: True" in printed
    assert "over the budget 0 times" in printed
    assert re.search(r"\b[1-9]\d* spills", printed)
    assert "cannot be had" in printed


def test_it_names_the_lines_of_the_filter_and_not_the_frameworks(notebook: dict) -> None:
    rows = next(text for cell in notebook["cells"] if "on the device at the peak" in (text := text_of(cell)))
    assert "sweep/filters.py:" in rows, "relative to the notebook's folder"
    assert "backend.py" not in rows


def test_a_failed_cell_is_told_what_its_traceback_keeps_and_can_let_go(notebook: dict) -> None:
    warning = next(text for cell in notebook["cells"] if "stored traceback" in (text := text_of(cell)))
    assert "1 array of 7.63 MiB on sim:0 is kept alive only by the stored traceback of ValueError" in warning and "scratch in smooth (In[" in warning
    last = next(text for cell in notebook["cells"] if "is forgotten" in (text := text_of(cell)))
    assert "arrays that only it kept alive: 7.63 MiB" in last and "in use 0 B" in last


def test_numpys_shows_peaks_and_lines_and_what_a_change_saves(numpy_notebook: dict) -> None:
    printed = "".join(text_of(cell) for cell in numpy_notebook["cells"])
    assert "the same shapes: True" in printed and "five shapes, lean on numpy" in printed
    before, after = re.search(r"own memory: ([\d.]+) MiB before, ([\d.]+) MiB now", printed).groups()  # type: ignore[union-attr]
    assert float(after) < float(before) / 5
    html = "".join(part["data"]["text/html"] for cell in numpy_notebook["cells"] for part in cell.get("outputs", ()) if "text/html" in part.get("data", {}))
    assert "In[3]:2" in html and "In[3]:3" in html, "the two lines that copy, by their cell"
    assert "ipykernel_" not in html


def test_it_shows_a_picture_and_tables(notebook: dict) -> None:
    kinds = [kind for cell in notebook["cells"] for part in cell.get("outputs", ()) for kind in part.get("data", {})]
    assert "image/png" in kinds
    assert kinds.count("text/html") >= 2, "MemoryInfo and MemoryReport are shown as tables"


@pytest.mark.parametrize(("name", "fixture"), [(TACK, "notebook"), (NUMPY, "numpy_notebook")])
def test_the_outputs_that_are_kept_in_it_are_of_a_whole_run(name: str, fixture: str, request: pytest.FixtureRequest) -> None:
    import nbformat

    run, kept = request.getfixturevalue(fixture), nbformat.read(EXAMPLES / name, as_version=4)
    assert [cell["source"] for cell in kept["cells"]] == [cell["source"] for cell in run["cells"]]
    for cell in kept["cells"]:
        if cell["cell_type"] == "code":
            assert cell["execution_count"], "run all cells before you commit the notebook"
            fails = any(part["output_type"] == "error" for part in cell["outputs"])
            assert fails == ("raises-exception" in cell["metadata"].get("tags", ()))
            assert str(EXAMPLES.parent) not in str(cell["outputs"])
