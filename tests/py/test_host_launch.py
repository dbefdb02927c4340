"""HostLaunch: a host's launch function with all its arrays resident and held."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from typing import Any

import pytest
from standin_host import DEVICE, Array, Memory, Stock, Texture, array, array_over, backend, free_to_move, raw, set_up, states
from support import KIB, MIB, SIMULATED, contents, filled, pattern

import tack_memory
from tack_memory import DeviceMemoryError, allocate, memory_info, spill
from tack_memory._native import _fast


@pytest.fixture(autouse=True)
def device_of_the_arrays() -> None:
    set_up()


@pytest.fixture(params=[DEVICE, *SIMULATED])
def memory(request: pytest.FixtureRequest) -> Memory:
    return Memory(request.param)


def test_all_arrays_of_a_launch_are_resident_and_held_until_it_ends(memory: Memory) -> None:
    arrays = [memory(KIB, seed) for seed in range(5)]
    spill(*(one.memory for one in arrays[1:4]))
    before = memory_info(memory.device).restore_count

    def kernel(*args: Any) -> str:
        assert states(*arrays) == ["resident"] * 5
        assert [one.memory.spill() for one in arrays] == [0] * 5, "held"
        assert args == (*arrays, 7)
        return "done"

    assert backend().execute(kernel, [*arrays, 7]) == "done"
    assert memory_info(memory.device).restore_count == before + 3
    assert free_to_move(*arrays)


def test_an_exception_ends_the_holds_too() -> None:
    one = array(KIB)

    def kernel(_: Any) -> None:
        raise KeyError("the kernel's own")

    with pytest.raises(KeyError, match="the kernel's own"):
        backend().execute(kernel, [one])
    assert free_to_move(one)


def test_a_launch_that_does_not_fit_is_not_begun(memory: Memory) -> None:
    with tack_memory.memory_budget(KIB, memory.device, strict=True):
        one, other = memory(KIB // 2, 1), memory(KIB, 2)
        called: list[Any] = []
        with pytest.raises(DeviceMemoryError):
            backend().execute(called.append, [one, other])
        assert called == [] and one.memory.holds == other.memory.holds == {}
        assert backend().execute(lambda a: a.memory.state, [one]) == "resident"
    assert contents(one.memory) == bytes([1]) * (KIB // 2)


def test_a_freed_buffer_is_an_error_and_the_launch_is_not_begun() -> None:
    one, gone = array(KIB), array(KIB)
    gone.memory.free()
    called: list[Any] = []
    with pytest.raises(ValueError, match="was freed"):
        backend().execute(called.append, [one, gone])
    assert called == [] and free_to_move(one)


def test_the_same_array_twice_and_views_of_one_buffer() -> None:
    memory = filled(KIB, DEVICE)
    first, second = array_over(memory.view(0, 100)), array_over(memory.view(50, 100))
    spill(memory)

    def kernel(a: Array, b: Array, c: Array) -> None:
        assert a is b and bytes(a._buffer._data) == pattern(KIB)[:100] and bytes(c._buffer._data) == pattern(KIB)[50:150]
        assert memory.spill() == 0

    backend().execute(kernel, [first, first, second])
    assert memory.holds == {} and memory.spill() == KIB


def test_more_arrays_than_a_launch_usually_has() -> None:
    arrays = [array(16, fill=place) for place in range(100)]
    spill(*(one.memory for one in arrays))

    def kernel(*args: Array) -> list[int]:
        sums = [int(one._buffer._data.sum()) for one in args]
        assert all(one.memory.holds == {"launch": 1} for one in args)
        return sums

    assert backend().execute(kernel, arrays) == [16 * place for place in range(100)]
    assert free_to_move(*arrays)


def test_arrays_on_several_devices() -> None:
    arrays = (
        [make(KIB, DEVICE, 3) for make in (array, raw, array)] + [raw(KIB, device, 3) for device in ("sim-hip:0", "sim:1", "sim-hip:0")] + [array(KIB, "cpu")]
    )
    movable = [one for one in arrays if one.memory.device != "cpu"]
    spill(*(one.memory for one in movable))

    def kernel(*_: Any) -> None:
        assert states(*arrays) == ["resident"] * 7 and not any(one.memory.spill() for one in movable)

    backend().execute(kernel, arrays)
    backend().execute(kernel, arrays)  # and all resident from the start
    assert free_to_move(*movable)


def test_what_does_not_fit_on_the_second_device_leaves_nothing_held_on_the_first() -> None:
    one, other = array(KIB, DEVICE), raw(2 * KIB, "sim:1")
    spill(one.memory, other.memory)
    with tack_memory.memory_budget(KIB, "sim:1", strict=True), pytest.raises(DeviceMemoryError):
        backend().execute(lambda *_: None, [one, other])
    assert free_to_move(one)
    other.memory.restore()
    assert not _fast.enter_launch([other.memory])  # nothing is left of the thread's own count either: this waits for nobody and holds once
    _fast.leave_launch([other.memory])
    assert free_to_move(other)


def test_a_count_that_somebody_else_lowers_is_reported() -> None:
    one = array(KIB)
    with pytest.raises(RuntimeError, match="not entered"):
        backend().execute(lambda a: _fast.leave_launch([a.memory]), [one])
    assert free_to_move(one)

    def kernel(a: Array) -> None:
        _fast.leave_launch([a.memory])
        raise KeyError("the kernel's")

    with pytest.raises(RuntimeError, match="not entered") as caught:
        backend().execute(kernel, [one])
    assert repr(caught.value.__context__) == repr(KeyError("the kernel's"))
    assert free_to_move(one)


# ---- a function like the original


def test_name_documentation_and_signature_are_the_originals() -> None:
    launch = _fast.HostLaunch(Stock.execute, array=Array, storage="_data")
    host = backend()
    assert (launch.__name__, launch.__qualname__, launch.__doc__) == ("execute", "Stock.execute", "Launches a kernel.")  # type: ignore[attr-defined]
    assert launch.__module__ == Stock.execute.__module__ and launch.__wrapped__ is Stock.execute  # type: ignore[attr-defined]
    assert inspect.signature(launch) == inspect.signature(Stock.execute)
    assert inspect.signature(host.execute) == inspect.signature(Stock().execute)
    assert type(host).execute is type(host).__dict__["execute"] and host.execute.__self__ is host
    assert "Stock.execute" in repr(launch)


def test_bad_options_are_refused() -> None:
    for options, error in (
        ({"array": Array}, TypeError), ({"storage": "_data"}, TypeError), ({"array": 5, "storage": "_data"}, TypeError),
        ({"array": Array, "storage": 5}, TypeError), ({"array": Array, "storage": "_data", "expand": 5}, TypeError),
        ({"array": Array, "storage": "_data", "nested": "maybe"}, ValueError),
        ({"array": Array, "storage": "_data", "settle": 5}, TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            _fast.HostLaunch(Stock.execute, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _fast.HostLaunch(5, array=Array, storage="_data")  # type: ignore[arg-type]


def test_no_references_are_lost_or_left() -> None:
    host = backend(expand=lambda argument: argument.parts if isinstance(argument, Texture) else None)
    one, two, texture, missing = array(KIB), raw(KIB), Texture(array(KIB)), Array.__new__(Array)
    arguments = [one, two, texture, missing, 5]

    def kernel(*_: Any) -> None:
        one._buffer._data  # noqa: B018

    def fails(*_: Any) -> None:
        raise ValueError

    kept = one._buffer.__dict__["_data"]
    watched = [one, one._buffer, kept, one.memory, two, two.memory, texture, texture.parts, missing, arguments, arguments[0], Array, host, kernel, fails, None]
    host.execute(kernel, arguments)
    before = [sys.getrefcount(thing) for thing in watched]
    blocks = sys.getallocatedblocks()
    for _ in range(10_000):
        host.execute(kernel, arguments)
        try:
            host.execute(fails, arguments)
        except ValueError:
            pass
    after = [sys.getrefcount(thing) for thing in watched]
    assert [a - b for a, b in zip(after[:-1], before[:-1], strict=True)] == [0] * (len(watched) - 1)
    assert abs(after[-1] - before[-1]) < 100, "None"
    assert sys.getallocatedblocks() - blocks < 1000


def test_a_class_with_a_launch_in_it_can_be_collected() -> None:
    class Own(Array):
        pass

    class Expand:
        def __call__(self, argument: Any) -> Any: ...

    expand = Expand()

    class Backend(Stock):
        execute = _fast.HostLaunch(Stock.execute, array=Own, storage="_data", expand=expand)

    expand.launch = Backend.execute  # type: ignore[attr-defined]
    Own.backend = Backend  # type: ignore[attr-defined]
    Own.launch = Backend.execute  # type: ignore[attr-defined]
    Backend.execute.itself = Backend.execute  # type: ignore[attr-defined]
    gone = [weakref.ref(Own), weakref.ref(Backend), weakref.ref(Backend.execute)]
    del Own, Backend, expand
    gc.collect()
    assert [one() for one in gone] == [None] * 3


def test_arrays_of_a_launch_are_never_victims(memory: Memory) -> None:
    with tack_memory.memory_budget(8 * MIB, memory.device):
        held, others = [memory(MIB, seed) for seed in range(4)], [memory(MIB, seed) for seed in range(4)]

        def kernel(*_: Any) -> None:
            more = [allocate(MIB, memory.device) for _ in range(4)]
            assert states(*held) == ["resident"] * 4 and states(*others) == ["spilled"] * 4 and len(more) == 4

        backend().execute(kernel, held)
        assert [contents(one.memory)[:1] for one in held] == [bytes([seed]) for seed in range(4)]
