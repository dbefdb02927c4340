"""Where buffers come from: origins of the calling line, labels of arguments and of threads."""

from __future__ import annotations

import inspect
import sys
import threading

import pytest
from support import KIB

import tack_memory
from tack_memory._native import PACKAGE_FOLDER, _fast


def test_origins_are_the_callers_line_outside_of_this_package(any_device: str) -> None:
    assert _fast.set_origins("line") == "off"
    try:
        buffers = []
        for _ in range(3):
            buffers.append(tack_memory.allocate(1, any_device))
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
        assert {buffer.origin for buffer in buffers} == {f"{__file__}:{line}"}
        assert buffers[0].view(0, 1).origin == buffers[0].origin
        space = {"tack_memory": tack_memory, "device": any_device}
        exec(compile("made = tack_memory.allocate(1, device)", f"{PACKAGE_FOLDER}inside.py", "exec"), space)
        assert space["made"].origin.startswith(__file__), "frames of this package are passed over"
    finally:
        assert _fast.set_origins("off") == "line"
    assert tack_memory.allocate(1, any_device).origin is None
    with pytest.raises(ValueError, match="stack"):
        _fast.set_origins("all")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _fast.set_origins(1)  # type: ignore[arg-type]


def test_a_threads_label_is_its_own(any_device: str) -> None:
    with tack_memory.label("mine"):
        seen: list[str | None] = []

        def theirs() -> None:
            seen.append(tack_memory.allocate(1, any_device).label)
            with tack_memory.label("theirs"):
                seen.append(tack_memory.allocate(1, any_device).label)

        thread = threading.Thread(target=theirs)
        thread.start()
        thread.join()
        assert seen == [None, "theirs"]
        assert tack_memory.allocate(1, any_device).label == "mine"
        assert tack_memory.allocate(1, any_device, label="given").label == "given"
    assert tack_memory.allocate(1, any_device).label is None


def test_a_label_block_can_be_entered_again_inside_itself(any_device: str) -> None:
    block = tack_memory.label("outer")
    with block, tack_memory.label(None):
        assert tack_memory.allocate(1, any_device).label is None
        with block:
            assert tack_memory.allocate(1, any_device).label == "outer"
        assert tack_memory.allocate(1, any_device).label is None
    assert tack_memory.allocate(1, any_device).label is None
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)
    with pytest.raises(TypeError):
        _fast.labelled(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="4096"):
        tack_memory.label("x" * 5000)


def test_ctrl_c_at_any_moment_leaves_no_label(any_device: str) -> None:
    """Python looks for signals when it enters a function of its own and when a built-in one has returned: one comes at each of these places in turn."""

    def work() -> None:
        with tack_memory.label("left behind"):
            tack_memory.allocate(1, any_device)

    def interrupt(frame: object, event: str, what: object) -> None:
        nonlocal left
        left -= event in ("call", "c_return")
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    work()
    for place in range(1, 200):
        left = place
        sys.setprofile(interrupt)
        try:
            work()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert tack_memory.allocate(1, any_device).label is None, f"at place {place}"
        if left > 0:
            break
    else:
        raise AssertionError("it never came to its end")


def test_a_label_can_be_changed_and_is_checked(any_device: str) -> None:
    buffer = tack_memory.allocate(KIB, any_device, label="before")
    buffer.view(0, 1).label = "after"
    assert buffer.label == "after"
    with pytest.raises(TypeError):
        buffer.label = 1  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        del buffer.label
    with pytest.raises(ValueError, match="4096"):
        buffer.label = "x" * 5000
    assert buffer.label == "after"
    buffer.label = None
    assert buffer.label is None
