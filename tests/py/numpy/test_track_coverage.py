"""A report says what it cannot know: each kind of array whose memory is not counted, and how much there is of it."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path
from typing import Any

import numpy
from numpy_support import MIB

import tack_memory.numpy as tn
from tack_memory._native import _numpy
from tack_memory.numpy._track_coverage import Uncovered

KEPT: list[Any] = []
"""Where the garbage collector finds arrays."""


def found(t: tn.track) -> dict[str, tuple[int, int | None]]:
    coverage = t.report().coverage
    assert coverage is not None
    return {one.kind: (one.arrays, one.bytes) for one in coverage.uncovered}


def more(after: dict[str, tuple[int, int | None]], before: dict[str, tuple[int, int | None]]) -> dict[str, tuple[int, int]]:
    """What came in between; other arrays of this process are in both."""
    change = {kind: (count - before.get(kind, (0, 0))[0], (nbytes or 0) - (before.get(kind, (0, 0))[1] or 0)) for kind, (count, nbytes) in after.items()}
    return {kind: two for kind, two in change.items() if two != (0, 0)}


def test_each_kind_is_found_with_its_bytes(tmp_path: Path) -> None:
    born_before = numpy.zeros(3 * MIB, "u1")
    KEPT.append(born_before[5:])  # a view of it: all of it counts, once
    KEPT.append(born_before[:5])
    try:
        with tn.track() as t:
            before = found(t)
            mapped = numpy.memmap(tmp_path / "file", dtype="u1", mode="w+", shape=MIB)
            anonymous = mmap.mmap(-1, 8192)
            KEPT.extend([mapped, mapped[10:], numpy.frombuffer(anonymous, "u1"), numpy.frombuffer(bytes(5000), "u1"), numpy.array([object()] * 50, object)])
            counted = numpy.zeros(2 * MIB, "u1")
            KEPT.append(counted)
            change = more(found(t), before)
            assert change == {"memory maps": (2, MIB + 8192), "buffers of other objects": (1, 5000), "arrays of objects": (1, 0)}
            assert before["arrays of the handler default_allocator"][1] >= 3 * MIB  # type: ignore[operator]
            text = str(t.report().coverage)
            assert text.startswith("not covered: ") and "50 elements of 1 arrays of objects" in text
            KEPT.clear()
            del mapped, counted
            anonymous = None
            gc.collect()
            born_before = numpy.empty(0)
            assert "memory maps" not in more(found(t), before)
    finally:
        KEPT.clear()


def test_views_with_other_strides_are_views() -> None:
    """NumPy puts an object of its own between such a view and its array; and one that sees its memory many times has no more of it."""
    strided = numpy.lib.stride_tricks
    try:
        with tn.track() as t:
            counted = numpy.zeros(10_000)
            before = found(t)
            KEPT.extend([strided.sliding_window_view(counted, 1000), strided.as_strided(counted[10:], (1000, 1000), (0, 8))])
            assert more(found(t), before) == {}, "their memory is counted"
            buffer = numpy.frombuffer(bytes(8000))
            KEPT.extend([strided.as_strided(buffer, (1_000_000,), (0,)), strided.sliding_window_view(buffer, 500)])
            KEPT.append(numpy.ndarray((1000, 1000), "u1", bytes(1234), strides=(0, 1)))
            KEPT.append(numpy.ndarray((0, 1000), "u1", bytes(50)))
            assert more(found(t), before) == {"buffers of other objects": (3, 9000)}
            del buffer
    finally:
        KEPT.clear()


def test_variables_of_functions_that_run_are_found(tmp_path: Path) -> None:
    """Of this function, of one further out, and in closures; looking for them keeps none alive."""

    def outer() -> Any:
        local = numpy.frombuffer(bytes(1234), "u1")
        captured = numpy.frombuffer(bytes(77), "u1")

        def inner() -> Any:
            assert captured.size == 77
            return found(t)

        result = inner()
        assert local.size == 1234
        return result

    with tn.track() as t:
        before = found(t)
        assert more(outer(), before) == {"buffers of other objects": (2, 1311)}
        assert more(found(t), before) == {}


def test_an_array_with_memory_of_other_code_and_another_handler(other: Any) -> None:
    with tn.track() as t:
        before = found(t)
        with tn.use(other.capsule()):
            ours = numpy.zeros(100, "u1")  # over somebody's handler, counted
        variable = _numpy.context_variable()
        token = variable.set(other.capsule())
        try:
            KEPT.append(numpy.zeros(4321, "u1"))
        finally:
            variable.reset(token)
        change = more(found(t), before)
        assert [two for kind, two in change.items() if kind.startswith("arrays of the handler ")] == [(1, 4321)], change
        KEPT.clear()
        del ours


def test_odd_objects_are_not_asked() -> None:
    class Odd(numpy.ndarray):
        @property
        def flags(self) -> Any:
            raise RuntimeError("not now")

        dtype = base = nbytes = size = flags  # type: ignore[assignment]

    class Proxy:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("nothing is behind it")

        @__class__.setter
        def __class__(self, value: Any) -> None: ...

    with tn.track() as t:
        before = found(t)
        KEPT.extend([Odd(5), Proxy(), numpy.frombuffer(bytes(99), "u1").view(Odd)])
        assert more(found(t), before) == {"buffers of other objects": (1, 99)}
        KEPT.clear()


def test_it_is_left_out_where_it_is_not_wanted() -> None:
    with tn.track() as t:
        report = t.report(coverage=False)
    assert report.coverage is None and "not covered" not in str(report)
    assert str(t.report()).count("not covered: ") == 1
    assert Uncovered("memory maps", 1, 5).note == ""
