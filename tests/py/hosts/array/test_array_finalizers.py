"""Finalizers that allocate while the host makes memory of a special kind: what they make is ordinary."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arrayworlds import numbers
from garbage import WAYS, interrupted

import tack_memory
from tack_memory.hosts import _array_launches, _room


def _pack(host: ModuleType) -> Any:
    from arrayhost.runtime import kernel_utils

    return kernel_utils._create_pack_arrays(host.current_backend(), (1.0,))[0]


def _mpi(host: ModuleType) -> Any:
    from arrayhost.lang.mpi import allocate_mpi_array

    return allocate_mpi_array((1000,))


def _image(host: ModuleType) -> Any:
    return host.current_backend().create_texture_image((1000,), np.dtype(np.float64))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("reason", "make", "called"), [("scalar pack", _pack, "create_buffer"), ("mpi", _mpi, "create_mpi_buffer"), ("texture image", _image, "allocate")]
)
def test_it_may_move(
    host: ModuleType, monkeypatch: pytest.MonkeyPatch, reason: str, make: Callable[[ModuleType], Any], called: str, way: str
) -> None:  # fmt: skip
    backend, made = host.current_backend(), []
    monkeypatch.setattr(backend, called, interrupted(getattr(backend, called), lambda: made.append(numbers(host)), way))
    special = make(host)
    assert host.memory_report().holds == {f"unmovable: {reason}": special.nbytes}
    assert tack_memory.spill(*made) == 8000
    assert made[0][999] == 999


def test_room_is_handed_on_to_the_first_allocation_of_the_function_that_asked(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to a finalizer's, which comes first, nor to a second one."""
    from arrayhost.lang import array as arrays

    asked: list[int] = []
    made: list[Any] = []

    def with_room(call: Any, nbytes: int, *rest: Any) -> Any:
        asked.append(nbytes)
        return _room.with_room(call, nbytes, *rest)

    def allocate_two(shape: Any, dtype: Any) -> Any:
        backend = host.current_backend()
        return arrays._allocate(backend, dtype, shape), arrays._allocate(backend, dtype, shape)

    known = tack_memory.hosts.plugged(host.__name__)
    assert known is not None
    thread, device = known.adapter._buffers.thread, known.adapter.current_device()  # type: ignore[attr-defined]
    monkeypatch.setattr(_array_launches, "with_room", with_room)
    function = _array_launches.allocator_beside(interrupted(allocate_two, lambda: made.append(numbers(host))), thread, lambda _: device, host.DeviceMemoryError)
    function((1000,), np.dtype("f8"))
    assert asked == [8000, 8000, 8000]  # for the function; for the finalizer's; for the second
    assert thread.handed_on is None and host.memory_info().reserved == 0
