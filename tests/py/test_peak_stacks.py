"""What the pytest plug-in asks of a peak scope: where the program was at its maxima, the figures of all devices, what is alive at its end."""

from __future__ import annotations

import gc
import sys
import weakref
from threading import Event, Thread
from types import FunctionType
from typing import Any

import pytest
from support import KIB, MIB, run_python

import tack_memory
from tack_memory import MemoryPeak, memory_peak


def allocates(nbytes: int, device: str) -> tack_memory.Buffer:
    return tack_memory.allocate(nbytes, device)


def noted(device: str, until: FunctionType | None = None) -> MemoryPeak:
    peak = memory_peak(device).__enter__()
    peak._note_stacks(until.__code__ if until is not None else None)
    return peak


def lines(stack: tuple[tuple[str, int, str], ...] | None, function: FunctionType) -> list[tuple[str, int]]:
    """Functions of this file on a stack, innermost first, with their lines from that function's first."""
    assert stack is not None
    first = function.__code__.co_firstlineno
    return [(name.rpartition(".")[2], line - first) for file, line, name in stack if file == __file__]


def test_each_maximum_has_the_stack_of_its_own_moment(device: str) -> None:
    old = tack_memory.allocate(4 * MIB, device)

    def body() -> None:
        nonlocal old
        first = allocates(MIB, device)  # the peak, and the footprint's: 5 MiB
        del old
        second = allocates(2 * MIB, device)  # of its own, 3 MiB
        del first, second
        allocates(KIB, device)

    peak = noted(device, body)  # type: ignore[arg-type]
    body()
    peak.__exit__(None, None, None)
    offset = allocates.__code__.co_firstlineno - body.__code__.co_firstlineno
    assert lines(peak._stack_at_peak, body) == [("allocates", offset + 1), ("body", 2)]  # type: ignore[arg-type]
    assert peak._stack_at_footprint == peak._stack_at_peak
    assert lines(peak._stack_at_own, body) == [("allocates", offset + 1), ("body", 4)]  # type: ignore[arg-type]
    assert (peak.bytes, peak.own) == (5 * MIB, 3 * MIB)


def test_what_is_brought_back_raises_the_peak(device: str) -> None:
    away = tack_memory.allocate(MIB, device)
    away.spill()
    with memory_peak(device) as peak:
        peak._note_stacks(None)

        def launches() -> None:
            with tack_memory.launch(away):
                pass

        launches()
    assert lines(peak._stack_at_peak, launches)[0] == ("launches", 1)  # type: ignore[arg-type]
    assert peak._stack_at_own is None and peak._stack_at_footprint is None


def test_nothing_is_noted_that_did_not_rise(any_device: str) -> None:
    kept = tack_memory.allocate(MIB, any_device)
    with memory_peak(any_device) as peak:
        assert peak._stack_at_peak is None, "nobody asked for stacks"
        peak._note_stacks(None)
        assert peak._stack_at_peak is None and peak._stack_at_own is None
        with memory_peak(any_device) as other:
            allocates(KIB, any_device)
        assert other._stack_at_peak is None and peak._stack_at_peak is not None
    before = peak._stack_at_peak
    allocates(2 * MIB, any_device)
    assert peak._stack_at_peak == before, "it is frozen"
    del kept


def test_a_stack_ends_at_the_code_that_was_given_and_is_not_without_end(any_device: str) -> None:
    def deep(depth: int) -> tack_memory.Buffer:
        return deep(depth - 1) if depth else allocates(KIB, any_device)

    peak = noted(any_device, deep)  # type: ignore[arg-type]
    deep(3)
    assert [name.rpartition(".")[2] for _, _, name in peak._stack_at_peak or ()] == ["allocates", "deep"]
    peak.__exit__(None, None, None)
    peak = noted(any_device)
    deep(300)
    peak.__exit__(None, None, None)
    assert len(peak._stack_at_peak or ()) == 100


def test_it_keeps_no_code_and_no_buffer_alive(any_device: str) -> None:
    namespace: dict[str, Any] = {"allocate": tack_memory.allocate}
    exec("def made(device):\n    return allocate(1024, device)", namespace)
    with memory_peak(any_device) as peak:
        peak._note_stacks(None)
        namespace["made"](any_device)
    code = weakref.ref(namespace["made"].__code__)
    namespace.clear()
    gc.collect()
    assert code() is None and peak._stack_at_peak is not None


def test_wrong_uses_are_refused(any_device: str) -> None:
    peak = memory_peak(any_device)
    with pytest.raises(RuntimeError, match="open"):
        peak._note_stacks(None)
    with peak:
        with pytest.raises(TypeError, match="a code object or None, not function"):
            peak._note_stacks(allocates)  # type: ignore[arg-type]
        peak._note_stacks(None)
        with pytest.raises(RuntimeError, match="once"):
            peak._note_stacks(None)
    with pytest.raises(RuntimeError, match="open"):
        peak._note_stacks(None)


def test_no_collection_runs_while_a_stack_is_noted() -> None:
    """A finalizer there would be code in the middle of an adoption."""
    done = run_python(
        """
        import gc, sys, tack_memory

        def deep(depth):
            return deep(depth - 1) if depth else tack_memory.allocate(1024, "sim:0")

        def told(phase, info):
            frame = sys._getframe(1)
            if frame.f_code.co_name == "deep":
                print("collected", phase)

        kept = [deep(0)]
        gc.collect()
        with tack_memory.memory_peak("sim:0") as peak:
            peak._note_stacks(None)
            gc.callbacks.append(told)
            gc.set_threshold(40)
            kept.append(deep(90))
            gc.callbacks.remove(told)
        print(len(peak._stack_at_peak), gc.isenabled())
        """
    )
    assert done.stdout == "92 True\n", done.stdout + done.stderr


def test_figures_of_all_devices_and_what_is_alive_at_the_end() -> None:
    before = tack_memory.allocate(KIB, "sim:1")
    with memory_peak("sim:0") as peak:
        one = tack_memory.allocate(3 * MIB, "sim:0")
        two = tack_memory.allocate(MIB, "sim:0")
        two.spill()
        other = tack_memory.allocate(2 * KIB, "sim:1")
        del one
        assert peak.own_end == MIB, "so far"
    del two
    figures = peak._figures
    assert figures["sim:0"] == {
        "bytes": peak.bytes, "delta": 4 * MIB, "footprint": peak.footprint, "own": 4 * MIB, "own_end": MIB, "end": peak.end,
        "spilled_bytes": MIB, "restored_bytes": 0,
    }  # fmt: skip
    assert figures["sim:1"]["own"] == figures["sim:1"]["own_end"] == 2 * KIB and figures["sim:1"]["delta"] == 2 * KIB
    assert figures["cpu"]["own"] == 0 if "cpu" in figures else True
    assert peak.own_end == MIB, "it is frozen"
    del before, other


def test_a_scope_that_is_dropped_open_notes_nothing_more(any_device: str) -> None:
    peak, other = noted(any_device), noted(any_device)
    allocates(KIB, any_device)
    del peak
    gc.collect()
    allocates(2 * KIB, any_device)
    assert other.bytes == other.start + 2 * KIB and lines(other._stack_at_peak, allocates)[0] == ("allocates", 1)  # type: ignore[arg-type]
    other.__exit__(None, None, None)


def test_a_peak_is_never_noted_as_the_place_of_a_call_that_only_looked(device: str) -> None:
    """Other threads ask for figures all the time: such a call returns, with the GIL, while the one that raised the peak still waits for it."""
    done, kept = Event(), []

    def looks() -> None:
        while not done.is_set():
            tack_memory.memory_info(device)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    watchers = [Thread(target=looks) for _ in range(3)]
    for one in watchers:
        one.start()
    try:
        with memory_peak(device) as peak:
            peak._note_stacks(None)
            for _ in range(2000):
                kept.append(allocates(KIB, device))
                assert lines(peak._stack_at_peak, allocates)[:1] == [("allocates", 1)]  # type: ignore[arg-type]
    finally:
        sys.setswitchinterval(interval)
        done.set()
        for one in watchers:
            one.join()
