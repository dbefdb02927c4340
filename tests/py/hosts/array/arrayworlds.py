"""Scripts for processes of their own, with arrayhost on a simulated device and plugged in; and arrays for tests in this one."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import numpy as np
from flavours import Flavour

HOSTS = Path(__file__).resolve().parents[1]
EXAMPLES = HOSTS.parents[2] / "examples"

_START = """
    import sys
    sys.path[:0] = [{hosts!r}, {examples!r}]
    import gc, ctypes, threading
    import numpy as np, arrayhost as ah, tack_memory
    from tack_memory.hosts import _ablation, sim_library
    if {left_out!r}:
        _ablation.leave_out({left_out!r})
    device = {device!r}
    tack_memory.memory_info(device)
    ah.init({own!r}, library=sim_library({kind!r}), host_readable=True)
    tack_memory.install(ah)
    backend = ah.current_backend()

    def memory_at(address, dtype, count):
        return np.frombuffer((ctypes.c_char * (np.dtype(dtype).itemsize * count)).from_address(address), dtype)

    class Late:
        # The host's driver, which makes room as another thread would that needs it, right before each call of one function.
        def __init__(self, name):
            self.name, self.driver = name, backend.driver
            self.library, self.get = self.driver.library, self.driver.get
        def __call__(self, name, *arguments):
            if name == self.name:
                tack_memory._fast.spill_all(device)
                tack_memory.synchronize(device)
            return self.driver(name, *arguments)
"""

COPIES = {"cuda": "cuMemcpyAsync", "hip": "hipMemcpyAsync", "level_zero": "zeCommandListAppendMemoryCopy"}
"""The drivers' calls with which the host copies on the device."""


def array_script(flavour: Flavour, script: str, *, left_out: str = "") -> str:
    """A script after the lines that plug in to the host, with one kind of holds left out."""
    start = dedent(_START).format(hosts=str(HOSTS), examples=str(EXAMPLES), left_out=left_out, device=flavour.device(), own=flavour.own(), kind=flavour.kind)
    return start + dedent(script)


def memory_at(address: int, count: int) -> Any:
    """Numbers at an address, as they are: nothing keeps them there."""
    return np.frombuffer((ctypes.c_char * (8 * count)).from_address(address), np.float64)


def numbers(host: ModuleType, count: int = 1000, device: str | None = None) -> Any:
    return host.asarray(np.arange(float(count)), device=device)


if str(HOSTS) not in sys.path:
    sys.path.insert(0, str(HOSTS))
