"""Arrayhost, a host in the shape of the array generation, over each software driver, plugged in for one test at a time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import ModuleType

import arrayworlds  # noqa: F401 (makes the host importable)
import pytest
from flavours import Flavour
from plugging import take_out

import tack_memory
from tack_memory.hosts import sim_library


@pytest.fixture(scope="session")
def array_bare(flavour: Flavour) -> ModuleType:
    """The host as it is, not plugged in. New arrays are made on this flavour's first device."""
    import arrayhost

    for ordinal in (0, 1):
        tack_memory.memory_info(flavour.device(ordinal))  # our side decides how large the devices are
    arrayhost.init(flavour.own(), library=sim_library(flavour.kind), host_readable=True)
    return arrayhost


@pytest.fixture
def array_unplugged(array_bare: ModuleType, flavour: Flavour) -> Iterator[ModuleType]:
    """The host, not plugged in; the test may plug it in. It ends without anything that the host's backend keeps."""
    array_bare.init(flavour.own(), library=sim_library(flavour.kind), host_readable=True)
    yield array_bare
    gc.collect()
    for backend in list(array_bare.runtime.devices._backends.values()):
        backend._cache.clear()  # the buffers for scalars go with the kernels
        backend._tex_cache.clear()
    take_out(array_bare)
    for backend in list(array_bare.runtime.devices._backends.values()):
        backend.empty_cache()


@pytest.fixture
def host(array_unplugged: ModuleType) -> ModuleType:
    """The host, plugged in until the end of the test."""
    tack_memory.install(array_unplugged)
    return array_unplugged
