"""Arrays of the array generation that are older than install: whatever others may have the address of stays where it is, and says why."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tack_memory
from tack_memory.hosts import _array_seams


def test_memory_for_mpi_stays_the_hosts(array_unplugged: ModuleType) -> None:
    from arrayhost.lang.mpi import allocate_mpi_array

    host = array_unplugged
    a, other = allocate_mpi_array((1000,)), host.asarray(np.arange(10.0))
    host.copyto(a, np.arange(1000.0))
    address = a._buffer.device_ptr
    tack_memory.install(host)
    assert (host.memory_info().in_use, host.memory_report().holds) == (a.nbytes + other.nbytes, {"unmovable: mpi": a.nbytes})
    assert (tack_memory.spill(a, other), a._buffer.device_ptr) == (other.nbytes, address)
    assert host.reduce_sum(a) == 499500
    del a
    assert host.memory_info().footprint == other.nbytes
    kept = allocate_mpi_array((10,))
    tack_memory.uninstall(host)
    assert "_tack_memory" not in vars(kept._buffer) and other[9] == 9


def test_where_no_buffer_tells_what_is_for_mpi_everything_stays(array_unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import arrayhost.lang.mpi

    host = array_unplugged
    monkeypatch.setattr(_array_seams, "MPI_MARKS", {"_mpi": True})
    a, b = arrayhost.lang.mpi.allocate_mpi_array((1000,)), host.zeros(10)
    tack_memory.install(host)
    assert host.memory_report().holds == {"unmovable: older than install: may be for mpi": a.nbytes + b.nbytes}
    assert tack_memory.spill(a, b) == 0
    new = host.zeros(100)
    assert tack_memory.spill(new) == new.nbytes
    tack_memory.uninstall(host)
    monkeypatch.delattr(arrayhost.lang.mpi, "allocate_mpi_array")
    del a
    tack_memory.install(host)
    assert tack_memory.spill(b) == b.nbytes, "a host that has no memory for MPI"


def test_a_buffer_that_was_shared_stays(array_unplugged: ModuleType) -> None:
    host = array_unplugged
    a, b = host.asarray(np.arange(100.0)), host.zeros(10)
    address = a._buffer.share()
    tack_memory.install(host)
    assert host.memory_report().holds == {"unmovable: shared before install": a.nbytes}
    assert (tack_memory.spill(a, b), a._buffer.device_ptr) == (b.nbytes, address)
    tack_memory.uninstall(host)
    assert a._buffer.device_ptr == address and a[99] == 99


@pytest.mark.parametrize("how", ["a[i:j]", "part", "wrap_ptr"])
def test_views_follow_their_memory(array_unplugged: ModuleType, how: str) -> None:
    host = array_unplugged
    a = host.asarray(np.arange(1000.0))
    if how == "a[i:j]":
        view: Any = a[10:20]
    elif how == "part":
        view = host.array(a._buffer.part(80, a.dtype, (10,)), a.dtype, (10,))
    else:
        view = host.wrap_ptr(a._buffer.device_ptr + 80, 10, np.float64, owner=a)
    tack_memory.install(host)
    assert host.memory_info().in_use == a.nbytes
    assert tack_memory.spill(a) == a.nbytes
    other = host.asarray(np.arange(1000.0))  # takes the place on the device
    assert (view.numpy() == np.arange(10, 20)).all() and host.reduce_sum(view) == 145
    tack_memory.uninstall(host)
    assert (view.numpy() == np.arange(10, 20)).all() and other[5] == 5


def test_reductions_over_views_of_what_is_spilled(array_unplugged: ModuleType) -> None:
    host = array_unplugged
    tack_memory.install(host)
    a, b = host.asarray(np.arange(1000.0)), host.asarray(np.arange(1000.0) * 2)
    parts = [a[10:20], a[100:200][50:60], a.reshape(10, 100)[2:4], b[990:1000]]
    sums = [145, 1545, sum(range(200, 400)), 2 * sum(range(990, 1000))]
    with host.memory_budget(8008):  # one of them and a result
        for _ in range(3):
            for part, total in zip(parts, sums, strict=True):
                tack_memory.spill(a, b)
                assert host.reduce_sum(part) == total
                assert host.reduce_max(part) == part.numpy().max() and host.reduce_min(part) == part.numpy().min()
    assert host.memory_info().in_use + host.memory_info().spilled == a.nbytes + b.nbytes
