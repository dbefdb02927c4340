"""Which device a host's backend is, and what it does for the device: its stream, its caches."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from flavours import FLAVOURS, Flavour
from plugged import plugged_script
from support import run_python

import tack_memory
from tack_memory.hosts import sim_library


def test_the_hosts_stream_is_the_devices(host: ModuleType, flavour: Flavour) -> None:
    host.zeros(10)
    assert tack_memory.stream(flavour.device()) == host.current_backend().stream


def test_the_hosts_caches_are_emptied_before_anything_is_spilled(host: ModuleType, flavour: Flavour) -> None:
    """Without pools the host frees late: what waits in its list is asked for when the device is full."""
    script = """
        kept = mh.full(50_000_000, 1, np.uint8)
        backend = mh.current_backend()
        backend.free(backend.allocate(150_000_000))
        assert len(backend._deferred) == 1
        ours = tack_memory.allocate(180_000_000, device)
        assert len(backend._deferred) == 0
        assert mh.memory_info().spill_count == 0
        print("right")
    """
    done = run_python(plugged_script(host, flavour, script), TMSOFT_POOLS="0")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_a_host_on_the_library_that_we_were_given_runs_on_a_real_device(host: ModuleType, flavour: Flavour, tmp_path: Path) -> None:
    library = str(shutil.copy(sim_library(flavour.kind), tmp_path / "driver_of_a_test.so"))
    script = """
        a = mh.asarray(np.arange(1000.0))
        assert mh.memory_info().device == tack_memory.memory_info().device == device
        tack_memory.spill(a)
        assert mh.reduce_sum(a) == 499500
        tack_memory.uninstall(mh)
        print(a[999])
    """
    switch = f"TACK_MEMORY_{flavour.vendor.upper()}_LIBRARY"
    done = run_python(plugged_script(host, flavour, script, library=library, device=flavour.own()), **{switch: library})
    assert (done.returncode, done.stdout) == (0, "999.0\n"), done.stderr


def test_a_host_on_another_driver_is_refused_before_a_pointer_is_mixed_up(host: ModuleType, flavour: Flavour, tmp_path: Path) -> None:
    library = str(shutil.copy(sim_library(flavour.kind), tmp_path / "driver_of_a_test.so"))
    switch = f"TACK_MEMORY_{flavour.vendor.upper()}_LIBRARY"
    script = f"""
        try:
            mh.zeros(10)
        except tack_memory.hosts.MissingSeamError as error:
            assert {switch!r} in str(error), error
            print("refused")
    """
    done = run_python(plugged_script(host, flavour, script, library=library))
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


def test_devices_of_several_vendors_at_a_time(host: ModuleType, flavour: Flavour) -> None:
    """A host may run on all of them: each device has its own books, and memory of one vendor is nobody else's."""
    other = next(one for one in FLAVOURS if one.kind != flavour.kind)
    tack_memory.memory_info(other.device())
    a = host.asarray(np.arange(1000))
    host.init(other.own(), library=sim_library(other.kind), host_readable=True)
    try:
        b = host.asarray(np.arange(500))
        assert host.memory_info().device == other.device()
    finally:
        host.init(flavour.own(), library=sim_library(flavour.kind), host_readable=True)
    assert (host.memory_info().in_use, host.memory_info(other.device()).in_use) == (a.nbytes, b.nbytes)
    assert tack_memory.spill(a, b) == a.nbytes + b.nbytes
    assert (host.reduce_sum(a), host.reduce_sum(b)) == (499500, 124750)
    with pytest.raises(ValueError, match="on one device|on two devices"):
        host.copyto(b, host.zeros(500, np.int64))
