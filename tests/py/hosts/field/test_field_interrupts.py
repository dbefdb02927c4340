"""Ctrl-C at any moment of what stands in the place of a host's own functions: nothing is held, leaked or freed twice."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import worlds  # noqa: F401  # finds the modules of the folder above
from support import SoftDriver
from test_host_interrupts import Signal
from worlds import VENDORS, Vendor

import tack_memory
from tack_memory import hosts
from tack_memory._native import _fast

LEVEL_ZERO = VENDORS[2]
FOLDER = Path(hosts.__file__).parent
FILES = {
    str(FOLDER / f"{name}.py") for name in ("_field_buffers", "_field_launches", "_field_simulated", "_holds", "_host_access", "_pointer_buffers", "_room")
}


def at_every_moment(calls: dict[str, Callable[[], object]], fields: list[Any], state: Callable[[], object]) -> None:
    for name, call in calls.items():
        call()  # the first time it may do more
        tack_memory.spill(*fields)
        start = state()
        for nth in itertools.count(1):
            came = Signal(nth, FILES).during(call)
            tack_memory.spill(*fields)
            assert state() == start, f"{name}, moment {nth}"
            if not came:
                break
        assert nth > 3 or name == "launch", f"{name}: hardly a moment of it was tried"  # what holds a launch is C: nothing comes in between
    assert _fast.take_notices() == "[]", "something was freed twice"


@pytest.mark.parametrize("vendor", [LEVEL_ZERO], indirect=True, ids=["level_zero"])  # the one with most Python in between
def test_a_signal_at_any_moment_on_a_gpu(gpu: ModuleType, vendor: Vendor, soft: SoftDriver) -> None:
    soft.set("implicit_sync", 1)  # the host's own free waits for what it has queued on the memory, as a real driver's does
    known = hosts.plugged(gpu.__name__)
    assert known is not None
    thread = known.adapter._buffers.thread  # type: ignore[attr-defined]

    @gpu.kernel
    def add(a: Any, b: Any, out: Any) -> None:
        out[:] = a + b

    @gpu.kernel
    def sample(image: Any, out: Any) -> None:
        out[:] = image.sum()

    fields = [gpu.full(gpu.f64, 100, n) for n in range(3)]
    image = gpu.texture3d(gpu.full(gpu.f32, (2, 2, 2), 1))

    def state() -> object:
        gc.collect()
        tack_memory.synchronize(vendor.device)
        info = tack_memory.memory_info(vendor.device)
        holds = [mine.holds for field in fields for mine in known.adapter.buffers_of(field) or ()]
        return (
            info.in_use,
            info.spilled,
            info.reserved,
            soft.live(),
            holds,
            thread.building,
            thread.wrapping,
            thread.reservation,
            thread.holding,
            thread.backend,
        )

    at_every_moment(
        {
            "make": lambda: gpu.full(gpu.f64, 50, 7),
            "launch": lambda: add(*fields),
            "texture": lambda: sample(image, fields[2]),
            "reduce": lambda: fields[0].sum(),
            "wrap": lambda: gpu.field_from_ptr(fields[0]._buffer.address + 8, gpu.f64, 10),
        },
        fields,
        state,
    )
    add(fields[1], fields[1], fields[2])
    assert (fields[2].to_numpy() == 2).all()


@pytest.mark.parametrize("simulated", ["fresh"], indirect=True)
def test_a_signal_at_any_moment_on_a_simulated_cpu(simulated: ModuleType, simulated_device: str) -> None:
    if simulated.__name__ == "tack":
        pytest.skip("needs kernels over whole NumPy arrays, as fieldhost's are, and Tack's are loops over indices; the code that is interrupted is the same")
    known = hosts.plugged(simulated.__name__)
    assert known is not None

    @simulated.kernel
    def add(a: Any, b: Any, out: Any) -> None:
        out[:] = a + b

    fields = [simulated.full(simulated.f64, 100, n) for n in range(3)]

    def state() -> object:
        gc.collect()
        info = tack_memory.memory_info(simulated_device)
        holds = [mine.holds for field in fields for mine in known.adapter.buffers_of(field) or ()]
        thread = known.adapter._cpu._thread  # type: ignore[attr-defined]
        return info.in_use, info.spilled, info.reserved, holds, thread.making, thread.wrapping

    at_every_moment(
        {
            "make": lambda: simulated.full(simulated.f64, 50, 7),
            "launch": lambda: add(*fields),
            "read": lambda: fields[0].to_numpy(),
            "write": lambda: fields[0].from_numpy(np.arange(100)),
            "fill": lambda: fields[0].fill(3),
            "wrap": lambda: simulated.field_from_ptr(fields[0]._buffer._data, simulated.f64, (100,)),
        },
        fields,
        state,
    )
