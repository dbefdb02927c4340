"""What is said below a failed cell, and by %memory_info: once, of the right error, whatever is among the variables; and what cannot be told."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from support import MIB

import tack_memory
from tack_memory._notebook import after_cell, kept, stale

DEVICE = "sim:0"
APPLY = f"def apply(n=4 << 20):\n    scratch = tm.allocate(n, '{DEVICE}')\n    raise ValueError('no')"
KEPT = "is kept alive only by "


def failed(notebook: Any, cell: str = "apply()") -> str:
    text: str = notebook.run(cell, fails=True)
    return text


@pytest.mark.parametrize(
    "proxy",
    [
        "import weakref\ndef make():\n    return weakref.proxy(type('O', (), {})())",
        "class Lazy:\n    @property\n    def __class__(self):\n        asked.append(1)\n        raise RuntimeError\nmake = Lazy",
        "class Lazy:\n    def __getattr__(self, name):\n        asked.append(name)\n        raise RuntimeError\nmake = Lazy",
    ],
)
def test_no_code_of_variables_runs(notebook: Any, proxy: str) -> None:
    before = tack_memory.memory_info(DEVICE).in_use
    notebook.run(f"asked = []\n{proxy}\ndef apply():\n    proxy = make()\n    scratch = [proxy, tm.allocate(4 << 20, '{DEVICE}')]\n    1 / 0")
    assert KEPT + "the stored traceback of ZeroDivisionError" in failed(notebook)
    asked = len(notebook.shell.user_ns["asked"])  # by IPython, which shows the traceback
    assert "scratch in apply" in notebook.run(f"%memory_info {DEVICE}")
    assert "kept alive: 4 MiB" in notebook.run(f"%memory_info {DEVICE} --forget")
    assert tack_memory.memory_info(DEVICE).in_use == before and len(notebook.shell.user_ns["asked"]) == asked


def test_numpys_own_attributes_are_asked() -> None:
    numpy = pytest.importorskip("numpy")

    class Array(numpy.ndarray):  # type: ignore[misc, name-defined]
        @property
        def nbytes(self) -> int:
            raise RuntimeError

        base = flags = nbytes

    assert stale._is_array(Array(3), numpy.ndarray)
    assert not stale._is_array(Array(3)[1:], numpy.ndarray)


def test_figures_are_shown_and_errors_are_forgotten_whatever_becomes_of_the_rest(notebook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tack_memory.memory_info(DEVICE).in_use
    notebook.run(APPLY)
    with monkeypatch.context() as changed:
        changed.setattr(stale, "error_slots", lambda shell: 1 / 0)
        text = failed(notebook)
        assert "ValueError: no" in text and "ZeroDivisionError" not in text
        assert "MemoryInfo(sim:0" in notebook.run(f"%memory_info {DEVICE}")
        text = notebook.run(f"%memory_info {DEVICE} --forget")
    assert "forgotten; arrays that only it kept alive: 4 MiB" in text and tack_memory.memory_info(DEVICE).in_use == before


def test_above_the_limit_it_is_said_once_and_forgetting_tells_what_became_free(notebook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "what the stored traceback keeps alive cannot be told: there are more than 3,000 objects behind; %memory_info --forget lets go of it"
    monkeypatch.setattr(kept, "MOST", 3000)
    before = tack_memory.memory_info(DEVICE).in_use
    notebook.run(f"def apply():\n    many, scratch = [[i] for i in range(5000)], tm.allocate(4 << 20, '{DEVICE}')\n    1 / 0")
    assert failed(notebook).count(says) == 1 and says in notebook.html[-1]
    assert "cannot be told" not in failed(notebook, "%memory_info --nope"), "it has been said of this traceback"
    text = notebook.run(f"%memory_info {DEVICE}")
    assert text.count(says) == 1 and text.count("cannot be told") == 1
    text = notebook.run(f"%memory_info {DEVICE} --forget")
    assert "the stored error is forgotten; arrays that only it kept alive: 4 MiB" in text and "cannot be told" not in text
    assert tack_memory.memory_info(DEVICE).in_use == before
    notebook.run(f"[[i] for i in range(5000)], tm.allocate(4 << 20, '{DEVICE}')")
    assert "what IPython's cache of results keeps alive cannot be told" in notebook.run(f"%memory_info {DEVICE}")
    assert "forgotten; arrays that only it kept alive: 4 MiB" in notebook.run(f"%memory_info {DEVICE} --forget-results")


def test_an_error_that_kept_nothing_is_forgotten_too(notebook: Any) -> None:
    failed(notebook, "1 / 0")
    assert "the stored error is forgotten; nothing became free" in notebook.run(f"%memory_info {DEVICE} --forget")
    assert "there is no stored error" in notebook.run(f"%memory_info {DEVICE} --forget")
    assert "No traceback available" in notebook.run("%tb"), "IPython takes it as it does before the first error"


def test_another_error_is_not_named_and_nothing_is_said_twice(notebook: Any) -> None:
    before = tack_memory.memory_info(DEVICE).in_use
    notebook.run(APPLY)
    assert KEPT + "the stored traceback of ValueError:" in failed(notebook)
    for wrong in ("%memory_info --nope", "%nosuch", "%memory_info --nope"):
        text = failed(notebook, wrong)
        assert "UsageError" in text and "kept alive" not in text
    text = notebook.run(f"%memory_info {DEVICE}")
    assert KEPT + "the stored traceback:" in text and "scratch in apply" in text
    assert KEPT in failed(notebook), "other arrays, of the same names"
    notebook.run("import gc\ngc.collect();")
    assert tack_memory.memory_info(DEVICE).in_use == before + 4 * MIB


def test_a_failed_cell_names_what_its_traceback_and_the_results_keep_together(notebook: Any) -> None:
    notebook.run(f"def apply(array):\n    raise ValueError('no')\ntm.allocate(2 << 20, '{DEVICE}')")
    text = failed(notebook, "apply(_)")
    assert "kept alive only by the stored traceback of ValueError and IPython's cache of results together:" in text and "2 MiB: array in apply" in text
    notebook.run("%memory_info --forget")
    notebook.run(f"tm.allocate(2 << 20, '{DEVICE}')")
    assert "kept alive" not in failed(notebook, "1 / 0"), "results alone are no matter of the error"
    notebook.run("%memory_info --forget-results")


def test_several_arrays_are_one_sum(notebook: Any) -> None:
    notebook.run(f"def apply():\n    blocks = [tm.allocate(1 << 20, '{DEVICE}') for _ in range(8)]\n    1 / 0")
    text = failed(notebook)
    assert "8 arrays, 8 MiB in all, on sim:0 are kept alive only by" in text and "3 MiB in all: 3 more" in text
    assert "%memory_info --forget lets go of them;" in text


def test_a_label_is_one_line(notebook: Any) -> None:
    notebook.run(f"def apply():\n    scratch = tm.allocate(4 << 20, '{DEVICE}', label='a\\nb\\x1b[31m')\n    1 / 0")
    assert r"4 MiB: a\nb\x1b[31m, scratch in apply (In[" in failed(notebook)


def test_without_the_magics_a_report_says_where_they_come_from(notebook: Any) -> None:
    notebook.run(APPLY)
    notebook.run("%unload_ext tack_memory")
    failed(notebook)
    assert "After %load_ext tack_memory, %memory_info --forget lets go of it" in tack_memory.memory_report(DEVICE)._repr_html_()


def test_garbage_is_collected_once_and_not_where_there_is_nothing_to_find(notebook: Any) -> None:
    notebook.run(APPLY)
    found: list[str] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            found.append(phase)

    def collections(cell: str, *, fails: bool) -> int:
        found.clear()
        gc.disable()
        gc.callbacks.append(count)
        try:
            notebook.run(cell, fails=fails)
        finally:
            gc.callbacks.remove(count)
            gc.enable()
        return len(found)

    if (stale.live_bytes() or 0) < after_cell.WARN_FROM:  # other tests may keep something on other devices
        assert collections("1 / 0", fails=True) == 0
    assert collections("apply()", fails=True) == 1
    assert collections(f"%memory_info {DEVICE}", fails=False) == 1
