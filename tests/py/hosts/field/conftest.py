"""Hosts of the field generation, plugged in for one test at a time: fieldhost, and Tack where it can be imported."""

from __future__ import annotations

import gc
import importlib
import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest
from support import SoftDriver
from worlds import VENDORS, Vendor

import tack_memory
from tack_memory.hosts import plugged, sim_library

WITH_CPU = ["fieldhost", *(["tack"] if importlib.util.find_spec("tack") else [])]


@pytest.fixture(scope="session", params=WITH_CPU)
def cpu_host(request: pytest.FixtureRequest) -> ModuleType:
    """A host as it is, not plugged in; it computes on its CPU backend."""
    host = importlib.import_module(request.param)
    host.init("cpu")
    return host


@pytest.fixture
def counted(cpu_host: ModuleType) -> Iterator[ModuleType]:
    """The host on its CPU backend, plugged in: its fields are counted."""
    cpu_host.init("cpu")
    tack_memory.install(cpu_host)
    yield cpu_host
    gc.collect()
    tack_memory.uninstall(cpu_host)


@pytest.fixture(params=["fresh", "reuse"])
def simulated(cpu_host: ModuleType, request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The host on its CPU backend, which computes on a simulated device: whatever is not in use is spilled."""
    cpu_host.init("cpu")
    tack_memory.install(cpu_host, simulate=0, simulate_addresses=request.param)
    yield cpu_host
    gc.collect()
    tack_memory.uninstall(cpu_host)


@pytest.fixture
def simulated_device(simulated: ModuleType) -> str:
    """The name of that device."""
    known = plugged(simulated.__name__)
    assert known is not None and known.adapter.simulated is not None
    return known.adapter.simulated


@pytest.fixture(scope="session", params=VENDORS, ids=lambda vendor: vendor.arch)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    """The vendor on whose backend the host computes."""
    found: Vendor = request.param
    return found


@pytest.fixture(scope="session")
def gpu_bare(vendor: Vendor) -> ModuleType:
    """Fieldhost on a GPU backend, not plugged in."""
    import fieldhost

    tack_memory.memory_info(vendor.device)  # our side decides how large the device is
    fieldhost.init(vendor.arch, library=sim_library(vendor.kind))
    return fieldhost


@pytest.fixture
def gpu(gpu_bare: ModuleType, vendor: Vendor) -> Iterator[ModuleType]:
    """Fieldhost on a GPU backend, plugged in until the end of the test."""
    gpu_bare.init(vendor.arch, library=sim_library(vendor.kind))
    tack_memory.install(gpu_bare)
    yield gpu_bare
    gc.collect()
    gpu_bare.get_backend()._cache.clear()  # the buffers for scalars go with the kernels
    tack_memory.uninstall(gpu_bare)


@pytest.fixture
def soft(vendor: Vendor) -> Iterator[SoftDriver]:
    """The controls of the vendor's software driver; what a test sets is undone."""
    driver = SoftDriver(vendor.device)
    yield driver
    driver.restore()
