"""Which device a host's backend is, and what it does for the device: its stream, its caches."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

from plugged import plugged_script
from support import run_python

import tack_memory
from tack_memory.hosts import sim_library


def test_the_hosts_stream_is_the_devices(host: ModuleType) -> None:
    host.zeros(10)
    assert tack_memory.stream("sim:0") == host.current_backend().stream


def test_the_hosts_caches_are_emptied_before_anything_is_spilled(host: ModuleType) -> None:
    """Without pools the host frees late: what waits in its list is asked for when the device is full."""
    script = """
        kept = mh.full(50_000_000, 1, np.uint8)
        backend = mh.current_backend()
        backend.free(backend.allocate(150_000_000))
        assert len(backend._deferred) == 1
        ours = tack_memory.allocate(180_000_000, "sim:0")
        assert len(backend._deferred) == 0
        assert mh.memory_info().spill_count == 0
        print("right")
    """
    done = run_python(plugged_script(host, script), TMSOFT_POOLS="0")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_a_host_on_the_cuda_library_that_we_were_given_is_cuda(host: ModuleType, tmp_path: Path) -> None:
    library = str(shutil.copy(sim_library(), tmp_path / "libcuda_of_a_test.so"))
    script = """
        a = mh.asarray(np.arange(1000.0))
        assert mh.memory_info().device == tack_memory.memory_info().device == "cuda:0"
        tack_memory.spill(a)
        assert mh.reduce_sum(a) == 499500
        tack_memory.uninstall(mh)
        print(a[999])
    """
    done = run_python(plugged_script(host, script, library=library, device="cuda:0"), TACK_MEMORY_CUDA_LIBRARY=library)
    assert (done.returncode, done.stdout) == (0, "999.0\n"), done.stderr


def test_a_host_on_another_driver_is_refused_before_a_pointer_is_mixed_up(host: ModuleType, tmp_path: Path) -> None:
    library = str(shutil.copy(sim_library(), tmp_path / "libcuda_of_a_test.so"))
    script = """
        try:
            mh.zeros(10)
        except tack_memory.hosts.MissingSeamError as error:
            assert "TACK_MEMORY_CUDA_LIBRARY" in str(error), error
            print("refused")
    """
    done = run_python(plugged_script(host, script, library=library, device="sim:0"))
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr
