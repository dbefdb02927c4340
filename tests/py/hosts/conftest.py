"""A host for the tests: examples/minihost over the software driver, plugged in for one test at a time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tack_memory
from tack_memory.hosts import sim_library

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))


@pytest.fixture(scope="session")
def bare() -> ModuleType:
    """Minihost as it is, on the software driver, not plugged in."""
    import minihost

    for name in ("sim:0", "sim:1"):
        tack_memory.memory_info(name)  # our side decides how large the devices are; the library is loaded once for both
    minihost.init("cuda:0", library=sim_library(), host_readable=True)
    return minihost


@pytest.fixture
def host(bare: ModuleType) -> Iterator[ModuleType]:
    """Minihost, plugged in until the end of the test."""
    tack_memory.install(bare)
    yield bare
    gc.collect()
    tack_memory.uninstall(bare)
