"""ipython PR#11572: a report names arrays that only a stored traceback keeps alive; and none that anything else still holds."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support import KIB, MIB, run_python

import tack_memory
from tack_memory._notebook import kept, stale

DEVICE = "sim:0"


@pytest.fixture
def last_error() -> Iterator[None]:
    """The places of Python's last error are empty, and so again at the end."""
    names = ("last_type", "last_value", "last_traceback", "last_exc")
    before = {name: vars(sys).pop(name) for name in names if hasattr(sys, name)}
    yield
    for name in names:
        vars(sys).pop(name, None)
    vars(sys).update(before)


def fail(function: Any, *arguments: Any) -> None:
    """Call what fails, and keep its error as an interactive Python does."""
    try:
        function(*arguments)
    except Exception as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        if sys.version_info >= (3, 12):
            sys.last_exc = error


def boom(nbytes: int, keep: list[Any]) -> None:
    alone = tack_memory.allocate(nbytes, DEVICE, label="alone")  # noqa: F841 - it is the frame that is to hold it
    kept_by_others = tack_memory.allocate(2 * nbytes, DEVICE, label="kept by others")
    keep.append(kept_by_others)
    raise ValueError("boom")


def labels(found: stale.Stale | None) -> list[str]:
    return [] if found is None else [one.name for one in found.arrays]


def test_only_what_nothing_else_holds_is_named(last_error: None) -> None:
    keep: list[Any] = []
    fail(boom, MIB, keep)
    found = stale.stale_arrays()
    assert found is not None and labels(found) == [f"alone, alone in boom (test_stale_traceback.py:{boom.__code__.co_firstlineno + 4})"]
    assert found.nbytes == MIB and found.error == "ValueError"
    assert not found.by_results
    keep.clear()
    assert [name.partition(",")[0] for name in labels(stale.stale_arrays())] == ["kept by others", "alone"], "now nobody else holds it"


def test_it_is_true_what_is_named_is_freed_and_no_more(last_error: None) -> None:
    keep: list[Any] = []
    fail(boom, MIB, keep)
    tack_memory.synchronize(DEVICE)
    gc.collect()
    before = tack_memory.memory_info(DEVICE).in_use
    assert stale.forget() == (True, 0, MIB)
    assert tack_memory.memory_info(DEVICE).in_use == before - MIB
    assert not hasattr(sys, "last_value") and stale.stale_arrays() is None and stale.forget() == (False, 0, 0)


class Box:
    def __init__(self, content: Any) -> None:
        self.content = content


def in_containers() -> None:
    buffer = tack_memory.allocate(MIB, DEVICE)
    box = Box([{"deep": (buffer.view(0, KIB),)}])
    box.me = box  # type: ignore[attr-defined]  # a cycle
    del buffer
    raise KeyError(box)


def in_a_closure() -> None:
    buffer = tack_memory.allocate(MIB, DEVICE)

    def inner() -> int:
        return buffer.nbytes // 0

    inner()


def in_a_generator() -> None:
    def numbers() -> Iterator[int]:
        buffer = tack_memory.allocate(MIB, DEVICE)
        yield buffer.nbytes
        raise RuntimeError(buffer.nbytes)

    sum(numbers())


def chained() -> None:
    try:
        in_a_closure()
    except ZeroDivisionError as error:
        raise ValueError("another") from error


def exported() -> None:
    export = tack_memory.allocate(MIB, DEVICE).export("dlpack")
    raise ValueError(export.nbytes)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (in_containers, "box in in_containers"),
        (in_a_closure, "buffer in in"),  # the function's, and the inner one's
        (in_a_generator, "buffer in numbers"),
        (chained, "buffer in in"),
        (exported, "export in exported"),
    ],
)
def test_wherever_the_array_is_in_it(last_error: None, function: Any, name: str) -> None:
    fail(function)
    found = stale.stale_arrays()
    assert found is not None and found.nbytes == MIB and labels(found)[0].startswith(name), found


@pytest.mark.parametrize(
    "where", ["a local of a running function", "a global", "a view elsewhere", "an attribute of a class", "a default argument", "a C container"]
)
def test_what_is_held_from_elsewhere_is_not_named(last_error: None, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from collections import deque

    given = tack_memory.allocate(MIB, DEVICE)
    held: list[Any] = [None]

    def use(buffer: Any) -> None:
        match where:
            case "a global":
                monkeypatch.setitem(globals(), "a_global", buffer)
            case "a view elsewhere":
                held[0] = buffer.view(0, KIB)
            case "an attribute of a class":
                monkeypatch.setattr(Box, "of_the_class", buffer, raising=False)
            case "a default argument":
                held[0] = eval("lambda x=buffer: x", {"buffer": buffer})
            case "a C container":
                held[0] = deque([buffer])
            case _:
                held[0] = buffer
        raise ValueError

    fail(use, given)
    del given
    assert stale.stale_arrays() is None
    held[0] = None
    monkeypatch.undo()
    found = stale.stale_arrays()
    assert found is not None and found.nbytes == MIB, "the only difference was the other holder"


def test_freed_buffers_and_empty_ones_are_none(last_error: None) -> None:
    def use() -> None:
        freed, empty = tack_memory.allocate(MIB, DEVICE), tack_memory.allocate(0, DEVICE)
        freed.free()
        raise ValueError(empty.nbytes)

    fail(use)
    assert stale.stale_arrays() is None


def test_a_traceback_with_too_much_behind_it_is_not_told_about(last_error: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(boom, MIB, [])
    monkeypatch.setattr(kept, "MOST", 3)
    assert stale.stale_arrays() is None


def test_looking_changes_no_reference(last_error: None) -> None:
    fail(boom, MIB, [])
    stale.stale_arrays()
    error = sys.last_value
    counts = sys.getrefcount(error), sys.getrefcount(error.__traceback__)
    for _ in range(5):
        stale.stale_arrays()
    assert (sys.getrefcount(error), sys.getrefcount(error.__traceback__)) == counts


def test_a_failed_cell_says_it_and_reports_do_and_forgetting_frees(notebook: Any) -> None:
    notebook.run(f"def apply(n):\n    scratch = tm.allocate(n, '{DEVICE}', label='<s>')\n    raise ValueError('no')\nmine = []")
    before = tack_memory.memory_info(DEVICE).in_use
    text = notebook.run("apply(2 << 20)", fails=True)
    assert "1 array of 2 MiB on sim:0 is kept alive only by the stored traceback of ValueError" in text and "scratch in apply (In[" in text
    assert "&lt;s&gt;" in notebook.html[-1] and "<s>" not in notebook.html[-1]
    notebook.run("1 + 1;")
    assert "2 MiB: <s>, scratch in apply" in notebook.run(f"%memory_info {DEVICE}"), "also after a cell that went well"
    html = notebook.shell.display_formatter.format(tack_memory.memory_report(DEVICE))[0]["text/html"]
    assert "stored traceback of ValueError" in html
    text = notebook.run(f"%memory_info {DEVICE} --forget")
    assert "the stored error is forgotten; arrays that only it kept alive: 2 MiB" in text and "traceback" not in text
    assert tack_memory.memory_info(DEVICE).in_use == before
    assert "stored traceback" not in tack_memory.memory_report(DEVICE)._repr_html_()


def test_a_report_is_shown_also_where_this_cannot_be_told(notebook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(stale, "error_slots", lambda shell: 1 / 0)
        assert 'class="tack-memory"' in tack_memory.memory_report(DEVICE)._repr_html_()


def test_small_arrays_are_not_worth_a_warning_after_a_cell(notebook: Any) -> None:
    notebook.run(f"def apply(n):\n    scratch = tm.allocate(n, '{DEVICE}')\n    raise ValueError('no')")
    assert "kept alive" not in notebook.run("apply(1000)", fails=True)
    assert "1000 B: scratch in apply" in notebook.run(f"%memory_info {DEVICE}")


def test_results_are_named_apart_and_the_advice_frees_them(notebook: Any) -> None:
    before = tack_memory.memory_info(DEVICE).in_use
    notebook.run(f"mine = tm.allocate(1 << 20, '{DEVICE}')\nmine")
    assert "kept alive" not in notebook.run(f"%memory_info {DEVICE}"), "a variable holds it"
    notebook.run("del mine")
    text = notebook.run(f"%memory_info {DEVICE}")
    assert "1 array of 1 MiB on sim:0 is kept alive only by IPython's cache of results" in text and "traceback" not in text
    assert "1 result of cells is forgotten; arrays that only it kept alive: 1 MiB" in notebook.run(advice_of(text))
    assert tack_memory.memory_info(DEVICE).in_use == before
    assert "kept alive" not in notebook.run(f"%memory_info {DEVICE}")


def test_a_result_may_be_an_exception(notebook: Any) -> None:
    notebook.run(
        f"def apply():\n    scratch = tm.allocate(1 << 20, '{DEVICE}')\n    1 / 0\ntry:\n    apply()\nexcept ZeroDivisionError as error:\n    kept = error"
    )
    notebook.run("kept")
    notebook.run("del kept")
    assert re.search(r"cache of results:\n  1 MiB: Out\[\d+\]\n", notebook.run(f"%memory_info {DEVICE}"))
    assert "kept alive: 1 MiB" in notebook.run("%memory_info --forget-results")


def advice_of(text: str) -> str:
    """What the text says that one should type, the last such line."""
    return [line for line in text.splitlines() if " lets go of " in line][-1].strip().partition(" lets go of ")[0]


@pytest.mark.parametrize("after", ["", "%reset -f out", "%xdel _", "2\n", "a = _"])
def test_forgetting_results_works_wherever_ipython_has_them(notebook: Any, after: str) -> None:
    before = tack_memory.memory_info(DEVICE).in_use
    for number in range(7):
        notebook.run(f"[tm.allocate(1 << 20, '{DEVICE}').view(0, {number + 1})]")
    notebook.run("41 + 1")
    if after:
        notebook.run(after)
    text = notebook.run(f"%memory_info {DEVICE}")
    assert " in all, on sim:0 are kept alive only by IPython's cache" in text or "%reset" in after
    notebook.run("%memory_info --forget-results")
    assert tack_memory.memory_info(DEVICE).in_use == before
    assert "no result of a cell has an array in it" in notebook.run("%memory_info --forget-results")
    assert 42 in notebook.shell.user_ns["Out"].values() or after.startswith("%"), "other results stay"
    notebook.run("40 + 3")
    assert notebook.shell.user_ns["_"] == 43 or "%reset" in after, "IPython goes on naming them (after %reset -f out it does not, without us)"


def test_what_the_error_and_the_results_keep_together_is_named_once(notebook: Any) -> None:
    before = tack_memory.memory_info(DEVICE).in_use
    notebook.run(f"def apply(array):\n    scratch = tm.allocate(1 << 20, '{DEVICE}')\n    raise ValueError('no')")
    notebook.run(f"mine = tm.allocate(2 << 20, '{DEVICE}', label='mine')\nmine")
    notebook.run("apply(mine)", fails=True)
    assert "together" not in notebook.run(f"%memory_info {DEVICE}"), "a variable holds it"
    notebook.run("del mine")
    text = notebook.run(f"%memory_info {DEVICE}")
    head = "1 array of 2 MiB on sim:0 is kept alive only by the stored traceback of ValueError and IPython's cache of results together:"
    assert head in text and text.count("2 MiB: mine, array in apply (In[") == 1 and "1 MiB: scratch in apply" in text
    assert "together" in notebook.html[-1]
    assert advice_of(text) == "%memory_info --forget --forget-results"
    text = notebook.run(f"%memory_info {DEVICE} --forget")
    assert "forgotten; arrays that only it kept alive: 1 MiB" in text and "is kept alive only by IPython's cache of results:" in text and "together" not in text
    assert "there is no stored error; 1 result of cells is forgotten; arrays that only it kept alive: 2 MiB" in notebook.run(
        f"%memory_info {DEVICE} --forget --forget-results"
    )
    assert tack_memory.memory_info(DEVICE).in_use == before
    assert "kept alive" not in notebook.run(f"%memory_info {DEVICE}")


def test_numpys_arrays_are_named_where_they_are_counted() -> None:
    """In a process of its own: counting NumPy's memory is for the whole process."""
    done = run_python(
        """
        import sys
        import numpy, tack_memory.numpy, tack_memory
        from tack_memory._notebook import stale
        def use():
            big = numpy.ones(1 << 20)
            part = big[10:]
            raise ValueError
        def fail():
            try:
                use()
            except ValueError as error:
                sys.last_value = error
        fail()
        assert stale.stale_arrays() is None, "imported only: nothing counts it"
        tack_memory.numpy.install()
        fail()
        found = stale.stale_arrays()
        assert [(one.device, one.nbytes) for one in found.arrays] == [("numpy", 8 << 20)], found
        assert "in use" in found.arrays[0].name
        """
    )
    assert done.returncode == 0, done.stderr
