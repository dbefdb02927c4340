"""A host's launch with our HostLaunch in its place and nothing spilled, against the same launch without it.

The stand-in has the shape of a CPU backend: each array has a buffer that keeps an ndarray, and a launch reads that attribute of each array to bind it.
The smallest launch that there is: a real one does more, so what is added is a smaller part of it.
"""

from __future__ import annotations

from typing import Any

from measure import NANO, Row, difference, interleave, statement

import tack_memory
from tack_memory._native import _fast
from tack_memory.hosts._simulate import configure

SIZES = (1, 4, 16)
STORAGE = "_data"


def host() -> tuple[type, type, type]:
    """The classes of a host: buffer, array, backend."""

    class Buffer:
        def __init__(self, data: Any) -> None:
            self._data = data

    class Array:
        def __init__(self, buffer: Buffer) -> None:
            self._buffer = buffer

    class Backend:
        def execute(self, kernel: Any, args: Any, kwargs: Any) -> int:
            bound = [a._buffer._data if isinstance(a, Array) else a for a in args]
            return len(bound)

    return Buffer, Array, Backend


def in_python(original: Any, array: type) -> Any:
    """What HostLaunch does, as it would be in Python over enter_launch and leave_launch."""
    enter, leave, kind = _fast.enter_launch, _fast.leave_launch, _fast.HostArray

    def execute(backend: Any, kernel: Any, args: Any, *rest: Any) -> Any:
        held = [kept.buffer for a in args if isinstance(a, array) and type(kept := a._buffer.__dict__[STORAGE]) is kind]
        enter(held)
        try:
            return original(backend, kernel, args, *rest)
        finally:
            leave(held)

    return execute


def rows(rounds: int) -> list[Row]:
    import numpy

    device = configure("8 GiB")
    tack_memory.set_memory_budget(None, device)

    def make(array: Any, owner: Any) -> Any:
        return numpy.ndarray(array.info, numpy.uint8, owner)

    rows = []
    stock_buffer, stock_array, stock = host()
    buffer, array, backend = host()
    original = backend.execute  # type: ignore[attr-defined]
    buffer._data = _fast.HostArraySlot(STORAGE, lambda _, value: value)  # type: ignore[attr-defined]
    backend.execute = _fast.HostLaunch(original, array=array, storage=STORAGE)  # type: ignore[attr-defined]
    for count in SIZES:
        ours = [array(buffer(_fast.HostArray(tack_memory.allocate(4096, device), make, (4096,)))) for _ in range(count)]
        theirs = [stock_array(stock_buffer(numpy.zeros(4096, numpy.uint8))) for _ in range(count)]
        names = {"ours": ours, "theirs": theirs, "stock": stock(), "wrapped": backend(), "n": {}}
        t = interleave(
            {
                "stock": statement("stock.execute(None, theirs, n)", names, 4),
                "wrapped": statement("wrapped.execute(None, ours, n)", names, 4),
            },
            rounds,
        )
        value, median = difference(t["wrapped"], t["stock"])
        plural = "s" if count > 1 else ""
        note = f"{t['wrapped'].least * NANO:.0f} ns against {t['stock'].least * NANO:.0f} ns"
        rows.append(
            Row(
                f"a host's launch of {count} array{plural}, nothing spilled, above the same without us", value, "ns", 250 + 60 * count, median=median, note=note
            )
        )
        rows += parts(names, count, rounds)
    return rows


def parts(names: dict[str, Any], count: int, rounds: int) -> list[Row]:
    """The launch alone, where the host reads pointers that need no slot: ours, and the same written in Python."""
    kind = type(names["ours"][0])

    class Plain:
        def execute(self, kernel: Any, args: Any, kwargs: Any) -> None: ...

    class Ours:
        execute = _fast.HostLaunch(Plain.execute, array=kind, storage=STORAGE)

    class Python:
        execute = in_python(Plain.execute, kind)

    names = {**names, "plain": Plain(), "c": Ours(), "python": Python()}
    t = interleave({name: statement(f"{name}.execute(None, ours, n)", names, 4) for name in ("plain", "c", "python")}, rounds)
    value, median = difference(t["c"], t["plain"])
    python, _ = difference(t["python"], t["plain"])
    note = f"written in Python it would be {python:.0f} ns"
    return [Row(f"of that, HostLaunch itself ({count} array{'s' if count > 1 else ''})", value, "ns", median=median, note=note)]
