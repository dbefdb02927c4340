"""What the arguments of a call bring: by position, by name, left out, in slots, and while another thread changes the object that has them."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tack_memory
from tack_memory._native import _fast
from tack_memory.hosts import _array_launches, _holds, _host_access, _room
from tack_memory.hosts._arguments import Argument, Size
from tack_memory.hosts._array_buffers import ArrayThread
from tack_memory.hosts._array_launches import held_by
from tack_memory.hosts._attributes import attributes_of
from tack_memory.hosts._counted_arrays import CountedBuffers
from tack_memory.hosts._field_launches import expander
from tack_memory.hosts._pointer_buffers import ours


def test_private_slots_are_attributes_too() -> None:
    class Pair:
        __slots__ = ("__private", "__dict__", "never_set")

        def __init__(self) -> None:
            self.__private, self.plain = 1, 2

    assert list(attributes_of(Pair()) or ()) == [1, 2]


def test_a_size_that_is_left_out_is_the_defaults() -> None:
    def allocate(shape: Any, dtype: Any = np.float64, device: Any = None) -> None: ...

    def unsaid(shape: Any, dtype: Any = None) -> None: ...

    assert Size(allocate).of(((1000,),), {}) == 8000
    assert Size(allocate).of(((1000,), "i2"), {}) == 2000
    assert Size(unsaid).of(((1000,),), {}) == 4000


def test_an_argument_is_found_wherever_it_stands() -> None:
    def function(dtype: Any, /, shape: Any = 3, *rest: Any, backend: Any = "own", **others: Any) -> None: ...

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [(("i2",), {}), (("i2", 4, 5), {"backend": "b"}), (("i2",), {"shape": 7, "more": 8}), ((), {})]
    found = [[Argument(function, name).of(args, named) for name in ("dtype", "shape", "backend", "more")] for args, named in calls]
    assert found == [["i2", 3, "own", None], ["i2", 4, "b", None], ["i2", 7, "own", 8], [None, 3, "own", None]]


def test_memory_for_mpi_of_the_default_type_gets_its_room(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from arrayhost.lang.mpi import allocate_mpi_array

    asked: list[int] = []

    def with_room(call: Any, nbytes: int, *rest: Any) -> Any:
        asked.append(nbytes)
        return _room.with_room(call, nbytes, *rest)

    monkeypatch.setattr(_array_launches, "with_room", with_room)
    assert allocate_mpi_array((1000,)).nbytes == 8000
    assert asked == [8000]


def test_a_copy_holds_what_it_is_given_by_name_and_subclasses(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []

    def during_launch(buffers: list[Any], function: Any, /, *args: Any, **named: Any) -> Any:
        held.append(list(buffers))
        return _fast.during_launch(buffers, function, *args, **named)

    monkeypatch.setattr(_holds, "during_launch", during_launch)
    a, b = host.full(1000, 3), host.full(1000, 5)
    a._buffer.copy_from(other=b._buffer)
    assert a[999] == 5
    b._buffer.__class__ = type("Special", (type(b._buffer),), {})
    a._buffer.copy_from(b._buffer)
    assert held == [[ours(a._buffer), ours(b._buffer)]] * 2


@pytest.mark.parametrize("shape", ["array", "field"])
def test_another_thread_may_set_attributes_meanwhile(shape: str) -> None:
    thing = SimpleNamespace(_data_oriented=True, **{f"a{n}": n for n in range(3000)})

    class Number(type):
        def __instancecheck__(cls, one: object) -> bool:
            return type(one) is int

    class Wanted(metaclass=Number):
        pass

    expand = expander(Wanted, type(None), None)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            for n in range(100):
                setattr(thing, f"b{n}", n)
            for n in range(100):
                delattr(thing, f"b{n}")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            found = [one for one in attributes_of(thing) or () if isinstance(one, Wanted)] if shape == "array" else expand(thing)
            assert found is not None and 3000 <= len(found) <= 3100
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


# ---- objects, and what they have in their attributes


class Marked:
    """Of a device class."""

    _device_class = True


def test_what_lists_tuples_and_dicts_in_attributes_hold_is_found() -> None:
    class Array:
        pass

    class Texture(Array):
        pass

    found = [Array(), Array(), Array(), Texture(), Array(), Array()]
    thing, inner = Marked(), Marked()
    inner.own = found[5]  # type: ignore[attr-defined]
    thing.direct = found[0]  # type: ignore[attr-defined]
    thing.many = [found[1], 3, "text"]  # type: ignore[attr-defined]
    thing.named = {"a": (found[2], {"b": found[3]}), "c": [found[4], [inner]]}  # type: ignore[attr-defined]
    thing.many.append(thing.many)  # type: ignore[attr-defined]
    thing.unmarked = SimpleNamespace(hidden=Array())  # type: ignore[attr-defined]
    held = held_by(thing, attributes_of(thing) or (), Array, (Texture,))
    assert sorted(map(id, held)) == sorted(map(id, found))


def test_arrays_in_containers_of_an_object_are_held_in_a_launch(host: ModuleType) -> None:
    @host.device_class
    class Stack:
        def __init__(self, *layers: Any) -> None:
            self.layers, self.named = list(layers[:2]), {"last": layers[2:]}

    arrays = [host.full(1000, 10**place) for place in range(3)]
    spilled: list[int] = []

    @host.kernel(writes="out")
    def total(stack: Any, out: Any) -> None:
        spilled.append(tack_memory.spill(*arrays))  # as another thread may that needs room
        if spilled == [0]:
            out[:] = stack.layers[0] + stack.layers[1] + stack.named["last"][0]

    out = host.zeros(1000)
    tack_memory.spill(*arrays)
    total(Stack(*arrays), out)
    assert spilled == [0] and out[0] == out[999] == 111
    assert tack_memory.spill(*arrays) == 24000


# ---- functions of hosts with their parameters in another order


def test_a_host_may_order_its_parameters_as_it_likes() -> None:
    class NumpyBuffer:
        def __init__(self, values: Any) -> None:
            self._data = values

    def allocate(shape: Any, backend: Any = None, *, dtype: Any = np.float64) -> Any:
        return NumpyBuffer(np.zeros(shape, dtype))

    counted = CountedBuffers(NumpyBuffer, "_data", "cpu", base_is_foreign=True)
    cpu = SimpleNamespace(name="cpu")
    asked: list[Any] = []

    def current_backend() -> Any:
        asked.append(cpu)
        return cpu

    wrapped = _array_launches.allocator(
        allocate, ArrayThread(), current_backend, lambda _: pytest.fail("no GPU"), MemoryError, {"cpu": counted.allocator(allocate)}
    )
    before = tack_memory.memory_info("cpu").in_use
    made = [wrapped((1000,)), wrapped(shape=(10,), dtype="i2"), wrapped((10,), cpu, dtype=np.uint8)]
    assert tack_memory.memory_info("cpu").in_use == before + 8000 + 20 + 10
    assert len(asked) == 2, "the backend is the current one where none is named"
    with pytest.raises(TypeError, match=r"allocate\(\)"):
        wrapped(size=3)
    del made
    assert tack_memory.memory_info("cpu").in_use == before


def test_a_gpu_host_may_leave_its_backend_out(array_unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from arrayhost.lang import array as arrays

    host, original = array_unplugged, arrays._allocate

    def _allocate(dtype: Any, shape: Any, backend: Any = None) -> Any:
        return original(host.current_backend() if backend is None else backend, dtype, shape)

    monkeypatch.setattr(arrays, "_allocate", _allocate)
    tack_memory.install(host)
    with host.memory_budget(8000, strict=True):
        buffers = [arrays._allocate(np.dtype("f8"), (500,)) for _ in range(2)]
        assert host.memory_info().in_use == 8000
        with tack_memory.hold(host.array(buffers[0], np.dtype("f8"), (500,)), host.array(buffers[1], np.dtype("f8"), (500,))):
            with pytest.raises(host.DeviceMemoryError):
                arrays._allocate(shape=(1,), dtype=np.dtype("f8"))
    del buffers
    tack_memory.uninstall(host)


@pytest.mark.parametrize(
    ("wrapper", "original", "named"),
    [
        (_host_access.writer, lambda buffer, arr: (buffer, arr), {"arr": 3}),
        (_host_access.range_writer, lambda buffer, first, arr: (buffer, first, arr), {"arr": 3, "first": 0}),
        (_host_access.range_reader, lambda buffer, first, how_many: (buffer, first, how_many), {"first": 0, "how_many": 2}),
        (_host_access.filler, lambda buffer, number: (buffer, number), {"number": 3}),
        (_host_access.byte_filler, lambda buffer, byte: (buffer, byte), {"byte": 3}),
    ],
)
def test_a_host_may_name_its_parameters_as_it_likes(host: ModuleType, wrapper: Any, original: Any, named: dict[str, int]) -> None:
    calls: list[Any] = []

    def method(buffer: Any, *args: Any, **others: Any) -> None:
        calls.append(original(buffer, *args, **others))

    buffer = host.full(10, 1)._buffer
    wrapper(method)(buffer, **named)
    assert calls == [original(buffer, **named)]
    with pytest.raises(TypeError):
        wrapper(method)(buffer)
