"""Launches in some threads, spills in others: the host's locks and ours are asked for in one order, and no launch uses memory that has moved."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import numpy as np
from flavours import Flavour
from storms import LIMIT, SECONDS, Until, run_all
from support import KIB, MIB, SoftDriver

import tack_memory


def test_a_spill_while_a_launch_has_the_hosts_lock(host: ModuleType, flavour: Flavour) -> None:
    """The kernel waits until another thread has tried to spill all: the launch's arrays stay where they are, and what is no part of it goes."""
    running, spilled = threading.Event(), threading.Event()

    @host.kernel(writes="out")
    def waits(a: Any, out: Any) -> None:
        running.set()
        assert spilled.wait(LIMIT)
        out[:] = a + 1

    a, out, other = (host.full(1000, n) for n in range(3))
    tack_memory.spill(a, out)
    found: list[int] = []

    def spill() -> None:
        assert running.wait(LIMIT)
        before = [one._buffer.device_ptr for one in (a, out)]
        try:
            with host.memory_budget(1):
                tack_memory._fast.spill_all(flavour.device())
                found.append(host.memory_info().in_use)
            assert before == [one._buffer.device_ptr for one in (a, out)]
        finally:
            spilled.set()

    run_all(lambda: waits(a, out), spill)
    assert (out.numpy() == 1).all() and found == [a.nbytes + out.nbytes]
    assert other[0] == 2


def test_emptying_the_hosts_cache_under_its_lock_while_launches_restore(host: ModuleType, flavour: Flavour, soft: SoftDriver) -> None:
    """One side has the host's lock and needs ours (a launch makes a pack, or an image, and so allocates); the other has no room, and asks the host to
    empty its caches, which takes the host's lock (Level Zero)."""

    def kernel() -> Any:
        @host.kernel(writes="out")
        def scaled(a: Any, factor: float, out: Any) -> None:
            out[:] = a * factor

        return scaled

    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    size = MIB // 8  # 1 MiB of numbers

    def launches() -> None:
        a, out = host.full(size, 3), host.zeros(size)
        for n in range(20):
            kernel()(a, float(n), out)  # a new kernel, and so a new pack
            assert out[size - 1] == 3 * n

    def allocates() -> None:
        kept: list[Any] = []
        for n in range(60):
            kept = [*kept[-5:], host.full(size, n)]
        assert [one[7] for one in kept] == [54, 55, 56, 57, 58, 59]

    run_all(launches, allocates, allocates)
    assert host.memory_info().spill_count
    host.current_backend()._cache.clear()


def test_threads_of_all_kinds_at_once(host: ModuleType, flavour: Flavour) -> None:
    """Two launch (views and objects among the arguments), one reads and writes, one changes the budget."""
    size, until = 16 * KIB, Until(SECONDS)

    @host.device_class
    class Mesh:
        def __init__(self, points: Any) -> None:
            self.points = points

    @host.kernel(writes="out")
    def moved(mesh: Any, by: float, out: Any) -> None:
        out[:] = mesh.points + by

    def launches(seed: int) -> Any:
        random = np.random.default_rng(seed)
        arrays = [host.full(size, n) for n in range(6)]
        oracle = [np.full(size, float(n)) for n in range(6)]

        def work() -> None:
            a, b = random.permutation(6)[:2]
            start = int(random.integers(size // 2))
            moved(Mesh(arrays[a][start : start + 100]), 2.0, arrays[b][start : start + 100])
            oracle[b][start : start + 100] = oracle[a][start : start + 100] + 2
            c = int(random.integers(6))
            assert (arrays[c].numpy() == oracle[c]).all()
            until.rounds += 1

        return work

    def reads() -> Any:
        a = host.asarray(np.arange(float(size)))
        part = a[100:200]

        def work() -> None:
            host.copyto(part, 7)
            assert part.numpy().sum() == 700 and a[99] == 99 and a[200] == 200

        return work

    def budgets() -> Any:
        random = np.random.default_rng(9)

        def work() -> None:
            host.set_memory_budget(int(random.integers(1, 12)) * size * 8)
            tack_memory._fast.spill_all(flavour.device())

        return work

    before = host.memory_info()
    try:
        run_all(*(until(work) for work in (launches(1), launches(2), reads(), budgets())), limit=SECONDS + LIMIT)
    finally:
        host.set_memory_budget(None)
    assert until.rounds, "nothing was launched"
    after = host.memory_info()
    assert after.spill_count > before.spill_count and after.restore_count > before.restore_count, "nothing was moved: this shows nothing"
