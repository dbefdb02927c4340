"""One run of the sweep: all time steps, once, with what it needed and what it gave."""

import contextlib
import gc
import hashlib
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import minihost as mh

import tack_memory

from . import kernels
from .filters import FILTERS, DataSet, Topology, compare
from .mesh import Mesh

BLOCK = 2**31
"""Most bytes of one block of a ballast: drivers have a greatest size."""


@dataclass
class Run:
    """Sizes are bytes. `sha256` is of all steps' outputs, `steps` has one for each step. `base` was there before (a ballast); it is in none of the others."""

    name: str
    sha256: str
    steps: list[str]
    seconds: float
    moving_seconds: float
    base: int
    peak: int
    footprint: int
    budget: int | None
    room: int | None
    over_budget_count: int
    spill_count: int
    restore_count: int
    spilled_bytes: int
    restored_bytes: int
    timeline: tack_memory.Timeline


def run(name: str, device: str, mesh: Mesh, steps: int, step_done: Callable[[], object], *, budget: int | str | None = None, room: int | None = None) -> Run:
    """Run the sweep under a budget, or (with `room`) on a device on which no more than that is left."""
    with contextlib.ExitStack() as stack:
        if room is not None:
            stack.enter_context(ballast(device, room))
        stack.enter_context(tack_memory.memory_budget(budget, device))
        limit = tack_memory.get_memory_budget(device)
        timeline = stack.enter_context(tack_memory.record_timeline(device, capacity=2000 * (steps + 1)))
        peak = stack.enter_context(tack_memory.memory_peak(device))
        before = tack_memory.memory_info(device)
        start = time.perf_counter()
        hashes = []
        for sha256 in _sweep(mesh, steps):
            hashes.append(sha256)
            step_done()
        seconds = time.perf_counter() - start
        after = tack_memory.memory_info(device)
    return Run(
        name=name,
        sha256=hashlib.sha256("".join(hashes).encode()).hexdigest(),
        steps=hashes,
        seconds=seconds,
        moving_seconds=sum(point.elapsed for point in timeline.points),
        base=before.in_use,
        peak=peak.bytes - before.in_use,
        footprint=peak.footprint - before.in_use - before.spilled,
        budget=limit,
        room=room,
        over_budget_count=after.over_budget_count - before.over_budget_count,
        spill_count=after.spill_count - before.spill_count,
        restore_count=after.restore_count - before.restore_count,
        spilled_bytes=after.spilled_bytes - before.spilled_bytes,
        restored_bytes=after.restored_bytes - before.restored_bytes,
        timeline=timeline,
    )


def _sweep(mesh: Mesh, steps: int) -> Iterator[str]:
    """The SHA-256 of each step's outputs. Two data sets live at a time: a step is compared with the one before it."""
    topology = Topology(mesh)
    old: DataSet | None = None
    for step in range(steps):
        new = DataSet(topology, step / steps)
        for derive in FILTERS:
            derive(new)
        changes: dict[str, float] = compare(new, old) if old is not None else {}
        yield _sha256(new, changes)
        old = new


def _sha256(data: DataSet, changes: dict[str, float]) -> str:
    outputs = hashlib.sha256()
    for name, array in sorted(data.arrays.items()):
        outputs.update(f"{name} {array.dtype} {array.shape}".encode())
        outputs.update(array.numpy().data)
    for name, change in sorted(changes.items()):
        outputs.update(name.encode() + struct.pack("<d", change))
    return outputs.hexdigest()


@contextlib.contextmanager
def ballast(device: str, room: int) -> Iterator[None]:
    """Make a device small: take its memory, all but `room` bytes.

    In blocks that tack_memory does not know of. A driver that does not say what is free would give more than there is, and nobody could
    notice such blocks: there they are tack_memory's, which cannot move.
    """
    gc.collect()
    backend = mh.current_backend()
    backend.empty_cache()
    tack_memory.empty_cache(device)
    free = tack_memory.memory_info(device).device_free
    if free is not None and free <= room:
        raise RuntimeError(f"{device}: cannot leave {room} bytes free, there are {free}")
    with contextlib.ExitStack() as stack:
        stack.callback(backend.synchronize)
        if free is not None:
            for start in range(0, free - room, BLOCK):
                stack.callback(backend.free, backend.allocate(min(BLOCK, free - room - start)))
        else:
            _fill_but(device, room, stack)
        yield


def _fill_but(device: str, room: int, stack: contextlib.ExitStack) -> None:
    """Take memory until no more is given, and make a hole then."""
    smallest = min(4096, room // 2)
    hole = tack_memory.allocate(room - smallest, device, zero=False, movable=False)
    size = BLOCK
    while size >= smallest:
        try:
            stack.callback(tack_memory.allocate(size, device, zero=False, movable=False, label="ballast").free)
        except tack_memory.DeviceMemoryError:
            size //= 2
    hole.free()
    tack_memory.synchronize(device)


def too_much(device: str, room: int) -> str:
    """Ask for a launch that cannot fit on a device with so much room, and return the error's text.

    Each of its four arrays would fit, and can be made: the others are spilled for it. A launch needs all of them at once."""
    with ballast(device, room):
        parts = [mh.empty(room * 2 // 5 // 8) for _ in range(3)]
        out = mh.empty(room * 2 // 5 // 8)
        tack_memory.label("arrays of one launch", *parts, out)
        try:
            kernels.add_up(*parts, out)
        except mh.DeviceMemoryError as error:
            return str(error)
    raise RuntimeError(f"a launch over {4 * out.nbytes} bytes ran on a device with room for {room}")
