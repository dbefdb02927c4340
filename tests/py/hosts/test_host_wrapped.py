"""A host's wrap_ptr inside a launch, when another thread waits for the memory that the launch uses."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import numpy as np
from flavours import Flavour
from support import MIB, wait_until

import tack_memory
from tack_memory.hosts import plugged


def test_a_pointer_wrapped_inside_a_launch_follows_memory_that_others_wait_for(host: ModuleType, flavour: Flavour) -> None:
    """The launch that waits marks what it wants to have spilled. That lies where it is until its own launch ends, and the wrapped pointer follows it then."""
    device = flavour.device()
    known = plugged(host.__name__)
    assert known is not None
    a, wanted = host.asarray(np.arange(6 * MIB // 8)), tack_memory.allocate(6 * MIB, device)
    wanted.spill()
    (mine,) = known.adapter.buffers_of(a) or ()
    reached: list[str] = []
    parts: list[Any] = []

    def launch_other() -> None:
        with tack_memory.launch(wanted):
            reached.append(mine.state)

    other = threading.Thread(target=launch_other)

    @host.kernel(writes="a")
    def wrap_part(a: np.ndarray) -> None:
        other.start()
        wait_until(lambda: mine.state == "spilling", "the other launch does not wait for this one")
        parts.append(host.wrap_ptr(a.ctypes.data + 800, 100, a.dtype))
        a += 1

    with tack_memory.memory_budget(8 * MIB, device, strict=True):
        wrap_part(a)
        other.join()
    assert reached == ["spilled"], "the launch used the memory to its end"
    (view,) = known.adapter.buffers_of(parts[0]) or ()
    assert isinstance(view, tack_memory.BufferView) and view.base is mine and view.offset == 800
    assert (parts[0].numpy() == np.arange(101, 201)).all()
