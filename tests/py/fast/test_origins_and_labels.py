"""Where buffers come from: origins of the calling line, labels of arguments and of threads."""

from __future__ import annotations

import inspect
import threading

import pytest
from support import KIB

import tack_memory
from tack_memory._native import _fast


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
        exec(compile("made = tack_memory.allocate(1, device)", "/somewhere/tack_memory/inside.py", "exec"), space)
        assert space["made"].origin.startswith(__file__), "frames of this package are passed over"
    finally:
        assert _fast.set_origins("off") == "line"
    assert tack_memory.allocate(1, any_device).origin is None
    with pytest.raises(ValueError, match="stack"):
        _fast.set_origins("stack")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _fast.set_origins(1)  # type: ignore[arg-type]


def test_a_threads_label_is_its_own(any_device: str) -> None:
    assert _fast.set_label("mine") is None
    seen: list[str | None] = []
    thread = threading.Thread(target=lambda: seen.extend([_fast.set_label("theirs"), tack_memory.allocate(1, any_device).label]))
    thread.start()
    thread.join()
    assert seen == [None, "theirs"]
    assert tack_memory.allocate(1, any_device).label == "mine"
    assert tack_memory.allocate(1, any_device, label="given").label == "given"
    assert _fast.set_label(None) == "mine"
    assert tack_memory.allocate(1, any_device).label is None


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
