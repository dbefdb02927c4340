"""What the arguments of a call bring: by position, by name, left out, in slots, and while another thread changes the object that has them."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tack_memory._native import _fast
from tack_memory.hosts import _array_launches, _holds, _room
from tack_memory.hosts._array_launches import attributes_of, bytes_in
from tack_memory.hosts._field_launches import expander
from tack_memory.hosts._pointer_buffers import ours


def test_private_slots_are_attributes_too() -> None:
    class Pair:
        __slots__ = ("__private", "__dict__", "never_set")

        def __init__(self) -> None:
            self.__private, self.plain = 1, 2

    assert list(attributes_of(Pair()) or ()) == [1, 2]


def test_a_size_that_is_left_out_is_the_defaults() -> None:
    from inspect import signature

    def allocate(shape: Any, dtype: Any = np.float64, device: Any = None) -> None: ...

    def unsaid(shape: Any, dtype: Any = None) -> None: ...

    assert bytes_in(_array_launches._arguments(signature(allocate), ((1000,),), {})) == 8000
    assert bytes_in(_array_launches._arguments(signature(allocate), ((1000,), "i2"), {})) == 2000
    assert bytes_in(_array_launches._arguments(signature(unsaid), ((1000,),), {})) == 4000


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
