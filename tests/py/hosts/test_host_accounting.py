"""What a plugged-in host is told: exactly the bytes of its arrays, per device, whatever fails."""

from __future__ import annotations

import gc
import pickle
from types import ModuleType

import numpy as np
import pytest
from flavours import Flavour
from support import KIB, MIB, SoftDriver, settle

import tack_memory


def test_in_use_is_the_sum_of_the_arrays(host: ModuleType) -> None:
    arrays = []
    for length in (1, 7, 1000, 12345):
        for dtype in (np.uint8, np.int32, np.float64):
            arrays.append(host.empty((length, 3), dtype))
            assert host.memory_info().in_use == sum(array.nbytes for array in arrays)
    while arrays:
        arrays.pop(len(arrays) // 2)
        assert host.memory_info().in_use == sum(array.nbytes for array in arrays)


def test_views_are_not_counted_and_keep_the_memory(host: ModuleType) -> None:
    a = host.asarray(np.arange(24))
    view = a.reshape(4, 6)
    assert host.memory_info().in_use == a.nbytes
    del a
    assert host.memory_info().in_use == view.nbytes
    assert view[1].tolist() == [6, 7, 8, 9, 10, 11]


def test_size_zero_is_legal_everywhere(host: ModuleType) -> None:
    a, b = host.empty((0, 3)), host.full(0, 1.0)
    host.copyto(a, np.empty((0, 3)))
    host.copyto(b, host.zeros(0))
    assert a.numpy().shape == (0, 3)
    assert host.reduce_sum(a) == 0
    assert tack_memory.spill(a, b) == 0
    assert host.memory_info().in_use == 0


def test_peak_is_that_of_the_block(host: ModuleType) -> None:
    base = host.empty(1000, np.uint8)
    with host.memory_peak() as peak:
        for _ in range(3):
            temporary = host.empty(5000, np.uint8)
            del temporary
    assert (peak.bytes, peak.delta, peak.own) == (6000, 5000, 5000)
    assert base.nbytes == host.memory_info().in_use


def test_a_peak_decorator_at_the_top_of_a_module_needs_no_device(host: ModuleType, flavour: Flavour) -> None:
    found = []

    @host.memory_peak(on_exit=found.append)
    def work() -> None:
        host.empty(4096, np.uint8)

    work()
    with host.device(flavour.own(1)):
        work()
    assert [(one.device, one.own) for one in found] == [(flavour.device(0), 4096), (flavour.device(1), 4096)]


def test_every_way_to_name_a_device_agrees(host: ModuleType, flavour: Flavour) -> None:
    first_name, second_name = flavour.device(0), flavour.device(1)
    a = host.empty(1000, np.uint8)
    with host.device(flavour.own(1)) as second:
        b = host.empty(500, np.uint8)
        assert host.memory_info().device == tack_memory.memory_info().device == second_name
    for name in (None, flavour.own(0), first_name, a.device):
        assert (host.memory_info(name).device, host.memory_info(name).in_use) == (first_name, 1000)
    for name in (flavour.own(1), second_name, second, b.device):
        assert (host.memory_info(name).device, host.memory_info(name).in_use) == (second_name, 500)
    assert tack_memory.memory_info(second).in_use == 500
    with pytest.raises(ValueError, match="known devices"):
        host.memory_info("gpu:0")


def test_arrays_stand_for_their_buffers(host: ModuleType) -> None:
    a = host.asarray(np.arange(1000))
    assert tack_memory.spill(a) == a.nbytes
    assert host.memory_info().spilled == a.nbytes
    tack_memory.restore(a)
    with tack_memory.hold(a, reason="texture"):
        assert tack_memory.spill(a) == 0
        assert host.memory_report().holds == {"hold: texture": a.nbytes}
    tack_memory.label("mesh", a)
    assert [holder.label for holder in host.memory_report().holders] == ["mesh"]


@pytest.mark.parametrize("step", ["allocates", "fills"])
def test_an_allocation_that_fails_leaves_the_books(host: ModuleType, flavour: Flavour, soft: SoftDriver, step: str) -> None:
    host.synchronize()  # without pools the host frees late, and a test before this one may have left it some
    kept = host.empty(1000, np.uint8)
    live = soft.live()
    call = getattr(flavour, step)
    soft.fail(call, 1, flavour.invalid)  # nothing that spilling could mend
    with pytest.raises(host.DriverError, match=call):
        host.empty(5000, np.uint8)
    gc.collect()
    host.synchronize()
    settle()
    info = host.memory_info()
    assert (info.in_use, info.reserved, info.peak >= info.in_use) == (kept.nbytes, 0, True)
    assert soft.live() == live
    assert host.empty(5000, np.uint8).numpy().sum() == 0


def test_a_strict_budget_refuses_and_the_host_keeps_nothing(host: ModuleType, soft: SoftDriver) -> None:
    held = host.empty(60 * KIB, np.uint8)
    live = soft.live()
    with host.memory_budget(100 * KIB, strict=True), tack_memory.hold(held):
        with pytest.raises(host.DeviceMemoryError, match="budget") as caught:
            host.empty(60 * KIB, np.uint8)
        assert caught.value.reason == "budget"
        assert host.empty(40 * KIB, np.uint8).nbytes == 40 * KIB
    assert host.memory_info().in_use == held.nbytes
    settle()
    assert soft.live() == live


def test_the_error_is_the_hosts_and_ours_and_can_be_pickled(host: ModuleType, flavour: Flavour) -> None:
    with pytest.raises(host.DeviceMemoryError) as caught:
        host.empty(1 << 40, np.uint8)
    error = caught.value
    assert isinstance(error, tack_memory.DeviceMemoryError)
    assert isinstance(error, MemoryError)
    assert (error.device, error.requested, error.reason) == (flavour.device(), 1 << 40, "too_large")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, host.DeviceMemoryError)
    assert again.fields() == error.fields()
    assert host.empty(MIB, np.uint8).nbytes == MIB
