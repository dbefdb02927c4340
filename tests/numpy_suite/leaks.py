"""Makes, changes and drops very many small arrays of one allocator, and looks at how much more resident memory the process has afterwards.

    leaks.py ALLOCATOR ARRAYS

Ends with 1 where that is 1 MiB or more, or where the books say that something is alive. `make test-numpy` runs it with ten million arrays, the tests
with a million.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy
from run import ALLOCATORS

import tack_memory.numpy as tn
from tack_memory._native import _numpy

CAPSULE = "capsule"
"""A handler of somebody else's, beside the allocators by name."""

NAME = b"mem_handler"
"""Of the capsule, which does not copy it."""

MOST = 2**20
WARM = 20_000
"""Arrays until everything that is there once is there."""

handlers: list[Any] = []
"""What capsules point to."""


def somebody_elses() -> Any:
    """A capsule with the functions of NumPy's own handler and another name, as an extension module would have it."""

    class Handler(ctypes.Structure):  # NEP 49
        _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("functions", ctypes.c_void_p * 5))

    pointer, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
    handler = Handler.from_buffer_copy(ctypes.string_at(pointer(_numpy.current_handler(), NAME), ctypes.sizeof(Handler)))
    handler.name = b"somebody_elses"
    handlers.append(handler)
    return new(ctypes.addressof(handler), NAME, None)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def make(count: int) -> None:
    """So many arrays, with each way to make, change and drop them."""
    for _ in range(count // 4):
        numpy.empty(100, "u1")
        numpy.zeros(12)
        array = numpy.ones(20)
        array.resize(30, refcheck=False)
        array[3:].copy()


def main(allocator: str, count: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"allocator": somebody_elses()} if allocator == CAPSULE else dict(ALLOCATORS[allocator])
        if "path" in options:
            options["path"] = str(Path(folder) / options["path"])
        tn.install(**options)
        make(WARM)
        before, begun = resident(), tn.statistics()
        make(count)
        grown, ended = resident() - before, tn.statistics()
    made = ended.allocations - begun.allocations
    print(f"{allocator}: {made:,} small arrays, {ended.live - begun.live:,} more alive, {grown / 1024:+,.0f} KiB of resident memory")
    return 0 if made >= count and ended.live == begun.live and grown < MOST else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
