"""The CPU backend of the field generation, plugged in: its fields are counted on "cpu", and nothing else changes."""

from __future__ import annotations

import gc
from types import ModuleType

import numpy as np
import pytest
from support import run_python
from worlds import HOSTS

import tack_memory
from tack_memory.hosts import _counted_arrays


def test_every_field_is_counted_for_as_long_as_it_lives(counted: ModuleType) -> None:
    host = counted
    before = tack_memory.memory_info("cpu").in_use
    fields = [host.field(dtype, shape) for dtype in (host.f32, host.i64) for shape in ((1000,), (3, 7), 11)]
    nbytes = sum(field._buffer.nbytes for field in fields)
    assert host.memory_info().device == "cpu"
    assert host.memory_info().in_use == before + nbytes
    view = fields[0].reshape((10, 100)) if host.__name__ == "tack" else fields[0].reshape(10, 100)
    del fields
    assert host.memory_info().in_use == before + view._buffer.nbytes
    del view
    assert host.memory_info().in_use == before


def test_fields_are_ordinary_arrays(counted: ModuleType) -> None:
    """Nothing can be spilled here, so nothing stands between the host and its memory."""
    field = counted.full(counted.f64, (100,), 3.0)
    assert type(vars(field._buffer)["_data"]) is np.ndarray
    assert not hasattr(counted.runtime.cpu.CPUBackend.execute, "__wrapped__")
    assert tack_memory.spill(field) == 0
    assert field.sum() == 300


@pytest.mark.filterwarnings("ignore:cpu. a budget is counted here")
def test_a_strict_budget_refuses_before_anything_is_allocated(counted: ModuleType) -> None:
    in_use = tack_memory.memory_info("cpu").in_use
    with counted.memory_budget(in_use + 5000, strict=True):
        kept = counted.field(counted.f64, (500,))
        with pytest.raises(tack_memory.DeviceMemoryError, match="budget"):
            counted.field(counted.f64, (500,))
    assert counted.memory_info().in_use == in_use + kept._buffer.nbytes
    assert counted.memory_info().reserved == 0


def test_a_field_that_cannot_be_made_is_not_counted(counted: ModuleType) -> None:
    in_use = tack_memory.memory_info("cpu").in_use
    with pytest.raises((MemoryError, ValueError)):
        counted.field(counted.f64, (1 << 50,))
    info = counted.memory_info()
    assert (info.in_use, info.reserved) == (in_use, 0)


def test_peaks_and_labels(counted: ModuleType) -> None:
    with counted.memory_peak() as peak:
        field = counted.zeros(counted.f64, (1000,))
        del field
    assert peak.own == 8000
    field = counted.zeros(counted.f64, (1000,))
    tack_memory.label("mesh", field)
    assert "mesh" in [holder.label for holder in counted.memory_report().holders]


def test_fields_older_than_install_are_counted(cpu_host: ModuleType) -> None:
    cpu_host.init("cpu")
    before = tack_memory.memory_info("cpu").in_use
    old = cpu_host.full(cpu_host.f32, (1000,), 1)
    foreign = cpu_host.field_from_ptr(np.zeros(50, np.float32), cpu_host.f32, (50,))
    tack_memory.install(cpu_host)
    try:
        assert cpu_host.memory_info().in_use - before >= 4000
        with_old = cpu_host.memory_info().in_use
        del foreign
        assert cpu_host.memory_info().in_use == with_old  # somebody else's memory was never counted
        del old
        assert cpu_host.memory_info().in_use == with_old - 4000
    finally:
        gc.collect()
        tack_memory.uninstall(cpu_host)
    assert tack_memory.memory_info("cpu").in_use == before


def test_a_forked_child_computes_on(counted: ModuleType) -> None:
    script = f"""
        import os, sys
        sys.path.insert(0, {str(HOSTS)!r})
        import numpy as np, fieldhost as fh, tack_memory
        fh.init("cpu")
        tack_memory.install(fh)

        @fh.kernel
        def double(x, out):
            out[:] = 2 * x

        x = fh.full(fh.f64, 1000, 3)
        child = os.fork()
        if not child:
            out = fh.zeros(fh.f64, 1000)
            double(x, out)
            os._exit(0 if out.sum() == 6000 else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = run_python(script)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_an_array_that_was_put_in_anothers_place_is_counted_no_more(counted: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    """Its old memory is free, and may be the next field's."""
    host, count = counted, 300
    before = host.memory_info().in_use
    stale = [host.full(host.f32, (1000,), n) for n in range(count)]
    for field in stale:
        field._buffer._data = np.full(1000, -1.0, np.float32)
    fields = [host.full(host.f32, (1000,), n) for n in range(count)]
    used_again = sum("_tack_memory" not in vars(field._buffer) for field in stale)
    assert used_again, "no field has got memory that another one had"
    assert all("_tack_memory" in vars(field._buffer) for field in fields)
    assert host.memory_info().in_use == before + 4000 * (2 * count - used_again)
    assert [field.to_numpy()[999] for field in (*stale, *fields)] == [-1.0] * count + list(range(count))
    assert not caplog.records
    del stale, field, fields
    assert host.memory_info().in_use == before


def test_what_cannot_be_counted_is_the_hosts_all_the_same(counted: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is known as something else's. That is said once."""
    host = counted
    told: list[str] = []
    monkeypatch.setattr(_counted_arrays, "warning", lambda text, *values: told.append(text % values))
    theirs = np.zeros(1000, np.float32)
    known = tack_memory.adopt(theirs.ctypes.data, theirs.nbytes, "cpu", how="host")
    in_use = host.memory_info().in_use
    made = host.field(host.f32, (1000,))
    fields = []
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(np, "zeros", lambda shape, dtype=float: theirs)
            fields.append(host.field(host.f32, (1000,)))
    assert [one._buffer._data is theirs for one in fields] == [True, True]
    assert host.memory_info().in_use == in_use + made._buffer.nbytes and host.memory_info().reserved == 0
    assert len(told) == 1 and "4000 bytes" in told[0] and "overlaps" in told[0]
    known.free()
