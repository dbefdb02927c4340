"""Copies, pickles and repeated installs of a host's CPU backend: what worked without us works with us, and what was counted is counted again."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from textwrap import dedent
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support import run_python
from worlds import HOSTS, VENDORS, Vendor, cpu_script, with_a_part

import tack_memory
from tack_memory.hosts import plugged

_FIND = f"import sys; sys.path.insert(0, {str(HOSTS)!r})\n"


def copies(host: ModuleType, field: Any) -> list[Any]:
    return [copy.deepcopy(field._buffer), pickle.loads(pickle.dumps(field._buffer)), copy.copy(field._buffer)]


def check_copies(host: ModuleType) -> None:
    field = host.full(host.f64, (100,), 3)
    deep, pickled, shallow = copies(host, field)
    host_array = field._buffer._data
    host_array[:] = 4
    del host_array
    assert [one.to_numpy().tolist() for one in (deep, pickled, shallow)] == [[3.0] * 100, [3.0] * 100, [4.0] * 100]
    assert type(vars(deep)["_data"]) is np.ndarray and type(vars(pickled)["_data"]) is np.ndarray


def test_copies_of_what_is_counted(counted: ModuleType) -> None:
    before = counted.memory_info().in_use
    check_copies(counted)
    assert counted.memory_info().in_use == before


def test_copies_of_what_is_simulated(simulated: ModuleType) -> None:
    check_copies(simulated)


def test_a_pickle_can_be_read_without_us(counted: ModuleType) -> None:
    field = counted.full(counted.f64, (10,), 3)
    assert b"tack_memory" not in pickle.dumps(field._buffer).replace(b"_tack_memory", b"")


@pytest.mark.parametrize("how", [{}, {"simulate": 0}], ids=["counted", "simulated"])
def test_a_shallow_copy_outlives_uninstall(cpu_host: ModuleType, how: dict[str, int]) -> None:
    cpu_host.init("cpu")
    tack_memory.install(cpu_host, **how)
    field = cpu_host.full(cpu_host.f64, (100,), 3)
    shallow = copy.copy(field._buffer)
    tack_memory.uninstall(cpu_host)
    shallow._data[:] = 5
    assert field.to_numpy().tolist() == [5] * 100
    assert tack_memory.memory_info("cpu").in_use == 0
    del field, shallow


@pytest.mark.parametrize("again", [{}, {"simulate": 0}], ids=["counted", "simulated"])
def test_what_was_simulated_is_known_at_another_install(cpu_host: ModuleType, again: dict[str, int]) -> None:
    cpu_host.init("cpu")
    tack_memory.install(cpu_host, simulate=0)
    field = cpu_host.full(cpu_host.f64, (100,), 3)
    tack_memory.uninstall(cpu_host)
    assert vars(field._buffer)["_data"].base is None
    tack_memory.install(cpu_host, **again)
    try:
        assert cpu_host.memory_info().footprint >= 800
        known = plugged(cpu_host.__name__)
        assert known is not None and known.adapter.buffers_of(field)
        assert field.to_numpy().tolist() == [3] * 100
    finally:
        tack_memory.uninstall(cpu_host)


def test_what_shared_memory_is_simulated_again_and_shares_it(cpu_host: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    cpu_host.init("cpu")
    tack_memory.install(cpu_host, simulate=0)
    field, part = with_a_part(cpu_host)
    tack_memory.uninstall(cpu_host)
    tack_memory.install(cpu_host, simulate=0)
    try:
        known = plugged(cpu_host.__name__)
        assert known is not None
        (whole,), (view,) = known.adapter.buffers_of(field) or (), known.adapter.buffers_of(part) or ()
        assert (view.base, view.offset, view.nbytes) == (whole, 80, 80)  # type: ignore[union-attr]
        tack_memory.spill(field)
        field.fill(6)  # not through the part: Tack lets nobody write by a pointer unless told
        assert part.to_numpy().tolist() == [6] * 10
        assert "not counted" not in caplog.text
    finally:
        del whole, view
        tack_memory.uninstall(cpu_host)


def test_one_host_is_simulated_at_a_time() -> None:
    """The device has one budget, so the other host's uninstall would take it away."""
    script = """
        import importlib.util, pathlib, sys
        spec = importlib.util.spec_from_file_location("other", fh.__file__, submodule_search_locations=fh.__path__)
        other = sys.modules["other"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(other)
        other.init("cpu")
        try:
            tack_memory.install(other, simulate="1 KiB")
        except ValueError as error:
            print(error)
        print(tack_memory.get_memory_budget("sim-cpu:0"))
        tack_memory.uninstall(fh)
        tack_memory.install(other, simulate="1 KiB")
        print(tack_memory.get_memory_budget("sim-cpu:0"))
    """
    done = run_python(cpu_script(script))
    assert done.returncode == 0, done.stderr
    refused, before, after = done.stdout.splitlines()
    assert "fieldhost computes on sim-cpu:0 already" in refused and "uninstall fieldhost first" in refused
    assert (before, after) == ("0", "1024")


def test_a_backend_that_comes_while_the_host_is_unplugged() -> None:
    """The thread that imports it is stopped in the middle of what we do at its import; when it goes on, the host is unplugged."""
    script = """
        import sys, threading
        import fieldhost as fh, tack_memory
        from tack_memory.hosts import _field_seams

        entered, go = threading.Event(), threading.Event()
        original = _field_seams.backend_seams
        def slow(*args):
            entered.set()
            go.wait(20)
            return original(*args)
        tack_memory.install(fh)
        assert "fieldhost.runtime.cpu" not in sys.modules
        _field_seams.backend_seams = slow
        importing = threading.Thread(target=__import__, args=("fieldhost.runtime.cpu",))
        importing.start()
        entered.wait(20)
        unplugging = threading.Thread(target=tack_memory.uninstall, args=(fh,))
        unplugging.start()
        unplugging.join(0.5)  # it waits for the other; without that it is through by now
        go.set()
        importing.join(); unplugging.join()
        backend = fh.runtime.cpu.CPUBackend
        print(backend.allocate_field.__code__.co_filename.endswith("cpu.py"), hasattr(backend.allocate_field, "__wrapped__"))
    """
    done = run_python(_FIND + dedent(script))
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr


def test_install_disturbs_no_thread_that_makes_tuples(cpu_host: ModuleType) -> None:
    """Python's list of all objects, kept while threads take turns, makes the resize of another thread's tuple fail."""
    cpu_host.init("cpu")
    cpu_host.full(cpu_host.f64, (10,), 1)
    wrong: list[SystemError] = []
    ended = threading.Event()

    def make() -> None:
        while not ended.is_set():
            try:
                tuple(number for number in range(2000))
            except SystemError as error:
                wrong.append(error)

    junk = [[number] for number in range(100_000)]
    thread = threading.Thread(target=make)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for _ in range(10):
            tack_memory.install(cpu_host)
            tack_memory.uninstall(cpu_host)
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(before)
    assert not wrong and junk


def test_frozen_objects_are_told_of() -> None:
    script = """
        import gc, logging, sys
        import fieldhost as fh, tack_memory
        logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
        fh.init("cpu")
        gc.freeze()
        for _ in range(2):
            tack_memory.install(fh)
            tack_memory.uninstall(fh)
    """
    done = run_python(_FIND + dedent(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("gc.freeze() has hidden") == 1


@pytest.mark.parametrize("vendor", VENDORS[:2], indirect=True, ids=lambda vendor: vendor.arch)
def test_a_shallow_copy_of_a_gpu_buffer_shares_its_memory_and_there_is_no_deep_one(gpu: ModuleType, vendor: Vendor) -> None:
    field = gpu.full(gpu.f64, (100,), 3)
    for deep in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot pickle"):
            deep(field._buffer)
    shallow = copy.copy(field._buffer)
    tack_memory.spill(field)
    shallow.from_numpy(np.full(100, 5.0))
    assert (field.to_numpy() == 5).all()
    del field
    assert gpu.memory_info().footprint == 800 and (shallow.to_numpy() == 5).all()
    del shallow
    assert gpu.memory_info().footprint == 0
