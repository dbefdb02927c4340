"""Finalizers that allocate in the middle of an allocation: each of the two gets the room that it asked for, be they of one size or of two."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from flavours import Flavour
from garbage import WAYS, interrupted, run_as_finalizer
from support import MIB, SoftDriver

import tack_memory

SIZE = 4 * MIB


def bytes_of(host: ModuleType, value: int, size: int = SIZE) -> Any:
    return host.full(size, value, np.uint8)


@pytest.mark.parametrize("size", [SIZE, SIZE - 8])
def test_on_a_full_device_both_spill_others(host: ModuleType, soft: SoftDriver, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    soft.set("taken", soft.get("capacity.0") - 9 * MIB)
    others = [bytes_of(host, n) for n in range(2)]
    made: list[Any] = []
    backend = host.current_backend()
    monkeypatch.setattr(backend, "synchronize", interrupted(backend.synchronize, lambda: made.append(bytes_of(host, 7, size))))
    outer = bytes_of(host, 9)  # no room: the host's own tries call `synchronize`
    assert len(made) == 1, "the finalizer's allocation failed"
    assert [one[size - 1] for one in (*others, *made, outer)] == [0, 1, 7, 9]
    assert host.memory_info().reserved == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", ["an array", "a buffer"])
def test_room_under_a_strict_budget_is_for_whoever_asked(host: ModuleType, monkeypatch: pytest.MonkeyPatch, what: str, way: str) -> None:
    """There is room for one, which the outer allocation has asked for."""
    refused: list[str] = []
    held: list[Any] = []
    backend = host.current_backend()
    create = backend.create_buffer

    def work() -> None:
        try:
            if what == "an array":
                inner = bytes_of(host, 7)
                hold = tack_memory.hold(inner)
                hold.__enter__()
                held.append((inner, hold))
            else:
                held.append(create(np.dtype(np.uint8), (SIZE,)))  # not by way of the host's `_allocate`
        except tack_memory.DeviceMemoryError as error:
            refused.append(str(error))

    monkeypatch.setattr(backend, "create_buffer", interrupted(create, work, way))
    with host.memory_budget(SIZE, strict=True):
        outer = bytes_of(host, 9)
        assert outer[SIZE - 1] == 9 and (len(refused), held) == (1, [])
        assert host.memory_info().reserved == 0


def test_what_a_finalizer_makes_while_a_pointer_is_wrapped_is_its_own(host: ModuleType, flavour: Flavour, monkeypatch: pytest.MonkeyPatch) -> None:
    a = bytes_of(host, 1)
    backend, made = host.current_backend(), []

    def work() -> None:
        buffer = type(a._buffer).__new__(type(a._buffer))
        buffer.__dict__.update(_backend=backend, _numpy_dtype=np.dtype(np.uint8), _shape=(100,), _nbytes=100, _owned=True)
        buffer._device_ptr = backend.allocate(100)
        made.append(buffer)

    monkeypatch.setattr(backend, "buffer_class", interrupted(backend.buffer_class, work))
    part = host.wrap_ptr(a._buffer.device_ptr, 10, np.uint8, owner=a)
    assert len(made) == 1 and host.memory_info().in_use == a.nbytes + 100
    assert part[9] == 1


def test_a_finalizer_that_runs_alone_changes_nothing(host: ModuleType) -> None:
    made: list[Any] = []
    run_as_finalizer(lambda: made.append(bytes_of(host, 7)))
    assert host.memory_info().in_use == SIZE and tack_memory.spill(*made) == SIZE
