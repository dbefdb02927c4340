"""A shell of IPython's in this process, and what its cells show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tack_memory._notebook import stale


class Notebook:
    """Runs cells, and keeps what they print and show."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.out = ""
        self.html: list[str] = []

    def run(self, cell: str, *, fails: bool = False) -> str:
        """Run a cell; what it printed and showed as text. `html` is what it showed as HTML."""
        from IPython.utils.capture import capture_output

        with capture_output() as captured:
            done = self.shell.run_cell(cell, store_history=True)
        assert done.success is not fails, f"{cell}\n{captured.stdout}\n{captured.stderr}"
        del done  # it has the error
        shown = [output.data for output in captured.outputs]
        self.html = [data["text/html"] for data in shown if "text/html" in data]
        return captured.stdout + captured.stderr + "\n".join(data.get("text/plain", "") for data in shown)


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A fresh shell with the extension loaded and `tm` imported. The last errors of Python and their places are given back at the end."""
    pytest.importorskip("IPython", reason="needs IPython (pip install 'tack-memory[test]')")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    names = ("last_type", "last_value", "last_traceback", "last_exc")
    before = {name: vars(sys).pop(name) for name in names if hasattr(sys, name)}
    module = sys.modules["__main__"]
    shell = InteractiveShell.instance(config=config)
    try:
        shell.history_manager.enabled = False
        found = Notebook(shell)
        found.run("%load_ext tack_memory\nimport tack_memory as tm\ntm.set_origins('off');")
        yield found
        shell.run_line_magic("unload_ext", "tack_memory")
    finally:
        stale.forget(shell)
        for name in names:
            vars(sys).pop(name, None)
        vars(sys).update(before)
        shell.reset(new_session=False)
        shell.restore_sys_module_state()
        InteractiveShell.clear_instance()
        sys.modules["__main__"] = module
