"""The hot read: what it returns, what it counts, and what other threads may do meanwhile."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest
from support import KIB, MIB, SoftDriver, contents, filled, pattern

import tack_memory
from tack_memory._native import _fast


def test_a_warm_read_returns_the_same_int_object(device: str) -> None:
    buffer = filled(MIB, device)
    assert buffer.device_ptr is buffer.device_ptr
    view = buffer.view(16, 100)
    assert view.device_ptr is view.device_ptr and view.device_ptr == buffer.device_ptr + 16


def test_a_buffer_that_moved_is_seen_everywhere(device: str) -> None:
    buffer = filled(MIB, device)
    view = buffer.view(100, 50)
    before = buffer.device_ptr, view.device_ptr
    buffer.spill()
    blocker = tack_memory.allocate(MIB, device)  # so that it cannot come back to the same place
    assert blocker.device_ptr != 0
    after = buffer.device_ptr, view.device_ptr
    assert after[0] != before[0]
    assert after[1] == after[0] + 100
    assert contents(buffer) == pattern(MIB)


def test_a_view_restores_its_base(device: str) -> None:
    buffer = filled(MIB, device)
    view = buffer.view(3, 7)
    buffer.spill()
    assert view.is_spilled and view.state == "spilled"
    assert view.device_ptr == buffer.device_ptr + 3
    assert not view.is_spilled


@pytest.mark.parametrize("how", ["device_ptr", "view", "host read", "host write", "launch pass", "launch", "hold"])
def test_each_kind_of_use_makes_a_buffer_the_youngest(device: str, how: str) -> None:
    old, young = filled(MIB, device), filled(MIB, device)
    view = old.view(0, 1)
    assert old.device_ptr == view.device_ptr  # from here on reads of both are warm
    assert young.device_ptr
    uses = {
        "device_ptr": lambda: old.device_ptr,
        "view": lambda: view.device_ptr,
        "host read": lambda: old.copy_to_host(nbytes=1),
        "host write": lambda: old.copy_from_host(b"\x01"),
        "launch pass": lambda: (_fast.enter_launch([old]), _fast.leave_launch([old])),
        "launch": lambda: tack_memory.launch(old).__enter__(),
        "hold": lambda: old.hold().__enter__(),
    }
    uses[how]()
    with tack_memory.memory_budget(3 * MIB, device):
        third, fourth = tack_memory.allocate(MIB, device), tack_memory.allocate(MIB, device)
        assert (old.is_spilled, young.is_spilled) == (False, True), "the one that was used is not the one to go"
        del third, fourth


def test_size_zero_has_address_zero_and_never_reaches_the_driver(steered: str, soft: SoftDriver) -> None:
    calls = soft.calls("*")
    buffer = tack_memory.allocate(0, steered)
    assert (buffer.device_ptr, buffer.nbytes, buffer.view(0, 0).device_ptr) == (0, 0, 0)
    assert buffer.copy_to_host() == b"" and buffer.spill() == 0
    buffer.copy_from_host(b"")
    buffer.fill(1)
    with tack_memory.launch(buffer) as pointers:
        assert pointers == (0,)
    buffer.free()
    assert soft.calls("*") == calls


def test_reads_of_a_freed_buffer_and_its_views(device: str) -> None:
    buffer = filled(KIB, device, label="gone")
    view = buffer.view(0, 10)
    buffer.free()
    buffer.free()
    for one in (buffer, view):
        with pytest.raises(ValueError, match="freed"):
            one.device_ptr  # noqa: B018
        assert one.state == "freed" and one.device == device and one.label == "gone" and one.holds == {} and not one.is_spilled
    other = filled(KIB, device, seed=2)  # has its record now
    with pytest.raises(ValueError, match="freed"):
        view.copy_to_host()
    assert contents(other) == pattern(KIB, 2)


def test_it_can_be_referred_to_weakly(device: str) -> None:
    buffer = filled(KIB, device)
    view = buffer.view(0, 1)
    died: list[str] = []
    kept = weakref.ref(buffer, lambda _: died.append("buffer")), weakref.ref(view, lambda _: died.append("view"))
    del buffer
    assert kept[0]() is not None, "the view keeps it"
    del view
    gc.collect()
    assert died == ["view", "buffer"] and kept[0]() is None


def test_it_has_no_attributes_of_its_own_and_no_other_ways_to_be_made(device: str) -> None:
    buffer = filled(KIB, device)
    with pytest.raises(AttributeError):
        buffer.anything = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        buffer.device_ptr = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        tack_memory.Buffer()
    with pytest.raises(TypeError):
        type("Mine", (tack_memory.Buffer,), {})


def test_a_free_while_another_thread_is_in_a_call_on_it_is_refused(steered: str, soft: SoftDriver) -> None:
    """Else the call, which names the buffer by its index, would work on whatever buffer gets that index next."""
    buffer = filled(16 * MIB, steered)
    soft.set("copy_mib_s", 1)  # as long as the test wants it to last
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(contents(buffer)))
    calls = soft.calls("*")
    reader.start()
    while soft.calls("*") == calls:
        time.sleep(0.001)
    with pytest.raises(BufferError, match="another thread is using it"):
        buffer.free()
    assert reader.is_alive()
    soft.set("copy_mib_s", 0)
    reader.join()
    assert read == [pattern(16 * MIB)] and contents(buffer) == pattern(16 * MIB)


def test_many_threads_read_while_one_spills(device: str) -> None:
    buffers = [filled(64 * KIB, device, seed) for seed in range(4)]
    stop = threading.Event()
    wrong: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                for buffer in buffers:
                    with buffer.hold("read") as pointer:
                        assert pointer == buffer.device_ptr
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        for buffer in buffers:
            buffer.spill()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [contents(buffer) for buffer in buffers] == [pattern(64 * KIB, seed) for seed in range(4)]
