"""Finalizers that allocate while the host makes memory of a special kind: what they make is ordinary."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from garbage import WAYS, run_as_finalizer

import tack_memory
from tack_memory.hosts import plugged


@pytest.mark.parametrize("way", WAYS)
def test_while_scalars_are_packed(gpu: ModuleType, way: str) -> None:
    made: list[Any] = []

    class Interrupting(float):
        def __float__(self) -> float:
            if not made:
                run_as_finalizer(lambda: made.append(gpu.full(gpu.f64, (1000,), 5)), way)
            return 2.0

    @gpu.kernel
    def scale(x: Any, by: Any) -> None:
        x *= by

    field = gpu.full(gpu.f64, (1000,), 3)
    scale(field, Interrupting(2.0))
    assert gpu.memory_report().holds == {"unmovable: scalar pack": 8}
    assert tack_memory.spill(*made) == 8000
    assert field.to_numpy()[999] == 6 and made[0].to_numpy()[999] == 5


@pytest.mark.parametrize("cpu_host", ["fieldhost"], indirect=True)
def test_while_a_pointer_is_wrapped(simulated: ModuleType) -> None:
    made: list[Any] = []
    theirs = np.arange(100, dtype=np.float32)

    class Interrupting:
        def __int__(self) -> int:
            run_as_finalizer(lambda: made.append(simulated.full(simulated.f32, (100,), 5)))
            return int(theirs.ctypes.data)

    wrapped = simulated.field_from_ptr(Interrupting(), simulated.f32, (100,))
    assert simulated.memory_info().footprint == 400, "only the finalizer's is counted"
    known = plugged(simulated.__name__)
    assert known is not None and not known.adapter.buffers_of(wrapped) and known.adapter.buffers_of(made[0])
    assert wrapped.to_numpy()[99] == 99 and made[0].to_numpy()[99] == 5
