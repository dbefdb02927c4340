"""The hosts that the tests of the field generation run on, and scripts for processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, NamedTuple

import tack_memory

HOSTS = Path(__file__).resolve().parents[1]


class Vendor(NamedTuple):
    """One vendor, simulated."""

    arch: str  # what the host calls it
    kind: str  # of our devices
    buffer: str  # the host's class
    module: str  # where that is
    allocates: str  # the driver's calls
    clears: str
    full: int  # the driver's code for: no room

    @property
    def device(self) -> str:
        return f"{self.kind}:0"


VENDORS = (
    Vendor("cuda", "sim", "CUDABuffer", "cuda_backend", "cuMemAlloc_v2", "cuMemsetD8_v2", 2),
    Vendor("hip", "sim-hip", "HIPBuffer", "hip_backend", "hipMalloc", "hipMemset", 2),
    Vendor("level_zero", "sim-level_zero", "L0Buffer", "level_zero_backend", "zeMemAllocDevice", "zeCommandListAppendMemoryCopy", 0x70000003),
)

_START = """
    import sys
    sys.path.insert(0, {hosts!r})
    import gc
    import numpy as np, fieldhost as fh, tack_memory
    from tack_memory.hosts import _ablation, sim_library
    for kind in {left_out!r}.split():
        _ablation.leave_out(kind)
"""

_GPU = """
    device = {device!r}
    tack_memory.memory_info(device)
    fh.init({arch!r}, library=sim_library({kind!r}))
    tack_memory.install(fh)
"""

_CPU = """
    fh.init("cpu")
    tack_memory.install(fh, simulate=0, simulate_addresses={addresses!r})
    device = tack_memory.hosts.plugged("fieldhost").adapter.simulated
"""


def gpu_script(vendor: Vendor, script: str, *, left_out: str = "") -> str:
    """A script after the lines that plug in to the host on a vendor's simulated device, with some kinds of holds left out."""
    start = dedent(_START + _GPU).format(hosts=str(HOSTS), left_out=left_out, device=vendor.device, arch=vendor.arch, kind=vendor.kind)
    return start + dedent(script)


def cpu_script(script: str, *, left_out: str = "", addresses: str = "fresh") -> str:
    """A script after the lines that plug in to the host, whose CPU backend computes on a simulated device: what is not in use is spilled."""
    return dedent(_START + _CPU).format(hosts=str(HOSTS), left_out=left_out, addresses=addresses) + dedent(script)


def with_a_part(host: ModuleType) -> tuple[Any, Any]:
    """A field of the CPU backend, simulated, with 100 fives; and one over ten of them, made from their address."""
    field = host.full(host.f64, (100,), 5)
    with tack_memory.hold(field):
        return field, host.field_from_ptr(field._buffer._data.ctypes.data + 80, host.f64, (10,))


if str(HOSTS) not in sys.path:
    sys.path.insert(0, str(HOSTS))
