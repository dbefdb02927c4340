"""A host's wrap_ptr inside a launch of the simulated CPU backend, when another thread waits for the memory that the launch uses."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import pytest
from fieldkernels import over_indexes as kernels
from support import MIB, wait_until

import tack_memory
from tack_memory.hosts import plugged


def test_a_pointer_wrapped_inside_a_launch_follows_memory_that_others_wait_for(simulated: ModuleType, simulated_device: str) -> None:
    if simulated.__name__ != "fieldhost":
        pytest.skip("needs a launch that waits for another thread, and Tack's compiled kernels call no code of their arguments; fieldhost shows it")
    known = plugged(simulated.__name__)
    assert known is not None
    _, shift = kernels(simulated)
    nbytes = 6 * MIB
    wrapped: list[Any] = []
    reached: list[str] = []
    with tack_memory.memory_budget(8 * MIB, simulated_device, strict=True):
        field, wanted = simulated.full(simulated.f64, (nbytes // 8,), 1), tack_memory.allocate(nbytes, simulated_device)
        wanted.spill()
        (mine,) = known.adapter.buffers_of(field) or ()

        def launch_other() -> None:
            with tack_memory.launch(wanted):
                reached.append(mine.state)

        other = threading.Thread(target=launch_other)

        class Wrapping:
            """An argument whose use by the kernel wraps a part of the memory that the launch holds."""

            def __radd__(self, number: Any) -> Any:
                other.start()
                wait_until(lambda: mine.state == "spilling", "the other launch does not wait for this one")
                wrapped.append(simulated.field_from_ptr(field._buffer._data.ctypes.data + 80, simulated.f64, (10,)))
                return number + 1

        shift(field, Wrapping(), 1)
        other.join()
        assert reached == ["spilled"], "the launch used the memory to its end"
        (view,) = known.adapter.buffers_of(wrapped[0]) or ()
        assert isinstance(view, tack_memory.BufferView) and view.base is mine and view.offset == 80
        field.fill(5)
        assert (wrapped[0].to_numpy() == 5).all()
