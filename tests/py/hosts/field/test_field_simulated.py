"""The CPU backend of the field generation on a simulated device, where whatever is not in use is spilled."""

from __future__ import annotations

import gc
import threading
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fieldkernels import over_indexes as kernels
from support import crashed, run_python
from worlds import cpu_script, with_a_part

import tack_memory
from tack_memory.hosts import plugged


def restores(host: ModuleType) -> int:
    return int(host.memory_info().restore_count)


def buffer_of(host: ModuleType, field: Any) -> Any:
    known = plugged(host.__name__)
    assert known is not None
    (mine,) = known.adapter.buffers_of(field) or ()
    return mine


def test_launches_give_the_same_results(simulated: ModuleType) -> None:
    """Random launches, host reads and writes over 12 fields; NumPy arrays are the oracle."""
    host, random, size = simulated, np.random.default_rng(1), 40
    axpy, shift = kernels(host)
    fields = [host.full(host.f64, (size,), n) for n in range(12)]
    oracle = [np.full(size, float(n)) for n in range(12)]
    before = host.memory_info()
    for _ in range(150):
        a, b, out = random.permutation(12)[:3]
        match random.integers(5):
            case 0 | 1:
                axpy(fields[a], fields[b], fields[out], 0.5, size)
                oracle[out] = 0.5 * oracle[a] + oracle[b]
            case 2:
                shift(fields[a], 3.0, size)
                oracle[a] = oracle[a] + 3
            case 3:
                oracle[a] = random.random(size)
                fields[a].from_numpy(oracle[a])
            case 4:
                fields[a], oracle[a] = host.full(host.f64, (size,), 7), np.full(size, 7.0)
    after = host.memory_info()
    assert after.spill_count > before.spill_count and after.restore_count > before.restore_count
    assert after.in_use + after.spilled == 12 * 8 * size
    for field, expected in zip(fields, oracle, strict=True):
        assert (field.to_numpy() == expected).all()


def test_what_is_not_in_use_is_spilled(simulated: ModuleType, simulated_device: str) -> None:
    """At a budget of 0 that is everything, as soon as a launch has ended."""
    host = simulated
    axpy, _ = kernels(host)
    fields = [host.full(host.f64, (1000,), n) for n in range(5)]
    axpy(*fields[:3], 1.0, 1000)
    info = host.memory_info()
    assert (info.device, info.budget, info.in_use, info.spilled) == (simulated_device, 0, 0, 40_000)
    with tack_memory.hold(fields[0]):
        axpy(*fields[:3], 1.0, 1000)
        assert host.memory_info().in_use == 8000


def test_a_launch_leaves_a_larger_budget_full(simulated: ModuleType, simulated_device: str) -> None:
    host = simulated
    axpy, _ = kernels(host)
    with tack_memory.memory_budget(24_000, simulated_device):
        fields = [host.full(host.f64, (1000,), n) for n in range(5)]
        axpy(*fields[:3], 1.0, 1000)
        assert host.memory_info().in_use == 24_000


def test_host_access_works_on_the_host_copy(simulated: ModuleType) -> None:
    host = simulated
    field = host.full(host.f32, (6, 5), 1)
    tack_memory.spill(field)
    before = restores(host)
    assert (field.to_numpy() == 1).all() and field.to_numpy().shape == (6, 5)
    field._buffer.fill(2.5)
    assert (field.to_numpy() == 2.5).all()
    field.from_numpy(np.arange(30, dtype=np.float32).reshape(6, 5))
    field._buffer.from_numpy(np.arange(5))  # broadcasts, and casts
    assert (field.to_numpy() == np.arange(5, dtype=np.float32)).all()
    assert field._buffer.nbytes == 120
    assert field.sum() == 60.0
    assert restores(host) == before


def test_what_numpy_refuses_is_refused(simulated: ModuleType) -> None:
    host = simulated
    field = host.full(host.i32, (6,), 4)
    with pytest.raises(ValueError, match="broadcast"):
        field._buffer.from_numpy(np.zeros(5, np.int32))
    with pytest.raises(TypeError, match="cast"):
        field._buffer.from_numpy(np.zeros(6))
    with pytest.raises((TypeError, ValueError)):
        field._buffer.fill("four")
    assert (field.to_numpy() == 4).all()


def test_whoever_reads_the_array_gets_one_that_stays(simulated: ModuleType) -> None:
    """Code that nobody foresaw: what it has keeps the memory in its place, and so does any view of it."""
    field = simulated.full(simulated.f64, (100,), 5)
    tack_memory.spill(field)
    values = field._buffer._data[10:20]
    assert tack_memory.spill(field) == 0
    values[:] = 6
    assert field.to_numpy()[9:21].tolist() == [5, *[6] * 10, 5]
    del values
    assert tack_memory.spill(field) == 800


def test_what_is_kept_beyond_a_launch_stays(simulated: ModuleType) -> None:
    if simulated.__name__ == "tack":
        pytest.skip("needs a kernel that runs Python code of its own, and Tack compiles kernels; fieldhost shows it for what stands in both")
    kept = []
    field = simulated.full(simulated.f64, (100,), 5)

    @simulated.kernel
    def look(x: Any) -> None:  # as code of the host may that runs in a launch
        kept.append(field._buffer._data)

    look(field)
    assert tack_memory.spill(field) == 0
    assert (kept[0] == 5).all()
    kept.clear()
    assert tack_memory.spill(field) == 800


def test_dlpack_shares_and_holds(simulated: ModuleType) -> None:
    field = simulated.full(simulated.f64, (100,), 1)
    tack_memory.spill(field)
    consumer = np.from_dlpack(field)
    assert tack_memory.spill(field) == 0
    assert simulated.memory_report().holds == {"export: dlpack": 800}
    field.from_numpy(np.arange(100.0))
    assert (consumer == np.arange(100.0)).all()
    del consumer
    assert tack_memory.spill(field) == 800


def test_fields_over_our_own_memory_follow_it(simulated: ModuleType) -> None:
    """A program keeps a field, takes its address, and makes another field over it: without us that is right for as long as the first lives."""
    host = simulated
    _, shift = kernels(host)
    field = host.full(host.f64, (100,), 1)
    with tack_memory.hold(field):
        part = host.field_from_ptr(field._buffer._data.ctypes.data + 80, host.f64, (10,))
    assert host.memory_info().footprint == 800
    tack_memory.spill(field)
    shift(part, 4.0, 10)
    tack_memory.spill(field)
    assert field.to_numpy()[9:21].tolist() == [1, *[5] * 10, 1]
    del field
    tack_memory.spill(part)
    assert part.to_numpy().tolist() == [5] * 10


def test_a_round_trip_by_dlpack(simulated: ModuleType) -> None:
    host = simulated
    _, shift = kernels(host)
    field = host.full(host.f64, (50,), 1)
    other = host.from_dlpack(field)
    shift(other, 2.0, 50)
    assert (field.to_numpy() == 3).all()
    assert host.memory_info().footprint == 400
    tack_memory.label("other", other)
    assert buffer_of(host, field).label == "other"


def test_somebody_elses_memory_stays_what_it_is(simulated: ModuleType) -> None:
    _, shift = kernels(simulated)
    theirs = np.arange(20.0)
    field = simulated.field_from_ptr(theirs, simulated.f64, (20,))
    shift(field, 1.0, 20)
    assert (theirs == np.arange(1.0, 21.0)).all()
    assert simulated.memory_info().footprint == 0
    assert tack_memory.spill(field) == 0


def test_dispatch_without_a_launch_holds(simulated: ModuleType) -> None:
    """Programs call it by themselves."""
    host = simulated
    axpy, _ = kernels(host)
    backend = host.runtime.dispatch.get_backend()
    x, y, out = (host.full(host.f64, (30,), n) for n in range(3))
    axpy(x, y, out, 2.0, 30)
    (variant,) = backend._cache[axpy].values()
    tack_memory.spill(x, y, out)
    backend._dispatch(variant.payload, [y, y, out, 3.0, 30], 30)
    assert (out.to_numpy() == 4).all()


def test_objects_bring_their_fields_into_a_launch(simulated: ModuleType) -> None:
    host = simulated
    if host.__name__ == "tack":
        pytest.skip("needs kernels that take their objects' fields as arguments, as fieldhost's do; Tack's own tests of @data_oriented show it (suites)")

    @host.data_oriented
    class Two:
        def __init__(self) -> None:
            self.b, self.a = host.full(host.f64, (10,), 2), host.full(host.f64, (10,), 1)

    @host.kernel
    def add(out: Any, a: Any, b: Any) -> None:
        out[:] = 10 * a + b

    two, out = Two(), host.zeros(host.f64, (10,))
    tack_memory.spill(two.a, two.b, out)
    add(out, two)
    assert (out.to_numpy() == 12).all()


def test_size_zero(simulated: ModuleType) -> None:
    field = simulated.field(simulated.f32, (0, 3))
    assert field.to_numpy().shape == (0, 3)
    assert tack_memory.spill(field) == 0
    assert field._buffer.nbytes == 0


def test_a_field_that_is_too_large_is_a_memory_error(simulated: ModuleType) -> None:
    with pytest.raises((MemoryError, ValueError)):
        simulated.field(simulated.f64, (1 << 50,))
    assert simulated.memory_info().footprint == 0


def test_fields_older_than_install_move_to_the_device_and_back(cpu_host: ModuleType) -> None:
    host = cpu_host
    host.init("cpu")
    _, shift = kernels(host)
    old, exported, looked_at = (host.full(host.f64, (100,), n) for n in range(3))
    consumer, values = np.from_dlpack(exported), looked_at._buffer._data
    gc.collect()
    tack_memory.install(host, simulate=0)
    try:
        assert host.memory_info().footprint >= 800
        assert buffer_of(host, old) is not None
        for field in (old, exported, looked_at):
            shift(field, 1.0, 100)
        assert (consumer == 2).all() and (values == 3).all()  # they share memory as before
        view = old.reshape((10, 10)) if host.__name__ == "tack" else old.reshape(10, 10)
    finally:
        tack_memory.uninstall(host)
    assert type(vars(old._buffer)["_data"]) is np.ndarray
    assert (old.to_numpy() == 1).all() and (view.to_numpy() == 1).all() and (looked_at.to_numpy() == 3).all()
    assert (consumer == 2).all()


def test_uninstall_is_refused_while_somebody_has_the_memory(cpu_host: ModuleType) -> None:
    cpu_host.init("cpu")
    tack_memory.install(cpu_host, simulate=0)
    try:
        field = cpu_host.full(cpu_host.f64, (100,), 5)
        values = field._buffer._data
        with pytest.raises(BufferError, match="^cannot uninstall: an array of 800 bytes on .* is in use .* try again$"):
            tack_memory.uninstall(cpu_host)
        assert cpu_host.memory_info().footprint == 800
        values[0] = 6
        assert field.to_numpy()[:2].tolist() == [6, 5]
        del values
    finally:
        gc.collect()
        tack_memory.uninstall(cpu_host)
    assert vars(field._buffer)["_data"][:2].tolist() == [6, 5]


def test_fields_that_share_memory_share_it_after_uninstall(cpu_host: ModuleType) -> None:
    cpu_host.init("cpu")
    tack_memory.install(cpu_host, simulate=0)
    field, part = with_a_part(cpu_host)
    tack_memory.uninstall(cpu_host)
    part._buffer._data[:] = 6
    assert field.to_numpy()[9:21].tolist() == [5, *[6] * 10, 5]


def test_a_stale_address_crashes() -> None:
    """In the mode of fresh addresses; with it, numbers that are right are right for the right reason."""
    script = """
        field = fh.full(fh.f64, 1000, 7)
        values = field._buffer._data
        {keep}
        stale = fh.runtime.kernel_utils.values_at(values.ctypes.data, values.dtype, values.shape)
        del values
        tack_memory.spill(field)
        print("spilled", flush=True)
        print(stale.sum(), flush=True)
    """
    right = run_python(cpu_script(script.format(keep="kept = values")))
    assert (right.returncode, right.stdout) == (0, "spilled\n7000.0\n"), right.stderr
    wrong = run_python(cpu_script(script.format(keep="")))
    assert crashed(wrong.returncode, wrong.stderr) and wrong.stdout == "spilled\n", wrong.stderr


@pytest.mark.parametrize("addresses", ["fresh", "reuse"])
def test_whether_the_address_of_what_was_spilled_comes_again(cpu_host: ModuleType, addresses: str) -> None:
    """After each launch all is spilled. "reuse" is there so that a stale address is soon one of another array; "fresh" so that it never is."""
    cpu_host.init("cpu")
    tack_memory.install(cpu_host, simulate=0, simulate_addresses=addresses)
    try:
        axpy, _ = kernels(cpu_host)
        x, out = cpu_host.full(cpu_host.f64, (1000,), 1), cpu_host.zeros(cpu_host.f64, (1000,))
        before, seen = restores(cpu_host), []
        for _ in range(20):
            axpy(x, x, out, 1, 1000)
            with tack_memory.hold(x):
                seen.append(buffer_of(cpu_host, x).device_ptr)
            assert cpu_host.memory_info().in_use <= x._buffer.nbytes, "the launch's are spilled"
        assert restores(cpu_host) >= before + 20
        again = len(seen) - len(set(seen))
        assert again == 0 if addresses == "fresh" else again > 10, seen
        assert out.to_numpy().tolist() == [2] * 1000
        del x, out
    finally:
        gc.collect()
        tack_memory.uninstall(cpu_host)


def test_the_end_of_a_launch_waits_for_no_other_launch(simulated: ModuleType) -> None:
    """What another thread's launch has stays above the budget until that one ends."""
    shift = kernels(simulated)[1]
    field, inside, done = simulated.full(simulated.f64, (100,), 1), threading.Event(), threading.Event()
    ended: list[bool] = []

    class Slow:
        """An argument whose use by the kernel takes until the other thread's launch has ended."""

        def __radd__(self, other: Any) -> Any:
            inside.set()
            ended.append(done.wait(20))
            return other + 1

    if simulated.__name__ != "fieldhost":
        pytest.skip("needs a launch that waits for another thread, and Tack's compiled kernels call no code of their arguments; fieldhost shows it")
    thread = threading.Thread(target=shift, args=(field, Slow(), 1))
    thread.start()
    assert inside.wait(60)
    shift(field, 1, 1)
    done.set()
    thread.join()
    assert ended == [True], "the launch beside it came back first"
    assert buffer_of(simulated, field).state == "spilled"
