"""The sum that anybody can check: bytes reported are the bytes of the arrays alive, whatever a program does with them."""

from __future__ import annotations

import os
import pickle
import queue
import random
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy_support import ALLOCATORS, MIB, OLD, asked_for, expected, in_use

import tack_memory.numpy as tn

THREADS, OPERATIONS, CHECKS = 4, 100_000, 10
LARGEST = 300_000


@pytest.fixture(params=[*ALLOCATORS, "another"])
def allocator(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments that choose each allocator."""
    if request.param == "another":
        return {"allocator": request.getfixturevalue("other").capsule()}
    return ALLOCATORS[request.param]


class Program(threading.Thread):
    """Creates, changes, shares and drops arrays at random. What it holds is in `arrays`; no view is of an array that is resized later."""

    def __init__(self, seed: int, operations: int, shared: queue.SimpleQueue[Any]) -> None:
        super().__init__(daemon=True)
        self.random, self.operations, self.shared = random.Random(seed), operations, shared
        self.arrays: list[Any] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(self.operations):
                self.step()
        except BaseException as error:
            self.error = error

    def size(self) -> int:
        return self.random.choice((0, 1, 7, self.random.randrange(200), self.random.randrange(5000), self.random.randrange(LARGEST)))

    def step(self) -> None:
        arrays, pick = self.arrays, self.random.random()
        if pick < 0.40 or not arrays:
            make = self.random.choice((numpy.empty, numpy.zeros, numpy.ones, numpy.arange))
            arrays.append(make(self.size(), dtype=self.random.choice(("u1", "f4", "f8"))))
        elif pick < 0.70 or len(arrays) > 60:
            arrays.pop(self.random.randrange(len(arrays)))
        else:
            array = self.random.choice(arrays)
            if pick < 0.76:
                arrays.append(array[: array.size // 2])
            elif pick < 0.80:
                arrays.append(array.copy())
            elif pick < 0.84:
                arrays.append(pickle.loads(pickle.dumps(array)))  # large ones are made over the bytes object: no memory of NumPy's
            elif pick < 0.92:
                alone = numpy.zeros(self.size(), "u1")
                alone[-1:] = 7
                kept = alone[:100].tobytes()
                alone.resize(self.size(), refcheck=False)
                assert alone[:100].tobytes()[: len(kept)] == kept[: alone.size]
                arrays.append(alone)
            elif pick < 0.96:
                self.shared.put(arrays.pop(self.random.randrange(len(arrays))))
            else:
                try:
                    arrays.append(self.shared.get_nowait())
                except queue.Empty:
                    pass


def test_bytes_reported_are_those_of_live_arrays(allocator: dict[str, Any]) -> None:
    """100,000 random operations across threads; at each of ten moments, with all threads stopped, the two sums are one."""
    shared = queue.SimpleQueue[Any]()
    Program(0, 2000, queue.SimpleQueue()).run()  # what NumPy imports at its first use makes arrays that stay
    before = in_use()
    tn.install(**allocator)
    held: list[list[Any]] = [[] for _ in range(THREADS)]
    for check in range(CHECKS):
        programs = [Program(1000 * check + number, OPERATIONS // THREADS // CHECKS, shared) for number in range(THREADS)]
        for program, arrays in zip(programs, held, strict=True):
            program.arrays = arrays
            program.start()
        for program in programs:
            program.join()
            assert program.error is None, program.error
        waiting = [shared.get() for _ in range(shared.qsize())]
        assert in_use() - before == expected([*waiting, *(array for arrays in held for array in arrays)])
        while waiting:
            shared.put(waiting.pop())
    tn.uninstall()
    assert in_use() - before == expected([*(shared.get() for _ in range(shared.qsize())), *(array for arrays in held for array in arrays)])
    held.clear()
    programs.clear()
    del program, arrays
    assert in_use() == before


def test_another_extension_gets_its_own_blocks_back(other: Any) -> None:
    tn.install(allocator=other.capsule())
    arrays = [numpy.zeros(n) for n in range(200)]
    for array in arrays[::2]:
        array.resize(1000, refcheck=False)
    assert other.live >= len(arrays)
    assert all(array.ctypes.data % 64 == 0 for array in arrays), "its alignment is kept"
    assert tn.owner(arrays[0]).handler == "tack_memory(another_extension)"  # type: ignore[union-attr]
    arrays[1].resize(0, refcheck=False)  # up to 1.26 NumPy tells another size at its free than it asked for; and here in all versions:
    arrays.append(numpy.fromstring("", sep=" ", dtype="f8"))
    tn.uninstall()
    del arrays, array
    assert (other.live, other.wrong) == (0, 0)


@pytest.mark.parametrize("make", [numpy.empty, numpy.zeros, numpy.ones])
def test_each_array_is_counted_with_its_bytes(make: Any) -> None:
    tn.install()
    for shape, kind in [((3,), "f8"), ((), "i2"), ((0,), "f8"), ((5, 0), "u1"), ((1000, 1000), "f4"), ((7,), "S13"), ((4,), "O"), ((2,), "i4,f8")]:
        before = tn.statistics()
        array = make(shape, kind) if not (make is numpy.ones and kind == "S13") else numpy.empty(shape, kind)
        after = tn.statistics()
        assert after.in_use - before.in_use == asked_for(array), (shape, kind)
        assert after.overhead - before.overhead == 16
        del array
    tn.uninstall()


def test_resize_to_nothing_and_back() -> None:
    tn.install()
    before = tn.statistics().in_use
    array = numpy.arange(1000.0)
    array.resize(0, refcheck=False)
    assert tn.statistics().in_use - before == (8 if OLD else 1)
    array.resize(500, refcheck=False)
    assert tn.statistics().in_use - before == 4000
    array.resize(0, refcheck=False)
    del array
    assert tn.statistics().in_use == before
    tn.uninstall()


def test_what_numpy_makes_inside_is_counted_and_gone(tmp_path: Any) -> None:
    """Sorting, reading text (which resizes without the GIL) and files, iterators, linear algebra: memory that no program sees as an array."""
    text, file = " ".join(map(str, range(20_000))), tmp_path / "numbers.txt"
    file.write_text(text)

    def results() -> list[Any]:
        return [
            numpy.fromstring(text, sep=" "),
            numpy.fromfile(file, sep=" "),
            numpy.fromiter(range(1000), "i8"),
            numpy.sort(numpy.random.default_rng(1).random(5000)),
            numpy.argsort(numpy.random.default_rng(1).random(5000), kind="stable"),
            numpy.linalg.inv(numpy.eye(50)),
            numpy.loadtxt([text]),
            numpy.unique(numpy.arange(1000) % 7),
            numpy.fft.rfft(numpy.ones(1000)),
        ]

    results()  # imports modules with arrays that stay
    tn.install()
    before = tn.statistics()
    kept = results()
    after = tn.statistics()
    assert after.in_use - before.in_use == expected(kept)
    assert after.resizes > before.resizes
    assert all(numpy.array_equal(kept[place], numpy.arange(20_000)) for place in (0, 1, 6))
    del kept
    assert in_use() == before.in_use
    tn.uninstall()


def test_text_is_read_by_many_threads_at_once() -> None:
    """NumPy resizes without the GIL there: the books are changed by several threads at a time."""
    text = " ".join(map(str, range(30_000)))
    tn.install()
    before, results = tn.statistics(), []
    threads = [threading.Thread(target=lambda: results.append([numpy.fromstring(text, sep=" ").sum() for _ in range(10)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[sum(range(30_000))] * 10] * 4
    after = tn.statistics()
    assert (after.in_use, after.live, after.overhead) == (before.in_use, before.live, before.overhead)
    assert after.resizes > before.resizes
    tn.uninstall()


def test_what_is_not_numpys_memory_is_not_counted(tmp_path: Any) -> None:
    file = tmp_path / "array.npy"
    numpy.save(file, numpy.arange(100_000))
    tn.install()
    before = tn.statistics().in_use
    others = [numpy.load(file, mmap_mode="r"), numpy.frombuffer(bytes(1000)), numpy.asarray(memoryview(bytearray(1000)))]
    assert tn.statistics().in_use == before
    assert [tn.owner(array) for array in others] == [None] * 3
    loaded = numpy.load(file)
    assert tn.statistics().in_use - before == loaded.nbytes
    tn.uninstall()


def test_arrays_older_than_install_are_left_alone() -> None:
    array = numpy.arange(1000)
    before = tn.statistics()
    tn.install()
    array.resize(2000, refcheck=False)
    assert array[:1000].sum() == sum(range(1000))
    del array
    after = tn.statistics()
    assert (after.in_use, after.unknown_frees) == (before.in_use, before.unknown_frees)
    tn.uninstall()


def test_arrays_outlive_uninstall() -> None:
    tn.install()
    before = tn.statistics().in_use
    array = numpy.arange(1000)
    tn.uninstall()
    after = numpy.empty(5000)
    assert tn.statistics().in_use - before == array.nbytes
    array.resize(MIB // 8, refcheck=False)
    assert tn.statistics().in_use - before == MIB
    del array
    assert tn.statistics().in_use == before
    del after


def overcommits() -> bool:
    """Whether memory that is not there is given all the same."""
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1"
    except OSError:
        return True


MORE_THAN_THERE_IS = pytest.param(
    2**46,
    marks=pytest.mark.skipif(
        overcommits() or "libasan" in os.environ.get("LD_PRELOAD", ""), reason="the kernel gives what is not there, or AddressSanitizer ends the process"
    ),
)


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("size", [2**47, MORE_THAN_THERE_IS])
def test_out_of_memory(name: str, size: int) -> None:
    tn.install(**ALLOCATORS[name])
    array = numpy.arange(1000)
    before = tn.statistics()
    for make in (numpy.empty, numpy.zeros):
        with pytest.raises(MemoryError):
            make(size, "u1")
    with pytest.raises(MemoryError):
        array.resize(size, refcheck=False)
    after = tn.statistics()
    assert (after.in_use, after.live, after.overhead) == (before.in_use, before.live, before.overhead)
    assert after.failed - before.failed == 3
    assert array.sum() == sum(range(1000)), "a resize that failed leaves the array as it was"
    del array
    tn.uninstall()


def test_tracemalloc_counts_an_array_once() -> None:
    import tracemalloc

    for arguments in ALLOCATORS.values():
        tn.install(**arguments)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            array = numpy.zeros(20 * MIB, "u1")
            array.resize(30 * MIB, refcheck=False)
            traced = tracemalloc.get_traced_memory()[0] - before
            assert array.nbytes <= traced < array.nbytes + 20_000
            snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, numpy.lib.tracemalloc_domain)])
            assert sum(trace.size for trace in snapshot.traces) >= array.nbytes
            del array, snapshot
        finally:
            tracemalloc.stop()
            tn.uninstall()


def test_the_small_cache_of_numpy_is_kept() -> None:
    """NumPy keeps freed blocks of less than 1 KiB: the next array of the size gets the same one."""
    tn.install()
    first = numpy.empty(100, "u1")
    address = first.ctypes.data
    del first
    assert numpy.empty(100, "u1").ctypes.data == address
    tn.uninstall()
