"""Memory that a host hands out, or that somebody else owns: it stays where it is for as long as it must, and no longer."""

from __future__ import annotations

import gc
from types import ModuleType

import numpy as np
import pytest
from support import MIB, SoftDriver, settle

import tack_memory


def test_an_export_holds_while_its_consumer_lives_and_no_longer(host: ModuleType) -> None:
    a = host.asarray(np.arange(1000.0))
    consumer = np.from_dlpack(a)  # on simulated devices NumPy can read device memory
    pointer = a._buffer.device_ptr
    assert tack_memory.spill(a) == 0
    assert host.memory_report().holds == {"export: dlpack": a.nbytes}
    view = consumer.reshape(10, 100)
    del consumer
    assert tack_memory.spill(a) == 0  # the view keeps the consumer's memory
    assert view.ctypes.data == pointer
    del view
    assert tack_memory.spill(a) == a.nbytes
    assert (a.numpy() == np.arange(1000.0)).all()


def test_the_last_of_several_consumers_ends_it(host: ModuleType) -> None:
    a = host.asarray(np.arange(10))
    first, second = np.from_dlpack(a), np.from_dlpack(a)
    del first
    assert tack_memory.spill(a) == 0
    del second
    assert tack_memory.spill(a) == a.nbytes


def test_a_capsule_that_nobody_consumes_ends_with_itself(host: ModuleType) -> None:
    a = host.asarray(np.arange(10))
    capsule = a.__dlpack__()
    assert tack_memory.spill(a) == 0
    del capsule
    assert tack_memory.spill(a) == a.nbytes


def test_an_export_of_a_spilled_array_brings_it_back(host: ModuleType) -> None:
    a = host.asarray(np.arange(10))
    tack_memory.spill(a)
    consumer = np.from_dlpack(a)
    assert host.memory_info().spilled == 0
    assert (consumer == np.arange(10)).all()


def test_an_array_that_is_exported_shares_its_memory_whatever_its_copies_do(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's `__copy__` may make a copy of the contents, as NumPy's does."""
    monkeypatch.setattr(host.array, "__copy__", lambda a: host.asarray(a.numpy()), raising=False)
    a = host.asarray(np.arange(10))
    consumer = np.from_dlpack(a)
    host.copyto(a, np.full(10, 7))
    assert a.numpy().tolist() == [7] * 10  # waits for the device
    assert consumer.tolist() == [7] * 10 and tack_memory.spill(a) == 0


def test_uninstall_says_who_has_what_it_needs(host: ModuleType) -> None:
    a = host.asarray(np.arange(1000.0))
    consumer = np.from_dlpack(a)
    with pytest.raises(BufferError, match=r"^cannot uninstall: an array of 8000 bytes on .* is in use \(export: dlpack\); drop what .* try again$"):
        tack_memory.uninstall(host)
    del consumer
    with tack_memory.hold(a), pytest.raises(BufferError, match=r"^cannot uninstall: .* \(hold\)"):
        tack_memory.uninstall(host)
    tack_memory.uninstall(host)
    assert a[999] == 999
    tack_memory.install(host)


def test_a_failed_export_holds_nothing(host: ModuleType) -> None:
    a = host.zeros(10, np.dtype("M8[s]"))  # a type that DLPack has not
    with pytest.raises(KeyError):
        a.__dlpack__()
    gc.collect()
    assert tack_memory.spill(a) == a.nbytes


def test_importing_our_own_memory_counts_it_once(host: ModuleType) -> None:
    a = host.asarray(np.arange(1000))
    exported = np.from_dlpack(a)
    b = host.wrap_ptr(exported.ctypes.data, a.shape, a.dtype, owner=exported)  # as a host's own import does
    assert host.memory_info().in_use == a.nbytes
    host.copyto(b, np.arange(1000) * 2)
    assert (a.numpy() == np.arange(1000) * 2).all()


def test_a_wrapped_pointer_of_ours_follows_its_memory(host: ModuleType) -> None:
    @host.kernel(writes="out")
    def double(a: np.ndarray, out: np.ndarray) -> None:
        out[:] = 2 * a

    a = host.asarray(np.arange(1000.0))
    part = host.wrap_ptr(a._buffer.device_ptr + 800, 100, np.float64, owner=a)
    assert host.memory_info().in_use == a.nbytes
    tack_memory.spill(a)
    assert part[0] == 100.0
    host.copyto(part, np.full(100, -1.0))
    assert host.memory_info().in_use == 0  # the host read and wrote the spilled copy
    out = host.empty(100)
    double(part, out)
    assert (out.numpy() == -2.0).all()
    assert (a.numpy()[95:105] == [95, 96, 97, 98, 99, -1, -1, -1, -1, -1]).all()


def test_somebody_elses_memory_is_never_counted_and_never_moved(host: ModuleType, soft: SoftDriver) -> None:
    backend = host.current_backend()
    pointer = backend.allocate(MIB)  # not through an array
    live = soft.live()
    foreign = host.wrap_ptr(pointer, MIB, np.uint8)
    host.copyto(foreign, np.full(MIB, 7, np.uint8))
    assert host.memory_info().in_use == 0
    assert tack_memory.spill(foreign) == 0
    with host.memory_budget(1000):
        assert (foreign.numpy() == 7).all()
        assert host.reduce_sum(foreign) == 7 * MIB
        assert foreign._buffer.device_ptr == pointer
    del foreign
    settle()
    assert soft.live() == live
    backend.free(pointer)
    host.synchronize()


def test_a_dropped_array_ends_when_its_consumer_does(host: ModuleType) -> None:
    a = host.asarray(np.arange(1000))
    consumer = np.from_dlpack(a)
    nbytes = a.nbytes
    del a
    assert host.memory_info().in_use == nbytes
    assert consumer[999] == 999
    del consumer
    assert host.memory_info().in_use == 0
