"""Memory that a host framework allocates and frees by itself: it is counted, and nothing else."""

from __future__ import annotations

import ctypes

import pytest

import tack_memory
from tack_memory import memory_info
from tack_memory._native import _fast

NBYTES = 1 << 20


def test_it_is_counted_while_the_buffer_lives_and_never_freed() -> None:
    memory = ctypes.create_string_buffer(b"the host's own", NBYTES)
    before = memory_info("cpu")
    with tack_memory.memory_peak("cpu") as peak:
        buffer = tack_memory.adopt(ctypes.addressof(memory), NBYTES, "cpu", how="host", label="array")
        during = memory_info("cpu")
        assert (during.in_use, during.spilled) == (before.in_use + NBYTES, 0)
        assert buffer.device_ptr == ctypes.addressof(memory) and buffer.state == "resident"
        assert bytes(buffer.copy_to_host(nbytes=14)) == b"the host's own"
        buffer.copy_from_host(b"THE", offset=0)
        assert buffer.spill() == 0
        buffer.free()
    assert peak.delta == NBYTES
    assert memory_info("cpu").in_use == before.in_use
    assert memory.value == b"THE host's own", "whoever allocated it still has it"


def test_what_is_counted_already_is_not_counted_again() -> None:
    memory = ctypes.create_string_buffer(NBYTES)
    buffer = tack_memory.adopt(ctypes.addressof(memory), NBYTES, "cpu", how="host")
    before = memory_info("cpu")
    with pytest.raises(ValueError, match="overlap"):
        tack_memory.adopt(ctypes.addressof(memory) + 10, 10, "cpu", how="host")
    assert memory_info("cpu") == before
    view = tack_memory.wrap(ctypes.addressof(memory) + 10, 10, "cpu", memory)
    assert view.base is buffer
    buffer.free()


def test_a_device_that_spills_takes_what_never_moves() -> None:
    before = memory_info("sim:0")
    pointer = _fast.disown(tack_memory.allocate(NBYTES, "sim:0"))  # somebody else's now
    with pytest.raises(ValueError, match="movable=False"):
        tack_memory.adopt(pointer, NBYTES, "sim:0", how="host")
    assert memory_info("sim:0").in_use == before.in_use
    buffer = tack_memory.adopt(pointer, NBYTES, "sim:0", how="host", movable=False, reason="exportable")
    assert memory_info("sim:0").in_use == before.in_use + NBYTES
    assert buffer.spill() == 0 and buffer.holds == {"unmovable: exportable": 1}
    buffer.copy_from_host(b"mine")
    buffer.free()
    assert memory_info("sim:0").in_use == before.in_use
    again = tack_memory.adopt(pointer, NBYTES, "sim:0", how="cuMemAllocAsync")  # it was not freed: whoever has it still can
    assert bytes(again.copy_to_host(nbytes=4)) == b"mine"
