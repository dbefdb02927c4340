"""A host under a budget, and on a device that is too small: the same results, and a launch never runs on spilled memory."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from flavours import Flavour
from plugged import plugged_script
from support import KIB, MIB, SoftDriver, crashed, run_python

import tack_memory


@pytest.fixture
def kernels(host: ModuleType) -> ModuleType:
    """A few kernels."""
    made = ModuleType("kernels")

    @host.kernel(writes="out")
    def add(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        out[:] = a + b

    @host.kernel(writes="a")
    def shift(a: np.ndarray, by: int) -> None:
        a += by

    @host.kernel(writes="out")
    def broken(a: np.ndarray, out: np.ndarray) -> None:
        raise ZeroDivisionError("in the kernel")

    made.add, made.shift, made.broken = add, shift, broken
    return made


@pytest.fixture(params=["in place", "on copies"])
def way(host: ModuleType, request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways of minihost to run a kernel: on the device's memory, and on a copy that is written back."""
    backend = host.current_backend()
    backend.host_readable = request.param == "in place"
    yield request.param
    backend.host_readable = True


@pytest.mark.parametrize("blocks", [3, 11, 40])
def test_any_budget_gives_the_same_results(host: ModuleType, kernels: ModuleType, way: str, blocks: int) -> None:
    """Random launches, reductions, host reads, host writes and copies over 20 arrays; NumPy arrays are the oracle."""
    random = np.random.default_rng(blocks)
    size = 16 * KIB
    before = host.memory_info()
    with host.memory_budget(blocks * size * 8):
        arrays = [host.asarray(np.full(size, n)) for n in range(20)]
        oracle = [np.full(size, n) for n in range(20)]
        for _ in range(200):
            a, b, out = random.permutation(20)[:3]
            match random.integers(7):
                case 0 | 1:
                    kernels.add(arrays[a], arrays[b], arrays[out])
                    oracle[out] = oracle[a] + oracle[b]
                case 2:
                    kernels.shift(arrays[a], 3)
                    oracle[a] = oracle[a] + 3
                case 3:
                    host.copyto(arrays[a], arrays[b])
                    oracle[a] = oracle[b].copy()
                case 4:
                    oracle[a] = random.integers(0, 9, size)
                    host.copyto(arrays[a], oracle[a])
                case 5:
                    arrays[a], oracle[a] = host.full(size, 5, np.int64), np.full(size, 5)
                case 6:
                    assert host.reduce_sum(arrays[a]) == oracle[a].sum()
                    assert arrays[b][7] == oracle[b][7]
        info = host.memory_info()
        assert info.in_use + info.spilled == 20 * size * 8
        assert info.over_budget_count == before.over_budget_count
        assert (info.spill_count > before.spill_count) == (blocks < 40)
        assert all((array.numpy() == one).all() for array, one in zip(arrays, oracle, strict=True))
        assert host.memory_info().restore_count == info.restore_count


def test_a_device_that_is_too_small_spills_when_allocations_fail(host: ModuleType, kernels: ModuleType, soft: SoftDriver) -> None:
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    before = host.memory_info()
    arrays = [host.full(MIB, n, np.uint8) for n in range(20)]
    for n in range(18):
        kernels.add(arrays[n], arrays[n + 1], arrays[n + 2])
    expected = [0, 1]
    for _ in range(18):
        expected.append((expected[-2] + expected[-1]) % 256)
    info = host.memory_info()
    assert info.budget is None
    assert info.spill_count > before.spill_count and info.restore_count > before.restore_count
    assert [int(array[MIB - 1]) for array in arrays] == expected


def test_host_access_moves_nothing_to_the_device(host: ModuleType) -> None:
    a = host.asarray(np.arange(1000))
    tack_memory.spill(a)
    before = host.memory_info()
    assert (a.numpy() == np.arange(1000)).all()
    assert a[-1] == 999
    assert a.read_range(10, 3).tolist() == [10, 11, 12]
    host.copyto(a, np.arange(1000) + 1)
    assert a.reshape(10, 100)[9][99] == 1000
    a._buffer.fill_bytes(255)
    after = host.memory_info()
    assert (after.restore_count, after.in_use, after.spilled) == (before.restore_count, 0, a.nbytes)
    assert host.reduce_max(a) == -1  # what the host wrote is what the device sees
    assert host.memory_info().restore_count == before.restore_count + 1


def test_host_access_out_of_range_is_the_hosts_own_error(host: ModuleType) -> None:
    a = host.asarray(np.arange(10))
    for spilled in (False, True):
        if spilled:
            tack_memory.spill(a)
        with pytest.raises(IndexError, match="of 10"):
            a.read_range(8, 3)
        with pytest.raises(IndexError, match="of 10"):
            a[10]
        with pytest.raises(ValueError, match="bytes for a buffer of"):
            a._buffer.from_numpy(np.arange(11))
    assert (a.numpy() == np.arange(10)).all()


def test_copies_on_the_device_make_both_resident(host: ModuleType) -> None:
    a, b = host.asarray(np.arange(1000)), host.zeros(1000, np.int64)
    tack_memory.spill(a, b)
    host.copyto(b, a)
    assert host.memory_info().spilled == 0
    assert (b.numpy() == np.arange(1000)).all()


def test_the_arrays_of_a_launch_are_never_victims(host: ModuleType, kernels: ModuleType) -> None:
    a, b, out, other = (host.full(MIB, n, np.uint8) for n in range(4))
    with host.memory_budget(3 * MIB):
        for _ in range(5):
            kernels.add(other, b, out)
            kernels.add(a, b, out)
            assert host.memory_info().in_use <= 3 * MIB
            assert [tack_memory.hosts._installed["minihost"].adapter.buffers_of(one)[0].is_spilled for one in (a, b, out)] == [False] * 3
    assert int(out[0]) == 1


def test_views_of_one_spilled_buffer_are_seen_to_overlap(host: ModuleType, kernels: ModuleType) -> None:
    """The host compares addresses before it binds: both reads must see the buffer at one place."""
    a = host.zeros(1000)
    tack_memory.spill(a)
    with pytest.raises(ValueError, match="shares memory"):
        kernels.add(a, a.reshape(10, 100).reshape(1000), a.reshape(1000))


def test_a_kernel_that_raises_lets_go_of_its_arrays(host: ModuleType, kernels: ModuleType) -> None:
    a, out = host.zeros(100), host.zeros(100)
    with pytest.raises(ZeroDivisionError):
        kernels.broken(a, out)
    assert tack_memory.spill(a, out) == a.nbytes + out.nbytes


def test_a_reduction_holds_its_input_and_its_output(host: ModuleType) -> None:
    """With room for little more than one array, restoring the output would spill the input, whose pointer was read already."""
    a, b = host.full(MIB, 3, np.uint8), host.full(MIB, 4, np.uint8)
    before = host.memory_info()
    with host.memory_budget(MIB + 100):
        for _ in range(3):
            assert host.reduce_sum(a) == 3 * MIB
            assert host.reduce_sum(b) == 4 * MIB
            assert host.reduce_min(a) == 3
    assert host.memory_info().over_budget_count == before.over_budget_count


def test_one_launch_that_cannot_fit_fails_and_loses_nothing(host: ModuleType, kernels: ModuleType, soft: SoftDriver) -> None:
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    a, b, out = (host.full(3 * MIB, n, np.uint8) for n in range(3))
    with pytest.raises(host.DeviceMemoryError, match="launch") as caught:
        kernels.add(a, b, out)
    assert isinstance(caught.value, tack_memory.DeviceMemoryError)
    assert [int(one[0]) for one in (a, b, out)] == [0, 1, 2]
    small = [host.full(2 * MIB, n, np.uint8) for n in (1, 2, 3)]
    kernels.add(*small)
    assert int(small[2][5]) == 3
    assert [int(one[-1]) for one in (a, b, out)] == [0, 1, 2]


def test_threads_that_launch_and_read_under_a_small_budget(host: ModuleType, kernels: ModuleType) -> None:
    size, failures = 64 * KIB, []

    def work(seed: int) -> None:
        try:
            random = np.random.default_rng(seed)
            arrays = [host.full(size, n, np.int64) for n in range(6)]
            oracle = list(range(6))
            for _ in range(60):
                a, b, out = random.permutation(6)[:3]
                kernels.add(arrays[a], arrays[b], arrays[out])
                oracle[out] = (oracle[a] + oracle[b] + 2**63) % 2**64 - 2**63
                c = random.integers(6)
                assert (arrays[c].numpy() == oracle[c]).all()
        except BaseException as error:
            failures.append(error)

    before = host.memory_info()
    with host.memory_budget(8 * size * 8):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not failures
    assert host.memory_info().spill_count > before.spill_count


def test_two_devices_have_books_and_budgets_of_their_own(host: ModuleType, flavour: Flavour, kernels: ModuleType) -> None:
    first = [host.full(MIB, n, np.uint8) for n in range(3)]
    second = [host.full(MIB, n, np.uint8, device=flavour.own(1)) for n in range(3)]
    with host.memory_budget(MIB, flavour.own(1)):
        assert [host.memory_info(flavour.own(n)).spilled for n in (0, 1)] == [0, 2 * MIB]
        kernels.add(*first)
        with pytest.raises(ValueError, match="one device"):
            kernels.add(first[0], second[1], first[2])
        assert [int(one[0]) for one in second] == [0, 1, 2]


def test_a_stale_pointer_crashes(host: ModuleType, flavour: Flavour) -> None:
    """In quarantine, memory that was spilled is unmapped and its addresses are never used again."""
    read = """
        a = mh.full(100_000, 7, np.uint8)
        view = mh.current_backend()._values(a._buffer.device_ptr, a)
        mh.synchronize()  # the view is read here and now
        assert view.sum() == 700_000
        tack_memory.spill(a)
        tack_memory.synchronize()
        print("spilled", flush=True)
        assert {use}
    """
    right = run_python(plugged_script(host, flavour, read.format(use="mh.reduce_sum(a) == 700_000")), TMSOFT_QUARANTINE="1")
    assert (right.returncode, right.stdout) == (0, "spilled\n"), right.stderr
    stale = run_python(plugged_script(host, flavour, read.format(use="view.sum() == 700_000")), TMSOFT_QUARANTINE="1")
    assert crashed(stale.returncode, stale.stderr) and stale.stdout == "spilled\n", stale.stderr


ABLATION = """
    from tack_memory.hosts import _ablation
    if {left_out!r}:
        tack_memory.uninstall(mh)
        _ablation.leave_out({left_out!r})
        tack_memory.install(mh)

    @mh.kernel(writes="out")
    def add(a, b, out):
        out[:] = a + b

    a, b, out = (mh.full(1_000_000, n, np.uint8) for n in (1, 2, 3))
    mh.set_memory_budget(1_000_000)
    tack_memory.spill(a, b, out)
    {use}
    print("right")
"""


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        ("launch", "add(a, b, out); assert (out.numpy() == 3).all()"),
        ("reduce", "assert mh.reduce_sum(a) + mh.reduce_sum(b) == 3_000_000"),
        ("copy", "mh.copyto(out, a); assert (out.numpy() == 1).all()"),
    ],
)
def test_hold_ablation(host: ModuleType, flavour: Flavour, kind: str, use: str) -> None:
    """Without the hold the second pointer that is read spills the first, and the work runs on memory that is gone."""
    right = run_python(plugged_script(host, flavour, ABLATION.format(left_out="", use=use)), TMSOFT_QUARANTINE="1")
    assert (right.returncode, right.stdout) == (0, "right\n"), right.stderr
    wrong = run_python(plugged_script(host, flavour, ABLATION.format(left_out=kind, use=use)), TMSOFT_QUARANTINE="1")
    assert wrong.returncode != 0 and wrong.stdout == "", "nothing went wrong without the hold, so this test proves nothing"


def test_without_memory_pools(host: ModuleType, flavour: Flavour) -> None:
    """Memory that the host cannot free in the stream's order is freed by us all the same, and its deferred list is not asked for what is ours."""
    script = """
        assert not mh.current_backend().has_pools

        @mh.kernel(writes="out")
        def add(a, b, out):
            out[:] = a + b

        with mh.memory_budget(4_000_000):
            arrays = [mh.full(1_000_000, n, np.uint8) for n in range(12)]
            for n in range(10):
                add(arrays[n], arrays[n + 1], arrays[n + 2])
            assert [int(one[0]) for one in arrays] == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
            assert mh.memory_info().spill_count and mh.memory_info().restore_count
        del arrays
        tack_memory.synchronize()
        assert mh.memory_info().in_use == mh.memory_info().pending_free == 0
        old = mh.full(1000, 5)
        tack_memory.uninstall(mh)
        assert old[0] == 5
        print("right")
    """
    done = run_python(plugged_script(host, flavour, script), TMSOFT_POOLS="0")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_a_failed_allocation_keeps_no_array_alive(host: ModuleType, soft: SoftDriver) -> None:
    """An error that somebody keeps refers to the frames of all callers, and so to their arrays: they would be garbage until a collection."""

    def work() -> None:
        temporary = host.full(3 * MIB, 1, np.uint8)
        more = [host.full(3 * MIB, n, np.uint8) for n in range(4)]  # the device is full from the third one on
        assert int(temporary[0]) + int(more[3][0]) == 4

    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    before = host.memory_info()
    gc.disable()
    try:
        work()
        after = host.memory_info()
    finally:
        gc.enable()
    assert after.spill_count > before.spill_count
    assert (after.in_use, after.spilled) == (0, 0)


def test_a_launch_takes_arrays_without_memory_of_ours(host: ModuleType, kernels: ModuleType) -> None:
    """Size zero, and somebody else's memory: the others of the launch are held all the same."""
    backend = host.current_backend()
    pointer = backend.allocate(8000)
    foreign = host.wrap_ptr(pointer, 1000, np.int64)
    host.copyto(foreign, np.arange(1000))
    a, out, empty = host.full(1000, 5, np.int64), host.zeros(1000, np.int64), host.zeros(0, np.int64)
    tack_memory.spill(a, out)
    kernels.add(foreign, a, out)
    kernels.add(empty, empty.reshape(0), host.zeros(0, np.int64))
    assert (out.numpy() == np.arange(1000) + 5).all()
    assert tack_memory.spill(a, out) == a.nbytes + out.nbytes  # nothing is held afterwards
    backend.free(pointer)


def test_room_is_made_before_the_host_allocates(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, seen = host.current_backend(), []
    allocate = backend.allocate

    def watched(nbytes: int) -> int:
        info = host.memory_info()
        seen.append((info.in_use, info.reserved))
        return allocate(nbytes)

    monkeypatch.setattr(backend, "allocate", watched)
    with host.memory_budget(3 * MIB):
        arrays = [host.full(MIB, n, np.uint8) for n in range(6)]
    assert seen == [(0, MIB), (MIB, MIB)] + [(2 * MIB, MIB)] * 4
    assert [int(array[0]) for array in arrays] == list(range(6))


def test_a_buffer_that_is_being_built_is_not_spilled(host: ModuleType, flavour: Flavour) -> None:
    """The host clears new memory by the pointer that it just got: until it is through, nobody may take that memory."""
    script = """
        backend = mh.current_backend()
        fill = backend.fill

        def fill_late(pointer, value, nbytes):
            tack_memory._fast.spill_all(device)  # as another thread would that needs room
            fill(pointer, value, nbytes)

        backend.fill = fill_late
        arrays = [mh.zeros(100_000, np.uint8) for _ in range(4)]
        assert mh.memory_info().spilled == 300_000
        assert all((array.numpy() == 0).all() for array in arrays)
        print("right")
    """
    done = run_python(plugged_script(host, flavour, script), TMSOFT_QUARANTINE="1")
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_a_finalizer_may_use_an_array_of_its_own_cycle(host: ModuleType) -> None:
    """Python runs the finalizers of a cycle in any order, mostly the oldest object's first: that of the array's buffer then."""
    told = []

    class Node:
        def __init__(self, array: object) -> None:
            self.array, self.cycle = array, self

        def __del__(self) -> None:
            told.append(self.array.numpy().tolist())
            told.append(host.reduce_sum(self.array))

    array = host.asarray(np.arange(5))
    node = Node(array)
    array.node = node  # the array is part of the cycle, too
    del array, node
    gc.collect()
    assert told == [[0, 1, 2, 3, 4], 10]
    assert host.memory_info().in_use == 0


def test_cycles_whose_finalizers_allocate_in_several_threads(host: ModuleType, kernels: ModuleType) -> None:
    """A collection may run inside any allocation, launch or spill, and its finalizers allocate and launch in turn."""
    size, failures = 16 * KIB, []

    class Node:
        def __init__(self, value: int) -> None:
            self.array, self.out, self.cycle = host.full(size, value, np.int32), host.zeros(size, np.int32), self

        def __del__(self) -> None:
            try:
                kernels.add(self.array, host.full(size, 1, np.int32), self.out)
                assert self.out[-1] == self.array[0] + 1
            except BaseException as error:
                failures.append(error)

    def work() -> None:
        try:
            for n in range(40):
                node = Node(n)
                kernels.shift(node.array, 100)
                assert host.reduce_sum(node.array) == (n + 100) * size
                if n % 10 == 9:
                    gc.collect()
        except BaseException as error:
            failures.append(error)

    with host.memory_budget(12 * size * 4):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        gc.collect()
    assert not failures
    assert host.memory_info().in_use == 0


def test_garbage_that_fills_the_device_is_no_reason_to_fail(host: ModuleType, soft: SoftDriver) -> None:
    """What a collection drops is not back at once: the host's own second try may come too early, ours must not."""
    size = 7 * MIB
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    before = host.memory_info()

    class Node:
        def __init__(self) -> None:
            self.array, self.cycle = host.zeros(size, np.uint8), self

    def collected_only_by_the_host() -> None:
        for _ in range(20):
            Node()
            host.zeros(size, np.uint8)
            gc.collect()

    gc.disable()
    try:
        collected_only_by_the_host()
    finally:
        gc.enable()
    assert host.memory_info().spill_count == before.spill_count
