"""Helpers of the tests of NumPy's memory."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy
from support import run_python

import tack_memory.numpy as tn

MIB = 2**20
OLD = numpy.lib.NumpyVersion(numpy.__version__) < "2.0.0"

_files = tempfile.TemporaryDirectory(prefix="tack_memory-")

ALLOCATORS: dict[str, dict[str, Any]] = {
    "default": {},
    "aligned-64": {"allocator": "aligned"},
    "aligned-4096": {"allocator": "aligned", "align": 4096},
    "hugepage": {"allocator": "hugepage"},
    "shared": {"allocator": "shared"},
    "mmap": {"allocator": "mmap", "path": f"{_files.name}/arrays"},
}
"""Arguments of install and use, by name; the tests add a handler of another extension."""


def ended_well(script: str, *arguments: str, **environment: str) -> str:
    """Runs a script in a fresh interpreter, which must end with 0. Gives what it printed."""
    done = run_python(script, *arguments, **environment)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def owner_of(array: Any) -> Any:
    """The array that owns the memory, found without tack_memory; None: it is no array's."""
    while isinstance(array, numpy.ndarray):
        if array.flags.owndata:
            return array
        array = array.base
    return None


def asked_for(array: Any) -> int:
    """What NumPy asks its handler for, for an array that owns its memory: for an empty one a byte."""
    return int(array.nbytes or 1)


def expected(arrays: Iterable[Any]) -> int:
    """Bytes of all memory that these arrays keep alive, once each."""
    owners = {id(owner): owner for owner in map(owner_of, arrays) if owner is not None}
    return sum(map(asked_for, owners.values()))


def in_use() -> int:
    gc.collect()
    return tn.statistics().in_use
