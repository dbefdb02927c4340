"""Tensors of other libraries, imported by the host's own DLPack import: they are the producer's, so they are never counted and never spilled, whatever
happens to the memory around them."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fieldkernels import over_arrays, over_indexes
from support import SoftDriver, settle
from worlds import Vendor

import tack_memory
from tack_memory.hosts import plugged

SIZE = 1000
NBYTES = 8 * SIZE


def has_memory_of_ours(host: ModuleType, field: Any) -> bool:
    known = plugged(host.__name__)
    assert known is not None
    return bool(known.adapter.buffers_of(field))


def test_on_the_cpu_it_is_not_counted(counted: ModuleType) -> None:
    _, shift = over_indexes(counted)
    before = counted.memory_info().in_use
    theirs = np.arange(float(SIZE))
    field = counted.from_dlpack(theirs)
    assert (counted.memory_info().in_use, tack_memory.spill(field)) == (before, 0)
    own = counted.full(counted.f64, (SIZE,), 0)
    assert counted.memory_info().in_use == before + NBYTES  # ours is
    shift(field, 1.0, SIZE)
    assert (theirs == np.arange(1.0, SIZE + 1)).all()
    del own, field
    assert counted.memory_info().in_use == before


def test_on_a_simulated_device_it_stays_where_it_is(simulated: ModuleType) -> None:
    """With budget 0, under which all other memory goes after each launch."""
    host = simulated
    axpy, shift = over_indexes(host)
    own, out = host.full(host.f64, (SIZE,), 3), host.zeros(host.f64, (SIZE,))
    tack_memory.spill(own, out)
    before = host.memory_info()
    theirs = np.arange(float(SIZE))
    address = theirs.ctypes.data
    field = host.from_dlpack(theirs)
    after = host.memory_info()
    assert (after.in_use, after.footprint) == (before.in_use, before.footprint)
    assert not has_memory_of_ours(host, field) and tack_memory.spill(field) == 0
    axpy(field, own, out, 2.0, SIZE)
    moved = host.memory_info()
    assert has_memory_of_ours(host, own) and (moved.in_use, moved.spilled) == (0, 2 * NBYTES)
    assert moved.restore_count > before.restore_count, "its neighbours in the launch were not moved"
    assert field._buffer._data.ctypes.data == address
    assert (field.to_numpy() == np.arange(float(SIZE))).all()
    assert (out.to_numpy() == 2 * np.arange(float(SIZE)) + 3).all()
    shift(field, 1.0, SIZE)
    assert (theirs == np.arange(1.0, SIZE + 1)).all(), "they share the memory"


def test_it_keeps_its_producer_alive_and_no_longer(simulated: ModuleType) -> None:
    host = simulated
    theirs = np.arange(float(SIZE))
    gone = weakref.ref(theirs)
    field = host.from_dlpack(theirs)
    del theirs
    other = host.full(host.f64, (SIZE,), 7)
    tack_memory.spill(other, field)
    gc.collect()
    assert gone() is not None and (field.to_numpy() == np.arange(float(SIZE))).all()
    del field
    gc.collect()
    assert gone() is None
    assert (other.to_numpy() == 7).all()


@pytest.fixture
def their_address(gpu: ModuleType, vendor: Vendor) -> Iterator[int]:
    """Memory of the device that another library has from the driver: neither the host nor we have made it."""
    backend = gpu.get_backend()
    driver, module = backend.driver, sys.modules[type(backend).__module__]
    if vendor.arch == "level_zero":
        description = module._described(module._DEVICE_MEMORY)
        code, address = driver.get(vendor.allocates, backend._context, description, ctypes.c_size_t(NBYTES), ctypes.c_size_t(0), backend._device)
        frees: tuple[Any, ...] = ("zeMemFree", backend._context, address)
    else:
        if vendor.arch == "cuda":
            driver("cuCtxSetCurrent", backend._context)
        code, address = driver.get(vendor.allocates, after=(NBYTES,))
        frees = ({"cuda": "cuMemFree_v2", "hip": "hipFree"}[vendor.arch], address)
    assert code == 0
    yield address
    if vendor.arch == "cuda":
        driver("cuCtxSetCurrent", backend._context)
    assert driver(*frees) == 0, "it is theirs to free, and was not freed before"


def test_device_memory_of_another_producer_stays_where_it_is(gpu: ModuleType, soft: SoftDriver, their_address: int) -> None:
    axpy, shift = over_arrays(gpu)
    theirs = np.frombuffer((ctypes.c_char * NBYTES).from_address(their_address), np.float64)  # the software drivers' memory can be read by the host, too
    theirs[:] = np.arange(float(SIZE))
    live, before = soft.get("live"), gpu.memory_info()
    field = gpu.from_dlpack(theirs)
    assert gpu.memory_info().in_use == before.in_use and soft.get("live") == live
    assert not has_memory_of_ours(gpu, field) and tack_memory.spill(field) == 0
    own, out = gpu.full(gpu.f64, SIZE, 3), gpu.zeros(gpu.f64, SIZE)
    with gpu.memory_budget(1):
        tack_memory.spill(own, out)
        assert gpu.memory_info().spilled == 2 * NBYTES
        axpy(field, own, out, 2.0)
        tack_memory.spill(own, out)
        moved = gpu.memory_info()
        assert moved.spilled == 2 * NBYTES and moved.restore_count > before.restore_count, "its neighbours in the launch were not moved"
        assert field._buffer.address == their_address
        assert (field.to_numpy() == np.arange(float(SIZE))).all()
        assert (out.to_numpy() == 2 * np.arange(float(SIZE)) + 3).all()
    shift(field, 1.0)
    gpu.get_backend()._cache.clear()  # the buffers for scalars go with the kernels
    assert (field.to_numpy() == np.arange(1.0, SIZE + 1)).all()
    del field, own, out
    settle()
    assert (theirs == np.arange(1.0, SIZE + 1)).all() and soft.get("live") <= live
