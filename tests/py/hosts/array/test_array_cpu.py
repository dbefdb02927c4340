"""The CPU backend of the array generation, which is no GPU backend: its arrays are counted, and never moved."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tack_memory


@pytest.fixture
def on_cpu(array_unplugged: ModuleType) -> Iterator[ModuleType]:
    """The host on its CPU backend, not plugged in; the test may plug it in."""
    array_unplugged.init("cpu")
    yield array_unplugged


def test_what_is_made_before_and_after_install_is_counted_until_it_ends(on_cpu: ModuleType) -> None:
    host = on_cpu
    old = host.asarray(np.arange(100.0))
    theirs = np.arange(50.0)
    over = host.wrap_ptr(theirs, 50, np.float64)
    tack_memory.install(host)
    assert (host.memory_info().device, host.memory_info("cpu").in_use, host.memory_info(host.device("cpu")).in_use) == ("cpu", 800, 800)
    new, part = host.zeros((10, 20)), old[10:20]
    assert host.memory_info().in_use == 2400, "a view is counted with its base, and memory of others is not"
    with host.memory_peak() as peak:
        host.zeros(500)
    assert peak.own == 4000 and host.memory_info().in_use == 2400
    assert tack_memory.spill(old, new, part, over) == 0
    del new
    assert host.memory_info().in_use == 800
    tack_memory.uninstall(host)
    assert tack_memory.memory_info("cpu").in_use == 0
    assert "_tack_memory" not in vars(old._buffer) and (part.numpy() == np.arange(10, 20)).all() and over[49] == 49


def test_it_computes_as_without_us(on_cpu: ModuleType) -> None:
    host = on_cpu
    tack_memory.install(host)

    @host.kernel(writes="out")
    def scaled(a: Any, factor: float, out: Any) -> None:
        out[:] = a * factor

    a = host.asarray(np.arange(1000.0))
    out = host.zeros(1000)
    scaled(a[100:200], 2.0, out[500:600])
    assert (out.numpy()[499:602] == [0, *range(200, 400, 2), 0, 0]).all()
    assert [f(a[10:20]) for f in (host.reduce_sum, host.reduce_min, host.reduce_max)] == [145, 10, 19]
    host.copyto(a[0:10], 7)
    host.copyto(out, a)
    assert out[9] == 7 and out[10] == 10
    consumer = np.from_dlpack(host.asarray(np.arange(3.0)))
    gc.collect()
    assert (consumer == [0, 1, 2]).all()


@pytest.mark.filterwarnings("ignore:cpu. a budget is counted here")
def test_a_strict_budget_refuses_with_the_hosts_error(on_cpu: ModuleType) -> None:
    host = on_cpu
    tack_memory.install(host)
    with host.memory_budget(1000, strict=True):
        kept = host.zeros(100)
        with pytest.raises(host.DeviceMemoryError) as caught:
            host.zeros(100)
        assert isinstance(caught.value, tack_memory.DeviceMemoryError) and caught.value.device == "cpu"
        del kept
        host.zeros(100)
    assert host.memory_info().in_use == 0
