"""Plugging in to a host of the array generation that has all that the plan names, and to one that has none of it."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
from arrayworlds import array_script
from flavours import FLAVOURS, Flavour
from plugging import attributes, same
from support import run_python

import tack_memory
from tack_memory.hosts import _array_seams


def test_uninstall_leaves_every_attribute_as_it_was(array_unplugged: ModuleType, flavour: Flavour) -> None:
    import arrayhost.interop.vtk
    import arrayhost.lang.mpi

    host = array_unplugged
    before = attributes(host)
    tack_memory.install(host)
    changed = {key for key, value in attributes(host).items() if before.get(key) is not value}
    assert ("arrayhost.lang.mpi", "allocate_mpi_array") in changed and ("arrayhost.runtime.kernel_utils", "_create_pack_arrays") in changed
    a, m = host.asarray([1, 2, 3]), arrayhost.lang.mpi.allocate_mpi_array((5,))
    assert tack_memory.memory_info(flavour.device()).in_use == a.nbytes + m.nbytes
    tack_memory.uninstall(host)
    assert same(before, attributes(host))
    assert tack_memory.memory_info(flavour.device()).in_use == 0
    assert a[2] == 3 and m[4] == 0 and "_tack_memory" not in vars(m._buffer)


def test_a_host_without_the_extras_is_plugged_in_all_the_same(bare: ModuleType) -> None:
    """examples/minihost has none of them."""
    assert not any(_array_seams.extras(bare))
    tack_memory.install(bare)
    try:
        a = bare.asarray(np.arange(10))
        assert tack_memory.spill(a) == a.nbytes and bare.reduce_sum(a) == 45
    finally:
        del a
        tack_memory.uninstall(bare)


@pytest.mark.parametrize("name", ["share", "export_memory", "write_range", "copy_range"])
def test_each_method_may_be_missing(array_unplugged: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(sys.modules["arrayhost.runtime.grown"].GrownBuffer, name)
    tack_memory.install(array_unplugged)
    a = array_unplugged.asarray(np.arange(10))
    assert tack_memory.spill(a) == a.nbytes and array_unplugged.reduce_sum(a) == 45


def test_a_module_for_mpi_that_comes_late() -> None:
    script = """
        assert "arrayhost.lang.mpi" not in sys.modules
        from arrayhost.lang import mpi
        a = mpi.allocate_mpi_array((100,))
        assert ah.memory_report().holds == {"unmovable: mpi": 800}
        tack_memory.uninstall(ah)
        assert not hasattr(mpi.allocate_mpi_array, "__wrapped__")
        assert a.numpy().sum() == 0
        print("right")
    """
    done = run_python(array_script(FLAVOURS[0], script))
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_a_device_is_known_by_the_hosts_name_before_anything_is_on_it(flavour: Flavour) -> None:
    script = f"""
        assert ah.memory_info({flavour.own(1)!r}).device == {flavour.device(1)!r}
        assert ah.memory_info().in_use == 0
        print("right")
    """
    done = run_python(array_script(flavour, script))
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
