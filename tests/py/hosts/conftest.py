"""A host for the tests: examples/minihost over each software driver, plugged in for one test at a time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from flavours import FLAVOURS, Flavour
from support import SoftDriver

import tack_memory
from tack_memory.hosts import sim_library

pytest.register_assert_rewrite("plugging")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))


@pytest.fixture(scope="session", params=FLAVOURS, ids=lambda flavour: flavour.kind)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    """The kind of device that the host runs on."""
    found: Flavour = request.param
    return found


@pytest.fixture(scope="session")
def bare(flavour: Flavour) -> ModuleType:
    """Minihost as it is, not plugged in. New arrays are made on this flavour's first device."""
    import minihost

    for ordinal in (0, 1):
        tack_memory.memory_info(flavour.device(ordinal))  # our side decides how large the devices are; the library is loaded once for both
    minihost.init(flavour.own(), library=sim_library(flavour.kind), host_readable=True)
    return minihost


@pytest.fixture
def host(bare: ModuleType) -> Iterator[ModuleType]:
    """Minihost, plugged in until the end of the test."""
    tack_memory.install(bare)
    yield bare
    gc.collect()
    tack_memory.uninstall(bare)


@pytest.fixture
def soft(flavour: Flavour) -> Iterator[SoftDriver]:
    """The controls of the flavour's software driver; what a test sets is undone."""
    driver = SoftDriver(flavour.device())
    yield driver
    driver.restore()
