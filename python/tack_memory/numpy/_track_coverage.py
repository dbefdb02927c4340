"""What a report by line cannot know: arrays whose memory is not counted, as far as Python's garbage collector leads to them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from .._native import _numpy
from .._sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator


class Uncovered(NamedTuple):
    """Arrays of one kind that are not counted."""

    kind: str
    arrays: int
    bytes: int | None
    """Their memory; None: it is not known."""
    note: str = ""


class Coverage(NamedTuple):
    """What is not in a report, found when it was made. At least: arrays that only C code refers to are not found."""

    uncovered: tuple[Uncovered, ...]

    def __str__(self) -> str:
        parts = [
            f"{format_bytes(one.bytes)} of {one.arrays:,} {one.kind}" if one.bytes is not None else f"{one.note} of {one.arrays:,} {one.kind}"
            for one in self.uncovered
        ]
        return "not covered: " + (", ".join(parts) if parts else "nothing that could be found")

    def to_dict(self) -> dict[str, Any]:
        return {one.kind: {"arrays": one.arrays, "bytes": one.bytes, "note": one.note} for one in self.uncovered}


def look_for_arrays(counts_numpy: bool) -> tuple[Uncovered, ...]:
    """Look at every array that is reached now; each memory counts once, however many views there are of it."""
    owners: dict[int, tuple[str, int]] = {}  # by the id of what owns the memory
    elements = objects = 0
    for array in _arrays():
        if _get("dtype", array).hasobject and _get("flags", array).owndata:
            objects += 1
            elements += _get("size", array)
        owner, nearest, kind = _owner(array)
        if kind is None and counts_numpy:
            continue
        if _is_array(owner):
            nbytes = _get("nbytes", owner)
        else:  # a buffer: what arrays see of it
            nbytes = max(_extent(nearest), owners.get(id(owner), ("", 0))[1])
        owners[id(owner)] = (kind or "NumPy's arrays (their domain is not tracked)", nbytes)
    sums: dict[str, list[int]] = {}
    for kind, nbytes in owners.values():
        total = sums.setdefault(kind, [0, 0])
        total[0] += 1
        total[1] += nbytes
    found = [Uncovered(kind, arrays, nbytes) for kind, (arrays, nbytes) in sorted(sums.items(), key=lambda item: -item[1][1])]
    if objects:
        found.append(Uncovered("arrays of objects", objects, None, f"{elements:,} elements"))
    return tuple(found)


def _is_array(one: object) -> bool:
    """isinstance would ask proxies for their __class__, which may raise."""
    return issubclass(type(one), numpy.ndarray)


def _get(name: str, array: Any) -> Any:
    """An attribute as ndarray has it, whatever a subclass makes of it."""
    return vars(numpy.ndarray)[name].__get__(array)


_STRIDED: Any = type(numpy.lib.stride_tricks.as_strided(numpy.empty(1)).base)
"""What NumPy puts between an array and a view of it with other strides (as_strided, sliding_window_view); the array is its `base`."""


def _extent(array: Any) -> int:
    """Bytes of the memory that an array sees, at most: elements may lie over each other, or have gaps between them."""
    shape = _get("shape", array)
    if 0 in shape:
        return 0
    spread: int = _get("itemsize", array) + sum((length - 1) * abs(stride) for length, stride in zip(shape, _get("strides", array), strict=True))
    nbytes: int = _get("nbytes", array)
    return min(spread, nbytes)


def _owner(array: Any) -> tuple[Any, Any, str | None]:
    """What owns an array's memory, the array next to that, and what it is called where that is not counted."""
    while True:
        if _get("flags", array).owndata:
            told = _numpy.owner(array)
            if told is None:
                return array, array, "arrays with memory of other code"
            return array, array, None if told[1] is not None else f"arrays of the handler {told[0]}"
        base = _get("base", array)
        if type(base) is _STRIDED:
            base = base.base
        if _is_array(base):
            array = base
            continue
        if base is None:
            return array, array, "arrays with memory of other code"
        while type(base) is memoryview:
            try:
                base = base.obj
            except ValueError:  # it was released
                break
        return base, array, "memory maps" if issubclass(type(array), numpy.memmap) or type(base).__name__ == "mmap" else "buffers of other objects"


def _arrays() -> Iterator[Any]:
    """Arrays are not the collector's, but what refers to them mostly is: that, and running code. Nothing found stays referred to."""
    seen: set[int] = set()

    def fresh(objects: Any) -> Iterator[Any]:
        for one in objects:
            if _is_array(one) and id(one) not in seen:
                seen.add(id(one))
                yield one

    known = gc.get_objects()
    try:
        yield from fresh(known)  # those of subclasses, with a __dict__
        for at in range(0, len(known), 1000):
            yield from fresh(gc.get_referents(*known[at : at + 1000]))
    finally:
        known.clear()
    running = _numpy.running_locals()
    try:
        yield from fresh(running)
    finally:
        running.clear()
