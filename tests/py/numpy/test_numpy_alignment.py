"""Each address is a multiple of the alignment, whatever NumPy does to make the array, and the contents are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from numpy_support import MIB

import tack_memory.numpy as tn

HUGE = 2 * MIB
SIZES = (1, 7, 100, 1000, 1024, 5000, 70_000, MIB, 5 * MIB + 3)


def resized(n: int) -> Any:
    array = numpy.arange(max(n // 3, 1), dtype="u1")
    array.resize(n, refcheck=False)
    return array


def shrunk(n: int) -> Any:
    array = numpy.arange(2 * n + 3, dtype="u1")
    array.resize(n, refcheck=False)
    return array


def sorted_copy(n: int) -> Any:
    array = numpy.arange(n, dtype="u1")[::-1].copy()
    array.sort()
    return array


MAKERS: dict[str, Callable[[int], Any]] = {
    "empty": lambda n: numpy.empty(n, "u1"),
    "zeros": lambda n: numpy.zeros(n, "u1"),
    "ones": lambda n: numpy.ones(n, "u1"),
    "resize": resized,
    "shrink": shrunk,
    "copy": lambda n: numpy.arange(n, dtype="u1").copy(),
    "sort": sorted_copy,
    "sorted": lambda n: numpy.sort(numpy.arange(n, dtype="u1")[::-1]),
    "argsort": lambda n: numpy.argsort(numpy.arange(n, dtype="u1")),
    "astype": lambda n: numpy.arange(n, dtype="u1").astype("f4"),
    "sum of two": lambda n: numpy.ones(n, "u1") + numpy.ones(n, "u1"),
    "concatenate": lambda n: numpy.concatenate([numpy.ones(n, "u1"), numpy.zeros(1, "u1")]),
    "fortran": lambda n: numpy.zeros((n, 2), "u1", order="F"),
}


@pytest.mark.parametrize("align", [16, 64, 4096, HUGE])
@pytest.mark.parametrize("maker", MAKERS)
def test_every_address_is_aligned(maker: str, align: int) -> None:
    with tn.use("aligned", align=align):
        for n in SIZES:
            arrays = [MAKERS[maker](n) for _ in range(2 if n > MIB else 5)]
            assert [array.ctypes.data % align for array in arrays] == [0] * len(arrays), n
            assert all(tn.owner(array).handler == "tack_memory_aligned" for array in arrays), n  # type: ignore[union-attr]


@pytest.mark.parametrize("align", [1, 8, 16, 64, 4096, "64 KiB", HUGE, "16 MiB"])
def test_zeros_are_zero_and_contents_survive_resizes(align: int | str) -> None:
    """Memory is used again, full of other things, between any two steps."""
    with tn.use("aligned", align=align):
        previous = numpy.empty(0, "u1")
        for n in (10, 5_000_000, 3, 200_000, 9_000_000, 100, 4_194_304, 4_194_303, 1):
            rubbish = [numpy.full(size, 0xEE, "u1") for size in (n, 1000, 100)]
            del rubbish
            zeros = numpy.zeros(n, "u1")
            assert not zeros.any()
            pattern = numpy.arange(n, dtype="u1")
            zeros[:] = pattern
            for other in (n // 2 + 1, 3 * n + 1, max(n // 7, 1)):
                zeros.resize(other, refcheck=False)
                kept = min(n, other)
                assert numpy.array_equal(zeros[:kept], pattern[:kept]), (n, other)
                n = kept
            previous = zeros
        del previous


def test_hugepage_aligns_large_arrays_and_keeps_contents_across_the_border() -> None:
    with tn.use("hugepage"):
        for n in (100, 4 * MIB - 1, 4 * MIB, 11 * MIB + 5, 4 * MIB - 2, 50, 6 * MIB):
            for zeros in (numpy.zeros(n, "u1"), numpy.empty(n, "u1")):
                if n >= 4 * MIB:
                    assert zeros.ctypes.data % HUGE == 0
        array = numpy.arange(3 * MIB, dtype="u1")
        for n in (5 * MIB, 9 * MIB, 4 * MIB, 4 * MIB - 1, 1000, 7 * MIB, 3):
            before, kept = array.copy(), min(array.size, n)
            array.resize(n, refcheck=False)
            assert numpy.array_equal(array[:kept], before[:kept]), n
            assert n < 4 * MIB or array.ctypes.data % HUGE == 0
        assert tn.owner(array).handler == "tack_memory_hugepage"  # type: ignore[union-attr]


def test_the_default_keeps_malloc_s_alignment() -> None:
    with tn.use():
        assert all(numpy.empty(n, "u1").ctypes.data % 16 == 0 for n in SIZES)


@pytest.mark.parametrize("align", [0, 3, -64, 2**31, "80%", 1.5, True, "many"])
def test_what_is_no_alignment_is_refused(align: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        tn.use("aligned", align=align)


@pytest.mark.parametrize(("name", "own"), [("default", 16), ("hugepage", 16), ("shared", 64)])
def test_an_alignment_is_for_those_who_align(name: str, own: int) -> None:
    """The others take the parameter's default, and what they keep by themselves."""
    for align in {1, 8, "16 B", own, 64}:
        with tn.use(name, align=align):
            assert all(numpy.empty(n, "u1").ctypes.data % own == 0 for n in SIZES)
    for wrong in (32 if own == 16 else 256, 128, "4 KiB", 3, 0):
        with pytest.raises(ValueError, match=f"'{name}' aligns by itself, to {own} bytes"):
            tn.use(name, align=wrong)


def test_install_takes_its_default_by_name_and_place() -> None:
    for allocator in ("default", "aligned", "hugepage", "shared"):
        tn.install("process", allocator, 64)
        assert numpy.zeros(1000).ctypes.data % (16 if allocator in ("default", "hugepage") else 64) == 0
    tn.install(align=64)
    assert tn.owner(numpy.zeros(10)).handler == "tack_memory"  # type: ignore[union-attr]
    tn.uninstall()


def test_larger_alignment_of_another_handler_is_kept(other: Any) -> None:
    with tn.use(other.capsule(), align=64):
        assert all(numpy.empty(n, "u1").ctypes.data % 64 == 0 for n in SIZES)
    with tn.use(other.capsule(), align=16):
        assert numpy.empty(100).ctypes.data % 64 == 16
