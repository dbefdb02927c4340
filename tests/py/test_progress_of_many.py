"""spill(*arrays) and restore(*arrays) are one move for whoever watches, however many calls they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support import MIB, filled

import tack_memory


@pytest.fixture
def told() -> Iterator[list[tuple[Any, ...]]]:
    calls: list[tuple[Any, ...]] = []
    before = tack_memory.set_progress(lambda *call: calls.append(call), after=0)
    yield calls
    tack_memory.set_progress(before)


def test_many_small_arrays_are_one_move(told: list[tuple[Any, ...]], device: str) -> None:
    buffers = [filled(MIB, device, n) for n in range(8)]
    assert tack_memory.spill(*buffers, buffers[0].view(0, 10)) == 8 * MIB
    assert told == [(device, "spill", done * MIB, 8 * MIB) for done in range(1, 9)]
    told.clear()
    tack_memory.restore(*buffers[:4])
    assert told == [(device, "restore", done * MIB, 4 * MIB) for done in range(1, 5)]
    told.clear()
    tack_memory.spill(*buffers)
    assert told[0] == (device, "spill", MIB, 4 * MIB) and told[-1] == (device, "spill", 4 * MIB, 4 * MIB), "those that were spilled are none of it"
    told.clear()
    tack_memory.spill(buffers[0])
    buffers[0].restore()
    assert told == [], "one array that is small is not worth a report"


def test_where_room_must_be_made_too(told: list[tuple[Any, ...]], device: str) -> None:
    out, others = [filled(MIB, device, n) for n in range(3)], [filled(MIB, device, n) for n in range(3)]
    tack_memory.spill(*out)
    told.clear()
    with tack_memory.memory_budget(3 * MIB, device):
        told.clear()
        tack_memory.restore(*out)
        assert [call for call in told if call[1] == "restore"][-1] == (device, "restore", 3 * MIB, 3 * MIB)
    del others


def test_devices_are_told_apart(told: list[tuple[Any, ...]]) -> None:
    one, two = [filled(MIB, "sim:0") for _ in range(2)], [filled(2 * MIB, "sim:1") for _ in range(2)]
    tack_memory.spill(one[0], two[0], one[1], two[1])
    assert [call[0] for call in told] == ["sim:0", "sim:0", "sim:1", "sim:1"]
    assert told[1] == ("sim:0", "spill", 2 * MIB, 2 * MIB) and told[3] == ("sim:1", "spill", 4 * MIB, 4 * MIB)


def test_an_error_in_the_middle_ends_the_report(told: list[tuple[Any, ...]]) -> None:
    buffers = [filled(20 * MIB, "sim:1", n) for n in range(2)]
    tack_memory.spill(*buffers)
    wall = tack_memory.allocate(30 * MIB, "sim:1", movable=False)
    told.clear()
    with pytest.raises(tack_memory.DeviceMemoryError), buffers[0].hold():
        told.clear()
        tack_memory.restore(*buffers)
    del wall
    tack_memory.spill(*buffers)
    told.clear()
    tack_memory.restore(*buffers)
    assert told == [("sim:1", "restore", 20 * MIB, 40 * MIB), ("sim:1", "restore", 40 * MIB, 40 * MIB)], "the next move begins anew"


def test_an_exception_of_the_callback_goes_where_it_belongs(device: str) -> None:
    calls = []

    def stop(*call: object) -> None:
        calls.append(call)
        raise KeyboardInterrupt

    buffers = [filled(MIB, device, n) for n in range(4)]
    tack_memory.set_progress(stop, after=0)
    try:
        with pytest.raises(KeyboardInterrupt):
            tack_memory.spill(*buffers)
    finally:
        tack_memory.set_progress(None)
    assert buffers[0].is_spilled and not buffers[3].is_spilled and len(calls) <= 2
    tack_memory.restore(*buffers)
