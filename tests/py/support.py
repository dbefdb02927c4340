"""Helpers of the tests: the software driver's controls, reading a device's bytes, and running a script in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tack_memory
from tack_memory import Buffer, _devices
from tack_memory._settings import SWITCHES
from tack_memory.hosts import sim_library

KIB, MIB, GIB = 2**10, 2**20, 2**30

SIMULATED = ["sim:0", "sim-hip:0", "sim-level_zero:0"]
"""The vendors' backends over their software drivers."""

REAL = [name for name in os.environ.get("TACK_MEMORY_TEST_DEVICES", "").split(",") if name]
"""Real devices that `make test-gpu` names."""

NO_GPU = {name: "/nonexistent/library.so" for name in SWITCHES if name.endswith("_LIBRARY")}
"""An environment in which no vendor's library is found, whatever the machine has."""


class SoftDriver:
    """The control functions of a software driver, in the same library that the simulated device runs on."""

    def __init__(self, device: str = "sim:0") -> None:
        _devices.resolve(device)  # loads it
        self._device = device
        self._library = library = ctypes.CDLL(sim_library(device))
        library.tmsoft_set.argtypes, library.tmsoft_set.restype = [ctypes.c_char_p, ctypes.c_longlong], ctypes.c_int
        library.tmsoft_get.argtypes, library.tmsoft_get.restype = [ctypes.c_char_p], ctypes.c_longlong
        library.tmsoft_fail.argtypes, library.tmsoft_fail.restype = [ctypes.c_char_p, ctypes.c_ulong, ctypes.c_int], ctypes.c_int
        library.tmsoft_calls.argtypes, library.tmsoft_calls.restype = [ctypes.c_char_p], ctypes.c_ulong
        self._before: dict[str, int] = {}
        self._failing: set[str] = set()

    def set(self, key: str, value: int) -> None:
        """Change a setting until the end of the test."""
        before = self.get(key)
        if key == "taken" and value:  # what a host of an earlier test has left there is taken already
            info = tack_memory.memory_info(self._device)
            if info.device_free is not None and info.device_total is not None:
                left = info.device_total - info.device_free - before - info.in_use - info.pending_free - (info.cached or 0)
                value -= min(max(left, 0) // MIB * MIB, value)
        if self._library.tmsoft_set(key.encode(), value) != 0:
            raise ValueError(f"the software driver refuses {key} = {value}")
        self._before.setdefault(key, before)

    def get(self, key: str) -> int:
        return int(self._library.tmsoft_get(key.encode()))

    def fail(self, function: str, nth: int = 1, code: int = 2) -> None:
        """The nth next call of a vendor function fails with `code` (2: CUDA's and HIP's out of memory) without doing anything."""
        if self._library.tmsoft_fail(function.encode(), nth, code) != 0:
            raise ValueError(f"the software driver has no function {function}")
        self._failing.add(function)

    def live(self) -> int:
        """Blocks that clients have in the driver, once all that they gave back is back.

        Deferred frees (Level Zero) end on a thread of the driver's, which on a busy machine may come late, and no call waits for them."""
        wait_until(lambda: self.get("deferred") == 0, "the driver still keeps memory that was freed")
        return self.get("live")

    def calls(self, function: str) -> int:
        return int(self._library.tmsoft_calls(function.encode()))

    def restore(self) -> None:
        """Undo all that was set."""
        for function in self._failing:
            self._library.tmsoft_fail(function.encode(), 0, 0)
        for key, value in self._before.items():
            self._library.tmsoft_set(key.encode(), value)


def wait_until(condition: Callable[[], bool], otherwise: str, limit: float = 60) -> None:
    """Wait for what another thread does. The limit is for a broken program: no machine is so busy."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"{otherwise}, after {limit:g} s")
        time.sleep(0.001)


HOW = {"cuda": "cuMemAllocAsync", "hip": "hipMallocAsync", "level_zero": "zeMemAllocDevice"}
"""The vendors' own calls that allocate, as `adopt` takes them."""


def how_of(device: str) -> str:
    """How the vendor of a device allocates; simulated devices do as their vendor."""
    kind = device.partition(":")[0]
    return HOW["cuda" if kind == "sim" else kind.removeprefix("sim-")]


def doomed(device: str = "sim:0") -> Buffer:
    """A buffer whose memory the driver will refuse to free: it was freed behind our back."""
    buffer, stream = tack_memory.allocate(64, device), tack_memory.stream(device)
    free = ctypes.CDLL(sim_library(device)).cuMemFreeAsync
    free.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
    assert free(buffer.device_ptr, stream) == 0
    return buffer


def opened_devices() -> list[str]:
    return [name for name in _devices._opened if name != _devices.NUMPY]  # nothing but figures there


def books_of(device: str) -> tuple[int, int]:
    """(in_use, spilled)."""
    info = tack_memory.memory_info(device)
    assert info.in_use is not None and info.spilled is not None
    return info.in_use, info.spilled


def settle() -> None:
    """Collect garbage, and wait until what was dropped is back at the driver."""
    gc.collect()
    for device in opened_devices():
        tack_memory.synchronize(device)
        tack_memory.empty_cache(device)


def pattern(nbytes: int, seed: int = 1) -> bytes:
    """Bytes that differ from buffer to buffer and along each."""
    block = bytes((seed * 37 + place * 11 + (place >> 8) * 5) & 0xFF for place in range(min(nbytes, 4096)))
    return (block * (nbytes // max(1, len(block)) + 1))[:nbytes] if nbytes else b""


def filled(nbytes: int, device: str, seed: int = 1, **options: Any) -> tack_memory.Buffer:
    """A buffer with the contents of `pattern`."""
    buffer = tack_memory.allocate(nbytes, device, zero=False, **options)
    buffer.copy_from_host(pattern(nbytes, seed))
    return buffer


def peek(pointer: int, nbytes: int, device: str) -> bytes:
    """What a kernel would read there. The host itself reads a simulated device, which finds stale pointers, but no real one."""
    return contents(tack_memory.wrap(pointer, nbytes, device, None)) if device in REAL else ctypes.string_at(pointer, nbytes)


def poke(pointer: int, data: bytes, device: str) -> None:
    """What a kernel would write there."""
    if device in REAL:
        tack_memory.wrap(pointer, len(data), device, None).copy_from_host(data)
    else:
        ctypes.memmove(pointer, data, len(data))


def contents(buffer: tack_memory.Buffer | tack_memory.BufferView) -> bytes:
    return bytes(buffer.copy_to_host())


def crashed(returncode: int, errors: str) -> bool:
    """Whether memory that is not there has ended a process. In the interpreter of 'make race' Go's runtime shows the signal, and exits by itself."""
    return returncode == -signal.SIGSEGV or (returncode == 2 and "SIGSEGV: segmentation violation" in errors)


FORKS = "ignore:This process:DeprecationWarning"
"""From Python 3.12 on, fork() warns in a process with threads: Go's are always there."""


def run_python(
    script: str, *arguments: str, timeout: float = 120, simulated: str = "sim", device: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter; the switches of this process and `environment` apply.

    A script that was written for "sim:0" runs on another kind of simulated device with `simulated`, and on any device with `device`: of a real one the
    first alone, so "sim:1" stays what it is."""
    if device in REAL:
        script = script.replace('"sim:0"', f'"{device}"')
    else:
        simulated = device.partition(":")[0] if device else simulated
        script = script.replace('"sim:', f'"{simulated}:').replace("SoftDriver()", f'SoftDriver("{simulated}:0")')
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", FORKS, "-c", textwrap.dedent(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
