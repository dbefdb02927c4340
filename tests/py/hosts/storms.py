"""Threads of all kinds at once over one host: what launches, reads, and what other threads spill meanwhile.

HOST_STORM_SECONDS says how long a storm of `make test` is to last; by default it is two seconds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from fieldkernels import over_arrays, over_indexes

import tack_memory

SECONDS = float(os.environ.get("HOST_STORM_SECONDS", "2"))
LIMIT = 120  # seconds beyond what the work itself is to take; for a broken program
SIZE = 64  # numbers in a field

Launch = Callable[..., object]


def run_all(*works: Callable[[], object], limit: float = LIMIT) -> None:
    """Run functions in threads of their own, and raise what one of them raised."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(limit)
    if failures:
        raise failures[0]
    assert not [thread for thread in threads if thread.is_alive()], "a deadlock"


class Until:
    """Repeats works of several threads until the time is over, or one of them fails."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._failed = False
        self.rounds = 0  # of those that count them

    def __call__(self, work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                while time.monotonic() < self._end and not self._failed:
                    work()
            except BaseException:
                self._failed = True
                raise

        return run


def storm(host: ModuleType, device: str, axpy: Launch, shift: Launch, also_read: Callable[[Any], object], seconds: float = SECONDS) -> str:
    """Of a host of the field generation: two threads launch, one reads, one spills by changing the budget. Returns what was done, for people.

    `axpy(x, y, out, a)` and `shift(x, by)` launch; `also_read` gets a field of elevens, which it reads by other means than `to_numpy`."""
    constant = host.full(host.f64, (SIZE,), 11)
    # Compiled once before, for arrays that share no memory: the host's own compiling is not made for several threads.
    axpy(constant, *(host.zeros(host.f64, (SIZE,)) for _ in range(2)), 0.0)
    shift(constant, 0.0)
    before, until = tack_memory.memory_info(device), Until(seconds)

    def launches() -> Callable[[], None]:
        fields, expected = [host.full(host.f64, (SIZE,), n) for n in range(4)], [float(n) for n in range(4)]

        def work() -> None:
            axpy(fields[0], fields[1], fields[2], 0.25)
            expected[2] = 0.25 * expected[0] + expected[1]
            shift(fields[0], 1.0)
            expected[0] += 1
            axpy(constant, fields[2], fields[3], 1.0)
            expected[3] = 11 + expected[2]
            found = fields[3].to_numpy()
            assert (found == expected[3]).all(), f"{found} in the place of {expected[3]}"
            until.rounds += 1

        return work

    def reads() -> None:
        found = constant.to_numpy()
        assert (found == 11).all(), f"{found} in the place of 11"
        also_read(constant)

    def spills() -> None:
        for budget in (10 * 8 * SIZE, 1, 3 * 8 * SIZE):
            tack_memory.set_memory_budget(budget, device)
            time.sleep(0.0005)

    former, interval = tack_memory.get_memory_budget(device), sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        run_all(*(until(work) for work in (launches(), launches(), reads, spills)), limit=seconds + LIMIT)
    finally:
        sys.setswitchinterval(interval)
        tack_memory.set_memory_budget(1 if former == 0 else former, device)  # 0 is of a simulated CPU, and only `install` can set it
    after = tack_memory.memory_info(device)
    spilled, restored = after.spill_count - before.spill_count, after.restore_count - before.restore_count
    assert until.rounds, "nothing was launched"
    assert spilled and restored, "nothing moved: this shows nothing"
    return f"{3 * until.rounds} launches, {spilled} spills, {restored} restores"


def storm_on_gpu(host: ModuleType, device: str, seconds: float = SECONDS) -> str:
    """On a GPU backend of fieldhost, whose kernels are over whole NumPy arrays. What is read beside is a native reduction."""

    def also_read(field: Any) -> None:
        found = field.sum()
        assert found == 11 * SIZE, f"a sum of {found} in the place of {11 * SIZE}"

    return storm(host, device, *over_arrays(host), also_read, seconds)


def storm_on_cpu(host: ModuleType, device: str, seconds: float = SECONDS) -> str:
    """On the CPU backend of any host of the field generation, simulated. What is read beside is the memory itself, as it is."""

    axpy, shift = over_indexes(host)

    def also_read(field: Any) -> None:
        values: np.ndarray = field._buffer._data
        assert values.sum() == 11 * SIZE, f"{values} in the place of 11"

    return storm(host, device, lambda *given: axpy(*given, SIZE), lambda *given: shift(*given, SIZE), also_read, seconds)
