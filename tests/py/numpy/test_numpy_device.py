"""The device name "numpy" in the functions that tell figures, and its refusal in all others."""

from __future__ import annotations

import threading
from typing import Any

import numpy
import pytest
from numpy_support import MIB
from support import run_python

import tack_memory
import tack_memory.numpy as tn


@pytest.fixture(autouse=True)
def installed() -> Any:
    tn.install()
    yield
    tn.uninstall()


def test_memory_info() -> None:
    before = tack_memory.memory_info("numpy")
    array = numpy.zeros(MIB, "u1")
    info = tack_memory.memory_info("numpy")
    assert info.in_use == before.in_use + MIB
    assert info.peak >= info.in_use
    assert (info.device, info.spilled, info.budget, info.strict) == ("numpy", 0, None, False)
    assert (info.cached, info.device_free, info.device_total, info.available, info.host_bytes) == (None,) * 5
    assert info.reserved == before.reserved + 16, "what lies around the arrays"
    assert "numpy: in use" in repr(info)
    del array
    assert tack_memory.memory_info("numpy").in_use == before.in_use


def test_peaks_nest_and_reset_disturbs_none() -> None:
    with tack_memory.memory_peak("numpy") as outer:
        kept = numpy.zeros(MIB, "u1")
        numpy.zeros(8 * MIB, "u1")
        with tack_memory.memory_peak("numpy") as inner:
            numpy.zeros(3 * MIB, "u1")
            tack_memory.reset_peak_memory("numpy")
            kept.resize(2 * MIB, refcheck=False)
        assert tack_memory.memory_info("numpy").peak == inner.start + MIB
    assert (inner.delta, inner.own) == (3 * MIB, 3 * MIB)
    assert (outer.delta, outer.own, outer.end - outer.start) == (9 * MIB, 9 * MIB, 2 * MIB)
    assert outer.by_device["numpy"] == outer.bytes == outer.start + 9 * MIB
    assert outer.at_peak is None


def test_own_counts_what_the_block_made() -> None:
    older = numpy.zeros(4 * MIB, "u1")
    with tack_memory.memory_peak("numpy") as peak:
        del older
        kept = numpy.zeros(3 * MIB, "u1")
    assert (peak.delta, peak.own, peak.end - peak.start) == (0, 3 * MIB, -MIB)
    del kept


def test_a_peak_is_exact_across_threads() -> None:
    """All hold their array at the same moment: the peak is their sum, to the byte."""
    threads, size = 8, 123_457
    barrier = threading.Barrier(threads)

    def work() -> None:
        array = numpy.zeros(size, "u1")
        barrier.wait()
        for _ in range(300):
            numpy.zeros(1000, "u1")
        barrier.wait()
        del array

    with tack_memory.memory_peak("numpy") as peak:
        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert threads * size <= peak.delta <= threads * (size + 1000)
    assert peak.own == peak.delta
    assert peak.end == peak.start


def test_a_device_that_has_only_figures() -> None:
    for refused in (
        lambda: tack_memory.set_memory_budget("1 GiB", "numpy"),
        lambda: tack_memory.set_memory_budget(None, "numpy"),
        lambda: tack_memory.memory_budget("1 GiB", "numpy").__enter__(),
        lambda: tack_memory.allocate(16, "numpy"),
        lambda: tack_memory.wrap(4096, 16, "numpy", None),
        lambda: tack_memory.reserve(16, "numpy"),
        lambda: tack_memory.synchronize("numpy"),
        lambda: tack_memory.stream("numpy"),
        lambda: tack_memory.empty_cache("numpy"),
    ):
        with pytest.raises(ValueError, match="numpy: .* counted only"):
            refused()
    assert tack_memory.get_memory_budget("numpy") is None
    assert "numpy" not in tack_memory.devices()


def test_the_timeline_is_not_for_it() -> None:
    with pytest.raises(ValueError, match="counted only"):
        tack_memory.record_timeline("numpy").__enter__()


def test_before_anything_counts_it_it_is_unknown() -> None:
    script = """
        import tack_memory
        try:
            tack_memory.memory_info("numpy")
        except ValueError as error:
            assert "tack_memory.numpy.install()" in str(error), error
        import sys
        assert "numpy" not in sys.modules
        import tack_memory.numpy as tn
        with tack_memory.memory_peak("cpu") as peak:   # is open when NumPy's memory becomes a device
            with tn.use():
                import numpy
                numpy.zeros(12345, "u1")
        assert peak.by_device == {"cpu": 0, "numpy": 12345}, peak.by_device
        print("right")
    """
    done = run_python(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "right"
