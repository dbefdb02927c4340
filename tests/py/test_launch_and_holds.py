"""Launches, holds and exports: what keeps a buffer on its device, for how long, and that it always ends."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import numpy
import pytest
from support import KIB, MIB, REAL, contents, filled, how_of, pattern

import tack_memory
from tack_memory import DeviceMemoryError, allocate, launch, memory_info
from tack_memory._native import _fast


def write(pointer: int, data: bytes) -> None:
    """A kernel: it writes to the device's memory (which the host can do on sim)."""
    ctypes.memmove(pointer, data, len(data))


def read(pointer: int, nbytes: int) -> bytes:
    return ctypes.string_at(pointer, nbytes)


# ---- launches


def test_a_launch_makes_all_resident_in_one_pass_and_gives_their_pointers(device: str) -> None:
    buffers = [filled(KIB, device, seed) for seed in range(5)]
    tack_memory.spill(*buffers[1:3])
    with launch(*buffers) as pointers:
        assert type(pointers) is tuple and pointers == tuple(buffer.device_ptr for buffer in buffers)
        assert not any(buffer.is_spilled for buffer in buffers)
        assert [buffer.spill() for buffer in buffers] == [0] * 5, "held until the block ends"
    assert [buffer.spill() for buffer in buffers] == [KIB] * 5
    assert [contents(buffer) for buffer in buffers] == [pattern(KIB, seed) for seed in range(5)]


def test_an_empty_launch(device: str) -> None:
    with launch() as pointers:
        assert pointers == ()


def test_the_same_buffer_twice_and_its_views(device: str) -> None:
    buffer = filled(KIB, device)
    view = buffer.view(10, 20)
    buffer.spill()
    with launch(buffer, view, buffer) as pointers:
        assert pointers == (buffer.device_ptr, buffer.device_ptr + 10, buffer.device_ptr)
        assert buffer.spill() == 0
    assert buffer.spill() == KIB


def test_arrays_of_a_launch_are_never_victims(device: str, budget: int) -> None:
    held = [filled(MIB, device, seed) for seed in range(4)]
    others = [filled(MIB, device, seed + 10) for seed in range(4)]
    with launch(*held) as pointers:
        more = [allocate(MIB, device) for _ in range(4)]
        assert [buffer.is_spilled for buffer in held] == [False] * 4 and [buffer.is_spilled for buffer in others] == [True] * 4
        assert tuple(buffer.device_ptr for buffer in held) == pointers
    assert memory_info(device).in_use <= budget and len(more) == 4


def test_holds_of_a_launch_end_by_an_exception_too(device: str) -> None:
    buffer = filled(KIB, device)
    with pytest.raises(KeyError), launch(buffer):
        raise KeyError
    assert buffer.spill() == KIB


def test_a_launch_that_does_not_fit_holds_nothing(device: str) -> None:
    total = memory_info(device).device_total or 0
    first, second = allocate(total * 6 // 10, device, zero=False), allocate(KIB, device)
    with first.hold("kept"):
        third = allocate(KIB, device)
        third.spill()
        block = allocate(total * 3 // 10, device, zero=False)
        fourth = allocate(KIB, device)
        fourth.spill()
    block.spill()
    first.spill()
    with pytest.raises(DeviceMemoryError), launch(second, first, block, allocate(total * 2 // 10, device, zero=False)):
        pass
    assert second.holds == first.holds == block.holds == {}
    with launch(first):
        pass


def test_launches_may_be_nested(device: str) -> None:
    outer, inner = filled(KIB, device, 1), filled(KIB, device, 2)
    inner.spill()
    with launch(outer) as (pointer,), launch(outer, inner):
        assert outer.spill() == 0 and outer.device_ptr == pointer
    assert outer.spill() == KIB and inner.spill() == KIB


def test_leaving_a_launch_that_was_not_entered_is_an_error(device: str) -> None:
    buffer = filled(KIB, device)
    block = launch(buffer)
    with pytest.raises(RuntimeError):
        block.__exit__(None, None, None)
    with block, pytest.raises(RuntimeError):
        block.__enter__()
    with pytest.raises(RuntimeError):
        block.__exit__(None, None, None)
    assert buffer.spill() == KIB


def test_a_launch_that_is_dropped_lets_go(device: str) -> None:
    buffer = filled(KIB, device)
    launch(buffer).__enter__()
    gc.collect()
    assert buffer.spill() == KIB


def test_a_spill_right_after_a_launch_has_its_result(steered: str, soft: Any) -> None:
    """Queued work is waited for, and memory is released in the order of the stream."""
    source, target = filled(MIB, steered, 2), allocate(MIB, steered)
    soft.set("delay_us", 20_000)
    with launch(source, target):
        target.copy_from(source)  # asynchronous work on the device's stream
    assert target.spill() == MIB
    assert contents(target) == pattern(MIB, 2)


def test_a_kernel_that_writes_through_its_pointers(steered: str, soft: Any) -> None:
    buffers = [filled(KIB, steered, seed) for seed in range(3)]
    tack_memory.spill(*buffers)
    with launch(*buffers) as pointers:
        tack_memory.synchronize(steered)
        for place, pointer in enumerate(pointers):
            assert read(pointer, KIB) == pattern(KIB, place)
            write(pointer, pattern(KIB, place + 10))
    tack_memory.spill(*buffers)
    assert [contents(buffer) for buffer in buffers] == [pattern(KIB, place + 10) for place in range(3)]


def test_two_threads_whose_launches_each_need_the_whole_budget_both_end(device: str) -> None:
    buffers = {name: [filled(MIB, device, seed) for seed in range(4)] for name in "ab"}
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for _ in range(50):
                with launch(*buffers[name]):
                    pass
        except BaseException as error:
            failures.append(error)

    with tack_memory.memory_budget(4 * MIB, device, strict=True):
        threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads) and failures == []
        assert memory_info(device).peak >= 4 * MIB
    for name in "ab":
        assert [contents(buffer) for buffer in buffers[name]] == [pattern(MIB, seed) for seed in range(4)]


# ---- holds


def test_holds_are_counted_and_reports_show_their_reason(device: str) -> None:
    buffer = filled(KIB, device)
    buffer.spill()
    with buffer.hold("texture") as pointer:
        assert pointer == buffer.device_ptr and not buffer.is_spilled
        with buffer.hold("texture"), buffer.hold("MPI"):
            assert buffer.holds == {"hold: texture": 2, "hold: MPI": 1} and buffer.spill() == 0
            assert sum(tack_memory.memory_report(device).holds.values()) == KIB, "bytes are counted once"
        assert buffer.holds == {"hold: texture": 1}
    assert buffer.holds == {} and buffer.spill() == KIB


def test_a_hold_that_is_left_twice_or_not_entered_is_an_error(device: str) -> None:
    buffer = filled(KIB, device)
    hold = buffer.hold("once")
    with pytest.raises(RuntimeError):
        hold.__exit__(None, None, None)
    with hold, pytest.raises(RuntimeError):
        hold.__enter__()
    with pytest.raises(RuntimeError):
        hold.__exit__(None, None, None)
    assert buffer.holds == {}


def test_a_hold_may_end_in_another_thread(device: str) -> None:
    buffer = filled(KIB, device)
    hold = buffer.hold("elsewhere")
    hold.__enter__()
    thread = threading.Thread(target=hold.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert buffer.holds == {} and buffer.spill() == KIB


def test_a_hold_that_is_dropped_ends(device: str) -> None:
    buffer = filled(KIB, device)
    buffer.hold("dropped").__enter__()
    gc.collect()
    assert buffer.holds == {} and buffer.spill() == KIB


# ---- exports


def test_an_export_keeps_the_buffer_on_the_device_and_no_longer(device: str) -> None:
    buffer = filled(KIB, device)
    buffer.spill()
    exported = buffer.export("dlpack")
    assert not buffer.is_spilled and exported.device_ptr == buffer.device_ptr and exported.nbytes == KIB
    assert exported.buffer is buffer and buffer.spill() == 0 and buffer.holds == {"export: dlpack": 1}
    with tack_memory.memory_budget(1, device):
        assert not buffer.is_spilled
    del exported
    gc.collect()
    assert buffer.holds == {} and buffer.spill() == KIB


def test_an_export_can_be_closed_early_and_more_than_once(device: str) -> None:
    buffer = filled(KIB, device)
    exported = buffer.export("interface")
    exported.close()
    exported.close()
    assert buffer.spill() == KIB
    with pytest.raises(ValueError):
        exported.device_ptr  # noqa: B018
    with pytest.raises(ValueError):
        exported.__dlpack__()


def test_an_export_keeps_its_buffer_alive(device: str) -> None:
    exported = filled(KIB, device).export("dlpack")
    gc.collect()
    assert memory_info(device).in_use == KIB and contents(exported.buffer) == pattern(KIB)
    del exported
    gc.collect()
    assert memory_info(device).in_use == 0


@pytest.mark.parametrize("where", ["sim:0", "cpu"])
def test_numpy_reads_and_writes_an_export_in_place(where: str) -> None:
    buffer = filled(KIB, where)
    view = buffer.view(100, 50)
    for exported, offset, nbytes in ((buffer.export("dlpack"), 0, KIB), (view.export("dlpack"), 100, 50)):
        array = numpy.from_dlpack(exported)
        assert (array.dtype, array.shape, array.tobytes()) == (numpy.dtype("u1"), (nbytes,), pattern(KIB)[offset : offset + nbytes])
        assert array.ctypes.data == exported.device_ptr
    assert exported.__dlpack_device__() == (1, 0)


def test_an_export_lives_in_what_it_was_given_to() -> None:
    buffer = filled(KIB, "sim:0")
    array = numpy.from_dlpack(buffer.export("dlpack"))
    gc.collect()
    assert buffer.spill() == 0, "NumPy's array lives"
    part = array[10:20]
    del array
    gc.collect()
    assert buffer.spill() == 0, "a part of it lives"
    assert part.tobytes() == pattern(KIB)[10:20]
    del part
    gc.collect()
    assert buffer.holds == {} and buffer.spill() == KIB


def test_a_capsule_that_nobody_takes_lets_go_when_it_dies() -> None:
    buffer = filled(KIB, "sim:0")
    exported: Any = buffer.export("dlpack")
    capsule = exported.__dlpack__()
    del exported
    gc.collect()
    assert buffer.spill() == 0
    del capsule
    gc.collect()
    assert buffer.holds == {} and buffer.spill() == KIB


def test_copying_exports_leave_the_buffer_spillable(device: str) -> None:
    buffer = filled(KIB, device)
    copies = [buffer.copy_to_host(), bytes(buffer.copy_to_host()), numpy.frombuffer(buffer.copy_to_host(), dtype="u1").copy()]
    assert buffer.holds == {} and buffer.spill() == KIB and len(copies) == 3


def test_reading_from_the_host_does_not_spill(device: str) -> None:
    buffer = filled(KIB, device)
    before = memory_info(device).spilled_bytes
    buffer.copy_to_host()
    assert not buffer.is_spilled and memory_info(device).spilled_bytes == before


# ---- memory that others allocated


def host_allocation(device: str, nbytes: int) -> tuple[int, Any]:
    """Memory as a framework allocates it by itself, with the driver's own call, in the device's context."""
    buffer = allocate(nbytes, device, zero=False)
    buffer.copy_from_host(pattern(nbytes, 5))
    return _fast.disown(buffer), buffer


@pytest.fixture
def how(device: str) -> str:
    return how_of(device)


def test_adopted_memory_is_counted_moved_and_freed(device: str, how: str) -> None:
    pointer, _ = host_allocation(device, MIB)
    before = memory_info(device)
    buffer = tack_memory.adopt(pointer, MIB, device, how=how, label="theirs")
    assert (buffer.device_ptr, buffer.nbytes, buffer.label) == (pointer, MIB, "theirs")
    assert memory_info(device).in_use == before.in_use + MIB
    assert buffer.spill() == MIB and contents(buffer) == pattern(MIB, 5)
    buffer.restore()
    assert contents(buffer) == pattern(MIB, 5)
    buffer.free()
    assert memory_info(device).in_use == before.in_use


def test_adopting_what_is_owned_or_overlaps_is_refused(device: str, how: str) -> None:
    buffer = filled(MIB, device)
    for pointer, nbytes in ((buffer.device_ptr, MIB), (buffer.device_ptr + 1, 10), (buffer.device_ptr - 1, 10), (buffer.device_ptr + MIB - 1, 2)):
        with pytest.raises(ValueError):
            tack_memory.adopt(pointer, nbytes, device, how=how)
    assert memory_info(device).in_use == MIB and contents(buffer) == pattern(MIB)


def test_memory_of_a_buffer_that_is_gone_is_not_adopted(device: str) -> None:
    """A pointer that was kept too long: the memory is ours until the driver gets it back, and the driver's from then on."""
    buffer = filled(KIB, device)
    pointer = buffer.device_ptr
    del buffer
    for _ in range(3):
        with pytest.raises(ValueError, match=device):
            tack_memory.adopt(pointer, KIB, device, how=how_of(device))
        tack_memory.synchronize(device)
    assert (memory_info(device).in_use, memory_info(device).reserved) == (0, 0)


def test_adopting_what_this_device_cannot_free_is_refused(device: str, how: str) -> None:
    pointer, _ = host_allocation(device, KIB)
    before = memory_info(device)
    vendor = how.partition("M")[0]  # cu, hip, ze
    for wrong in ("cuMemAlloc", "cuMemAllocAsync", "hipMalloc", "hipMallocAsync", "zeMemAllocDevice", "host"):
        if not wrong.startswith(vendor):
            with pytest.raises(ValueError, match=wrong):
                tack_memory.adopt(pointer, KIB, device, how=wrong)
    assert memory_info(device) == before
    tack_memory.adopt(pointer, KIB, device, how=how).free()


def test_a_stream_that_is_another_on_each_thread_orders_nothing_that_lasts(device: str, how: str) -> None:
    if "level_zero" in device:
        return  # it has no such stream: 2 is no handle
    pointer, _ = host_allocation(device, KIB)
    with pytest.raises(ValueError, match="per-thread default stream"):
        tack_memory.adopt(pointer, KIB, device, how=how, stream=2)
    with pytest.raises(ValueError, match="per-thread default stream"):
        _fast.set_stream(device, 0, 2)
    tack_memory.adopt(pointer, KIB, device, how=how).free()


def test_room_is_reserved_within_the_budget(device: str, how: str, budget: int) -> None:
    pointer, _ = host_allocation(device, 2 * MIB)
    buffers = [filled(MIB, device, seed) for seed in range(8)]
    reserved = tack_memory.reserve(2 * MIB, device)
    info = memory_info(device)
    assert reserved.nbytes == 2 * MIB and info.reserved == 2 * MIB and info.in_use <= budget - 2 * MIB
    buffer = tack_memory.adopt(pointer, 2 * MIB, device, how=how, reserved=reserved)
    info = memory_info(device)
    assert (info.reserved, info.in_use) == (0, budget) and info.over_budget == 0
    with pytest.raises(ValueError):
        tack_memory.adopt(pointer + 4 * MIB, MIB, device, how=how, reserved=reserved)
    assert len(buffers) == 8 and buffer.nbytes == 2 * MIB


def test_a_reservation_that_is_dropped_gives_the_room_back(device: str) -> None:
    reserved = tack_memory.reserve(MIB, device)
    assert memory_info(device).reserved == MIB
    del reserved
    gc.collect()
    assert memory_info(device).reserved == 0
    reserved = tack_memory.reserve(MIB, device)
    reserved.close()
    reserved.close()
    assert memory_info(device).reserved == 0


def test_wrapped_memory_is_never_counted_and_never_moved(any_device: str) -> None:
    pointer, _ = host_allocation(any_device, KIB)
    owner = object()
    before = memory_info(any_device)
    view = tack_memory.wrap(pointer, KIB, any_device, owner)
    assert (view.base, view.owner, view.nbytes, view.device_ptr, view.device) == (None, owner, KIB, pointer, any_device)
    assert contents(view) == pattern(KIB, 5)
    view.fill(3, 0, 10)
    part = view.view(5, 10)
    assert contents(part) == b"\x03" * 5 + pattern(KIB, 5)[10:15]
    assert view.spill() == 0 and view.is_spilled is False and view.state == "resident"
    with launch(view, part) as pointers:
        assert pointers == (pointer, pointer + 5)
    with view.hold("nothing to do"):
        pass
    after = memory_info(any_device)
    assert (after.in_use, after.spilled) == (before.in_use, before.spilled)
    if any_device != "cpu":
        tack_memory.adopt(pointer, KIB, any_device, how=how_of(any_device)).free()


def test_wrapping_a_pointer_that_we_own_gives_a_view_of_that_buffer_counted_once(device: str) -> None:
    buffer = filled(KIB, device)
    view = tack_memory.wrap(buffer.device_ptr + 100, 50, device, owner=None)
    assert view.base is buffer and view.offset == 100 and memory_info(device).in_use == KIB
    buffer.spill()
    assert view.is_spilled and contents(view) == pattern(KIB)[100:150]


def test_memory_of_ours_cannot_be_wrapped_as_memory_of_another_device(device: str) -> None:
    """It would be stale as soon as the buffer moves."""
    kind, _, ordinal = device.partition(":")
    other = f"{kind}:{1 - int(ordinal)}"
    if device in REAL and other not in tack_memory.devices():
        pytest.skip("there is one device of this kind only")
    buffer = filled(KIB, device)
    for pointer, nbytes in ((buffer.device_ptr, KIB), (buffer.device_ptr + 100, 50), (buffer.device_ptr - 10, 20)):
        with pytest.raises(ValueError, match=f"lies on {device}, .*; wrap it there"):
            tack_memory.wrap(pointer, nbytes, other, owner=None)
    assert tack_memory.wrap(buffer.device_ptr, KIB, device, owner=None).base is buffer and buffer.holds == {}


def test_memory_of_which_a_part_only_is_ours_cannot_be_wrapped(any_device: str) -> None:
    buffer = filled(KIB, any_device)
    for pointer in (buffer.device_ptr - 10, buffer.device_ptr + KIB - 10):
        with pytest.raises(ValueError, match="owned already"):
            tack_memory.wrap(pointer, 20, any_device, owner=None)
    with pytest.raises(ValueError, match="owned already"):
        tack_memory.wrap(buffer.device_ptr - 10, KIB + 20, any_device, owner=None)
    assert contents(buffer) == pattern(KIB) and buffer.holds == {}


def test_a_wrapped_owner_lives_as_long_as_the_view_and_cycles_are_collected(device: str) -> None:
    import weakref

    class Owner:
        view: Any = None

    pointer, _ = host_allocation(device, KIB)
    owner = Owner()
    owner.view = tack_memory.wrap(pointer, KIB, device, owner)
    reference = weakref.ref(owner)
    del owner
    gc.collect()
    assert reference() is None
    tack_memory.adopt(pointer, KIB, device, how=how_of(device)).free()
