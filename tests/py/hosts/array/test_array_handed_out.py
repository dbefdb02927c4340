"""What is handed out keeps its buffer in its place with each view and copy of it, and is what the host's users know: it can be pickled, for one."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arrayworlds import array_script
from flavours import Flavour
from support import run_python

import tack_memory
from tack_memory.hosts._handed_out import hander


def bytes_of(buffer: Any) -> Any:
    """A buffer's memory as an object of ctypes."""
    return (ctypes.c_char * buffer._nbytes).from_address(buffer._device_ptr)


VIEWS = {
    "slice": lambda buffer: np.frombuffer(bytes_of(buffer), "f8"),
    "reshaped": lambda buffer: np.frombuffer(bytes_of(buffer), "f8").reshape(2, -1),
    "memoryview": lambda buffer: memoryview(bytes_of(buffer)).cast("B").cast("d"),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_of_it_keeps_the_buffer_in_its_place(host: ModuleType, kind: str) -> None:
    a = host.full(1000, 3)
    view = hander(VIEWS[kind], "share")(a._buffer)[1:]  # the object that share() returned is gone
    gc.collect()
    assert tack_memory.spill(a) == 0
    assert np.frombuffer(view, "f8")[-1] == 3
    del view
    gc.collect()
    assert tack_memory.spill(a) == a.nbytes


def test_it_can_be_pickled_and_copied(host: ModuleType) -> None:
    a = host.full(1000, 3)
    exported = a._buffer.export_memory()
    there = pickle.loads(pickle.dumps(exported))
    assert (there.pointer, there.nbytes) == (exported.pointer, exported.nbytes)
    twins = [copy.copy(exported), copy.deepcopy(exported)]
    del exported
    while twins:
        assert tack_memory.spill(a) == 0, "a copy has the address, too"
        twins.pop()
    assert tack_memory.spill(a) == a.nbytes


def test_one_object_over_two_buffers_holds_both(host: ModuleType) -> None:
    class Pool:
        pass

    pool, (a, b) = Pool(), (host.full(1000, n) for n in range(2))
    for one in (a, b):
        hander(lambda buffer, pool=pool: pool, "share")(one._buffer)
    assert tack_memory.spill(a, b) == 0
    del pool
    assert tack_memory.spill(a, b) == a.nbytes + b.nbytes


def test_uninstall_on_a_full_device_moves_nothing_that_was_handed_out(flavour: Flavour) -> None:
    script = """
        tack_memory.set_memory_budget(500_000, device)
        others = [ah.full(10_000, n) for n in range(2, 8)]
        a = ah.full(10_000, 1)
        address = a._buffer.share()
        for one in others[-5:]:
            one._buffer.device_ptr
        try:
            tack_memory.uninstall(ah)
        except BufferError:
            pass
        assert (memory_at(address, "f8", 10_000) == 1).all()
        del a
        tack_memory.uninstall(ah)
        assert [one[5] for one in others] == list(range(2, 8))
        print("right")
    """
    done = run_python(array_script(flavour, script))
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
