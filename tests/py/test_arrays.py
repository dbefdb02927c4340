"""hold, spill, restore and label on a framework's own arrays."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest
from support import KIB, MIB, contents, filled, pattern

import tack_memory
from tack_memory import DeviceMemoryError, _hosts, allocate, hold, label, memory_info, restore, spill


class Array:
    """A framework's array: some of its buffers, or none."""

    def __init__(self, *buffers: tack_memory.Buffer | tack_memory.BufferView) -> None:
        self.buffers = list(buffers)


@pytest.fixture
def host() -> Iterator[Any]:
    plugged: Any = types.SimpleNamespace(
        name="toy",
        module=types.ModuleType("toy"),
        memory_error=None,
        current_device=lambda: "sim:0",
        device_of=lambda _: None,
        buffers_of=lambda array: array.buffers if isinstance(array, Array) else None,
    )
    _hosts.register(plugged)
    yield plugged
    _hosts.unregister(plugged)


def test_arrays_are_spilled_and_restored(host: Any, device: str) -> None:
    first, second = filled(KIB, device, 1), filled(2 * KIB, device, 2)
    arrays = [Array(first), Array(second.view(0, 10)), Array()]
    assert spill(*arrays) == 3 * KIB and first.is_spilled and second.is_spilled
    assert spill(*arrays) == 0
    restore(*arrays)
    assert not first.is_spilled and not second.is_spilled
    assert contents(first) == pattern(KIB, 1) and contents(second) == pattern(2 * KIB, 2)


def test_buffers_are_accepted_everywhere(device: str) -> None:
    buffer = filled(KIB, device)
    assert spill(buffer) == KIB
    restore(buffer.view(0, 1))
    with hold(buffer, buffer.view(5, 5), reason="both"):
        assert buffer.holds == {"hold: both": 2}
    label("mesh", buffer)
    assert buffer.label == "mesh"


def test_nothing_is_legal(device: str) -> None:
    assert spill() == 0
    restore()
    with hold():
        pass


def test_held_arrays_stay_on_the_device(host: Any, device: str, budget: int) -> None:
    arrays = [Array(filled(MIB, device, seed)) for seed in range(4)]
    spill(*arrays)
    with hold(*arrays, reason="textures"):
        others = [allocate(MIB, device) for _ in range(8)]
        assert not any(buffer.is_spilled for array in arrays for buffer in array.buffers)
        assert spill(*arrays) == 0
        assert all(buffer.holds == {"hold: textures": 1} for array in arrays for buffer in array.buffers)
    assert spill(*arrays) == 4 * MIB and len(others) == 8


def test_a_hold_that_does_not_fit_holds_nothing(device: str) -> None:
    with tack_memory.memory_budget(4 * MIB, device, strict=True):
        buffers = [filled(MIB, device, seed) for seed in range(6)]
        with pytest.raises(DeviceMemoryError):
            hold(*buffers).__enter__()
        assert all(buffer.holds == {} for buffer in buffers)
        with hold(*buffers[:4]):
            pass


def test_a_hold_of_two_devices_that_fits_on_one_holds_nothing() -> None:
    first, second = filled(KIB, "sim:0"), filled(2 * MIB, "sim:1")
    second.spill()
    with tack_memory.memory_budget(MIB, "sim:1", strict=True), pytest.raises(DeviceMemoryError):
        hold(first, second).__enter__()
    assert first.holds == second.holds == {} and first.spill() == KIB


def test_holds_of_two_devices_at_once() -> None:
    buffers = [filled(KIB, "sim:0"), filled(KIB, "sim:1"), filled(KIB, "cpu")]
    spill(*buffers)
    with hold(*buffers, reason="everywhere"):
        assert spill(*buffers) == 0 and not any(buffer.is_spilled for buffer in buffers)
    assert spill(*buffers) == 2 * KIB, "the CPU spills nothing"


def test_a_hold_can_be_kept_open(device: str) -> None:
    buffer = filled(KIB, device)
    with contextlib.ExitStack() as stack:
        stack.enter_context(hold(buffer, reason="never spill"))
        assert buffer.spill() == 0
    assert buffer.spill() == KIB


def test_two_threads_that_hold_the_same_arrays_in_another_order_both_end(device: str) -> None:
    buffers = [filled(MIB, device, seed) for seed in range(4)]
    failures: list[BaseException] = []

    def work(mine: list[tack_memory.Buffer]) -> None:
        try:
            for _ in range(50):
                with hold(*mine):
                    pass
        except BaseException as error:
            failures.append(error)

    with tack_memory.memory_budget(3 * MIB, device, strict=True):
        threads = [threading.Thread(target=work, args=(mine,)) for mine in (buffers[:3], buffers[:0:-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads) and failures == []


def test_wrong_use_of_a_hold_is_an_error(device: str) -> None:
    block = hold(filled(KIB, device))
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)
    with block, pytest.raises(RuntimeError, match="already entered"):
        block.__enter__()


def test_labels_name_arrays_and_what_is_allocated_inside(host: Any, device: str) -> None:
    buffer = filled(KIB, device)
    label("points", Array(buffer), buffer)
    assert buffer.label == "points"
    label(None, buffer)
    assert buffer.label is None
    with label("temporary"):
        first = allocate(1, device)
        with label("inner"):
            second = allocate(1, device)
        third = allocate(1, device, label="explicit")
        with label(None):
            fourth = allocate(1, device)
    assert [one.label for one in (first, second, third, fourth, allocate(1, device))] == ["temporary", "inner", "explicit", None, None]


def test_a_label_is_for_the_thread_that_set_it(device: str) -> None:
    found: list[str | None] = []
    with label("mine"):
        thread = threading.Thread(target=lambda: found.append(allocate(1, device).label))
        thread.start()
        thread.join()
    assert found == [None]


def test_a_label_ends_by_an_exception_too(device: str) -> None:
    with pytest.raises(KeyError), label("temporary"):
        raise KeyError
    assert allocate(1, device).label is None
    block: Any = label("again")
    with block, block:
        assert allocate(1, device).label == "again"
    with pytest.raises(RuntimeError):
        block.__exit__(None, None, None)


@pytest.mark.parametrize("call", [hold, spill, restore, lambda array: label("x", array)])
@pytest.mark.parametrize("wrong", [None, 5, "array", object(), [1, 2]])
def test_what_nobody_knows_is_a_type_error(host: Any, call: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match="toy"):
        call(wrong)


def test_labels_show_in_reports(device: str) -> None:
    with label("temporary"):
        buffers = [allocate(KIB, device) for _ in range(3)]
    holders = tack_memory.memory_report(device).holders
    assert [(holder.label, holder.bytes, holder.count) for holder in holders] == [("temporary", 3 * KIB, 3)]
    assert memory_info(device).in_use == 3 * KIB == sum(buffer.nbytes for buffer in buffers)
