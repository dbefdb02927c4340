"""The host makes its backend on a device anew (`init` is called again): with a new context, in which all is from then on (Level Zero), or the same one."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support import SoftDriver, settle
from worlds import VENDORS, Vendor

import tack_memory
from tack_memory.hosts import sim_library

LEVEL_ZERO = VENDORS[2]


def again(host: ModuleType, vendor: Vendor) -> None:
    host.init(vendor.arch, library=sim_library(vendor.kind))


def test_nothing_is_lost_or_counted_twice(gpu: ModuleType, vendor: Vendor, soft: SoftDriver) -> None:
    settle()
    live = soft.live()
    old = [gpu.full(gpu.f64, 100, n) for n in range(3)]
    part = gpu.field_from_ptr(old[1]._buffer.address + 80, gpu.f64, 10)
    tack_memory.spill(old[0])
    again(gpu, vendor)
    assert (gpu.memory_info().device, gpu.memory_info().footprint) == (vendor.device, 2400)
    new = [gpu.full(gpu.f64, 100, n) for n in range(3, 6)]
    assert gpu.memory_info().footprint == 4800
    assert tack_memory.spill(*new) == 2400
    assert [int(one.to_numpy()[-1]) for one in (*old, *new, part)] == [0, 1, 2, 3, 4, 5, 1]
    old[1].from_numpy(np.full(100, 7.0))
    assert part.to_numpy()[9] == 7
    again(gpu, vendor)
    assert gpu.memory_info().footprint == 4800
    del old, part
    assert gpu.memory_info().footprint == 2400
    del new
    gc.collect()
    settle()
    assert (gpu.memory_info().footprint, soft.live()) == (0, live)


@pytest.mark.parametrize("vendor", [LEVEL_ZERO], indirect=True, ids=["level_zero"])
def test_what_lies_in_an_earlier_context_stays_and_says_why(gpu: ModuleType, vendor: Vendor) -> None:
    old = gpu.full(gpu.f64, 100, 1)
    again(gpu, vendor)
    new = gpu.full(gpu.f64, 50, 2)
    assert gpu.memory_report().holds == {"unmovable: in an earlier context of the host's": 800}
    assert tack_memory.spill(old, new) == 400
    tack_memory.uninstall(gpu)
    assert tack_memory.memory_info(vendor.device).footprint == 0 and "_tack_memory" not in vars(old._buffer)
    assert (old.to_numpy() == 1).all() and (new.to_numpy() == 2).all()
    tack_memory.install(gpu)  # the current backend's context is the one that counts, whichever field is found first
    assert gpu.memory_report().holds == {"unmovable: in an earlier context of the host's": 800}
    assert (tack_memory.spill(old, new), gpu.memory_info().footprint) == (400, 1200)


@pytest.mark.parametrize("vendor", [LEVEL_ZERO], indirect=True, ids=["level_zero"])
def test_memory_that_others_have_keeps_its_context(gpu: ModuleType, vendor: Vendor) -> None:
    """The new context cannot be used as long as they have it, and nothing is lost by the try."""
    old = [gpu.full(gpu.f64, 100, n) for n in range(3)]
    capsule: Any = old[1].__dlpack__()
    again(gpu, vendor)
    for _ in range(2):
        with pytest.raises(BufferError):
            gpu.full(gpu.f64, 50, 2)
    assert tack_memory.memory_info(vendor.device).footprint == 2400
    assert tack_memory.spill(*old) == 1600
    del capsule
    new = gpu.full(gpu.f64, 50, 3)
    assert gpu.memory_info().footprint == 2800
    assert [int(one.to_numpy()[9]) for one in (*old, new)] == [0, 1, 2, 3]
