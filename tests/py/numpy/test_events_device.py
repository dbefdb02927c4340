"""Events of device memory: what is told, when, and that a table kept from it is right at every moment."""

from __future__ import annotations

import random
import threading

import pytest
from events_support import Table
from support import MIB, SIMULATED, how_of, wait_until

import tack_memory
from tack_memory import Event
from tack_memory._native import _fast


def of(events: list[Event], device: str) -> list[Event]:
    return [e for e in events if e.device == device]


@pytest.mark.parametrize("sync", [True, False])
def test_life_of_a_buffer(any_device: str, sync: bool) -> None:
    events: list[Event] = []
    with tack_memory.event_hook(events.append, sync=sync):
        buffer = tack_memory.allocate(4096, any_device)
        address = buffer.device_ptr
        del buffer
    new, free = events
    assert (new.kind, new.domain, new.device, new.old, new.new, new.old_size, new.new_size, new.requested, new.reason) == (
        "new", "device", any_device, None, address, 0, 4096, 4096, None,
    )  # fmt: skip
    assert (free.kind, free.old, free.new, free.old_size, free.new_size, free.requested) == ("free", address, None, 4096, 0, 0)
    assert new.seq < free.seq
    assert new.thread == free.thread == threading.get_native_id()


def test_a_sync_hook_runs_inside_the_call_and_sees_the_books_changed(any_device: str) -> None:
    start = tack_memory.memory_info(any_device).in_use
    told: list[tuple[str, int]] = []
    with tack_memory.event_hook(lambda e: told.append((e.kind, tack_memory.memory_info(any_device).in_use - start)), sync=True):
        buffer = tack_memory.allocate(1000, any_device)
        assert told == [("new", 1000)]
        del buffer
        assert told == [("new", 1000), ("free", 0)]


def test_a_deferred_hook_is_called_between_two_lines_of_the_main_thread(any_device: str) -> None:
    events: list[Event] = []
    with tack_memory.event_hook(events.append):
        buffer = tack_memory.allocate(1000, any_device)
        wait_until(lambda: len(events) == 1, "the main thread was not asked to call the hook")
        del buffer
        wait_until(lambda: len(events) == 2, "the main thread was not asked to call the hook")


def test_spills_and_restores_are_moves_of_what_lives(device: str, budget: int) -> None:
    events: list[Event] = []
    with tack_memory.event_hook(events.append, sync=True):
        first, second = (tack_memory.allocate(5 * MIB, device) for _ in range(2))  # 10 MiB under 8
        assert [(e.kind, e.reason) for e in events] == [("new", None), ("renew", "spill"), ("new", None)]
        spilled = events[1]
        assert (spilled.old, spilled.old_size, spilled.new_size) == (events[0].new, 5 * MIB, 5 * MIB)
        address = first.device_ptr  # second goes
        assert [(e.kind, e.reason) for e in events[3:]] == [("renew", "spill"), ("renew", "restore")]
        assert events[4].old == spilled.new and events[4].new == address
        del second, first
    assert [(e.kind, e.old) for e in events[5:]] == [("free", events[3].new), ("free", address)]


def test_a_failed_allocation_is_told_once(device: str) -> None:
    events: list[Event] = []
    with tack_memory.event_hook(events.append, sync=True), pytest.raises(tack_memory.DeviceMemoryError):
        tack_memory.allocate(1 << 50, device)
    assert [(e.kind, e.device, e.old, e.new, e.requested) for e in events] == [("fail", device, None, None, 1 << 50)]


def test_a_refused_reservation_is_a_failed_allocation_of_a_host(device: str) -> None:
    events: list[Event] = []
    with tack_memory.memory_budget(MIB, device, strict=True), tack_memory.event_hook(events.append, sync=True), pytest.raises(tack_memory.DeviceMemoryError):
        tack_memory.reserve(2 * MIB, device)
    assert [(e.kind, e.requested) for e in events] == [("fail", 2 * MIB)]


def test_nothing_is_told_of_a_buffer_without_bytes(any_device: str) -> None:
    events: list[Event] = []
    with tack_memory.event_hook(events.append, sync=True):
        empty = tack_memory.allocate(0, any_device)
        del empty
    assert events == []


@pytest.mark.parametrize("device", SIMULATED)
def test_adopted_memory_is_new_and_what_is_given_away_is_gone(device: str) -> None:
    events: list[Event] = []
    mine = tack_memory.allocate(MIB, device)
    pointer = _fast.disown(mine)  # now it is a host's
    with tack_memory.event_hook(events.append, sync=True):
        adopted = tack_memory.adopt(pointer, MIB, device, how=how_of(device))
        assert [(e.kind, e.reason, e.new) for e in events] == [("new", "adopt", pointer)]
        again = _fast.disown(adopted)
        assert [(e.kind, e.old) for e in events[1:]] == [("free", again)]
    tack_memory.adopt(again, MIB, device, how=how_of(device)).free()


def test_freeing_early_is_told_once_and_the_buffer_is_freed_for_the_hook(any_device: str) -> None:
    states: list[str] = []
    events: list[Event] = []
    buffer = tack_memory.allocate(100, any_device)

    def hook(event: Event) -> None:
        events.append(event)
        states.append(buffer.state)
        buffer.free()

    with tack_memory.event_hook(hook, sync=True):
        buffer.free()
    assert [e.kind for e in events] == ["free"] and states == ["freed"]


def test_views_and_wraps_have_no_events(any_device: str) -> None:
    buffer = tack_memory.allocate(4096, any_device)
    events: list[Event] = []
    with tack_memory.event_hook(events.append, sync=True):
        view = buffer.view(8, 16)
        foreign = tack_memory.wrap(1 << 20, 10, any_device, owner=object())
        del view, foreign
    assert events == []


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("sync", [True, False])
def test_a_table_of_what_lives_is_right_at_every_moment(device: str, budget: int, sync: bool, legacy: bool) -> None:
    """Some thousand random operations, with spills and restores. The sum over the table is the footprint, and what is on the device is in_use."""
    generator = random.Random(4)
    table, started = Table(), tack_memory.memory_info(device)
    buffers: list[tack_memory.Buffer] = []
    hook = None if legacy else tack_memory.event_hook(table, sync=sync)
    previous = tack_memory.set_event_hook(table.of_2012, sync=sync) if legacy else None
    try:
        if hook:
            hook.__enter__()
        for step in range(1500):
            choice = generator.random()
            if choice < 0.4 and len(buffers) < 60:
                buffers.append(tack_memory.allocate(generator.randrange(1, MIB), device))
            elif choice < 0.7 and buffers:
                buffers.pop(generator.randrange(len(buffers)))
            elif choice < 0.9 and buffers:
                generator.choice(buffers).device_ptr  # noqa: B018
            elif buffers:
                generator.choice(buffers).spill()
            if sync or step % 100 == 0:
                tack_memory.flush_events()
                info = tack_memory.memory_info(device)
                assert table.wrong == []
                assert table.bytes == info.footprint - started.footprint
        assert tack_memory.memory_info(device).spill_count > started.spill_count + 20, "the test spills"
        buffers.clear()
        tack_memory.flush_events()
        assert table.live == {} and table.wrong == [] and table.events > 500
    finally:
        if hook:
            hook.__exit__(None, None, None)
        else:
            tack_memory.set_event_hook(previous)


def test_what_is_spilled_can_be_told_from_what_is_on_the_device(device: str, budget: int) -> None:
    on_device: dict[int, int] = {}

    def hook(event: Event) -> None:
        if event.old is not None:
            on_device.pop(event.old, None)
        if event.new is not None and event.reason != "spill":
            on_device[event.new] = event.new_size

    start = tack_memory.memory_info(device).in_use
    with tack_memory.event_hook(hook, sync=True):
        buffers = [tack_memory.allocate(MIB, device) for _ in range(20)]
        for buffer in buffers:
            buffer.device_ptr  # noqa: B018
            assert sum(on_device.values()) == tack_memory.memory_info(device).in_use - start
        del buffer, buffers
    assert on_device == {}


def test_a_hook_that_listens_to_other_domains_hears_nothing_of_devices(any_device: str) -> None:
    events: list[Event] = []
    with tack_memory.event_hook(events.append, {"numpy", "pinned"}, sync=True):
        buffer = tack_memory.allocate(100, any_device)
        del buffer
    assert events == []
