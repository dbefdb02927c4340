"""What a host of the array generation hands out keeps its buffer in its place, with each view and copy of it, and no longer; and it is what the
host's users know: it can be pickled, for one."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import weakref
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arrayworlds import array_script, memory_at, numbers
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


def test_exported_memory_stays_while_its_user_has_it_and_no_longer(host: ModuleType) -> None:
    a = numbers(host)
    tack_memory.spill(a)
    exported = a._buffer.export_memory()
    assert host.memory_report().holds == {"export: export_memory": a.nbytes}
    assert tack_memory.spill(a) == 0
    host.synchronize()
    assert (memory_at(exported.pointer, 1000) == np.arange(1000)).all()
    del exported
    assert tack_memory.spill(a) == a.nbytes


def test_a_shared_address_is_good_for_as_long_as_the_buffer_lives(host: ModuleType) -> None:
    a = numbers(host)
    addresses = {a._buffer.share() for _ in range(3)}
    assert len(addresses) == 1
    assert (tack_memory.spill(a), host.memory_report().holds) == (0, {"export: share": a.nbytes})
    assert (memory_at(addresses.pop(), 1000) == np.arange(1000)).all()
    del a
    assert host.memory_info().in_use == 0


def test_an_array_may_be_dropped_before_its_exported_memory(host: ModuleType) -> None:
    a = numbers(host)
    exported = a._buffer.export_memory()
    del a
    gc.collect()
    assert host.memory_info().in_use == exported.nbytes
    assert (memory_at(exported.pointer, 1000) == np.arange(1000)).all()
    del exported
    assert host.memory_info().in_use == 0


class Slotted:
    """An object without attributes of its own, that can be told to be gone."""

    __slots__ = ("__weakref__",)


class Bare:
    """An object that nothing can be tied to."""

    __slots__ = ()


@pytest.mark.parametrize(("make", "ends"), [(Slotted, True), (Bare, False), (lambda: (1, 2), False), (lambda: None, False)])
def test_the_hold_ends_with_what_was_handed_out_if_that_can_be_told(host: ModuleType, make: Any, ends: bool) -> None:
    a = numbers(host)
    got = hander(lambda buffer: make(), "share")(a._buffer)
    assert tack_memory.spill(a) == 0
    assert not isinstance(got, Slotted) or weakref.getweakrefcount(got) == 1
    del got
    assert tack_memory.spill(a) == (a.nbytes if ends else 0)


def test_an_export_that_fails_holds_nothing(host: ModuleType) -> None:
    def fails(buffer: Any) -> None:
        raise ZeroDivisionError

    a = numbers(host)
    with pytest.raises(ZeroDivisionError):
        hander(fails, "share")(a._buffer)
    gc.collect()
    assert tack_memory.spill(a) == a.nbytes


def test_what_is_shared_for_good_stays_ours_until_it_ends(array_unplugged: ModuleType) -> None:
    """To give it back, its export would have to end first, and then it could move."""
    host = array_unplugged
    tack_memory.install(host)
    a, b = numbers(host), numbers(host)
    address, consumer = a._buffer.share(), np.from_dlpack(b)
    for _ in range(2):
        with pytest.raises(BufferError, match=r"1 arrays \(8000 bytes\) was handed out \(share\)"):
            tack_memory.uninstall(host)
    assert host.memory_report().holds == {"export: share": a.nbytes, "export: dlpack": b.nbytes}, "a refused uninstall loses no hold"
    assert (tack_memory.spill(a, b), a._buffer.device_ptr) == (0, address)
    assert (memory_at(address, 1000) == np.arange(1000)).all()
    del consumer
    with pytest.raises(BufferError):
        tack_memory.uninstall(host)
    del a
    tack_memory.uninstall(host)
    assert b[999] == 999


def test_vtk_without_a_copy(host: ModuleType) -> None:
    from arrayhost.interop.vtk import to_vtk

    a = numbers(host)
    shared, copied = to_vtk(a, copy=False), to_vtk(a)
    assert tack_memory.spill(a) == 0
    host.copyto(a, np.ones(1000))
    host.synchronize()
    assert shared.values().sum() == 1000 and copied.values().sum() == 499500
    values = shared.values()
    del shared
    assert tack_memory.spill(a) == 0  # VTK's user has them still
    del values
    assert tack_memory.spill(a) == a.nbytes
    assert copied.values()[999] == 999
