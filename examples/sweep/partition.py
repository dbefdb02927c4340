"""The sweep in parts, for programs whose processes share the work: a mesh cut into pieces, and the run of one piece."""

from dataclasses import dataclass

import numpy as np

import tack_memory

from . import runs
from .mesh import Mesh


@dataclass
class Part:
    """What one piece's run gave and needed. Sizes are bytes; all of it can be sent to another process, unlike a `runs.Run` that holds a whole timeline.

    `steps` has one SHA-256 for each step's outputs: two runs of a piece gave the same results, byte for byte, exactly where these are equal.
    """

    number: int
    cells: int
    points: int
    device: str
    steps: list[str]
    seconds: float
    moving_seconds: float
    peak: int
    footprint: int
    budget: int | None
    over_budget_count: int
    spill_count: int
    restore_count: int
    spilled_bytes: int
    restored_bytes: int


def partitions(mesh: Mesh, number: int) -> list[Mesh]:
    """Cut a mesh into that many pieces: contiguous ranges of its cells, of almost equal length, each with its own points, numbered anew from 0.

    The same every time, so that each process can make its piece by itself. The points of a piece keep the order that they have in the mesh. A mesh of fewer
    cells than pieces is a ValueError.
    """
    if not 0 < number <= len(mesh.cells):
        raise ValueError(f"a mesh of {len(mesh.cells)} cells cannot be cut into {number} pieces")
    ends = [len(mesh.cells) * piece // number for piece in range(number + 1)]
    return [_piece(mesh, begin, end) for begin, end in zip(ends[:-1], ends[1:], strict=True)]


def _piece(mesh: Mesh, begin: int, end: int) -> Mesh:
    used, numbers = np.unique(mesh.cells[begin:end], return_inverse=True)
    return Mesh(mesh.points[used], numbers.reshape(-1, 8).astype(mesh.cells.dtype))


def run_part(number: int, mesh: Mesh, steps: int) -> Part:
    """Run the sweep over one piece, on minihost's current device and under the budget that this has now."""
    device = tack_memory.memory_info().device
    one = runs.run(f"piece {number}", device, mesh, steps, lambda: None, budget=tack_memory.get_memory_budget(device))
    return Part(
        number=number,
        cells=len(mesh.cells),
        points=len(mesh.points),
        device=device,
        steps=one.steps,
        seconds=one.seconds,
        moving_seconds=one.moving_seconds,
        peak=one.peak,
        footprint=one.footprint,
        budget=one.budget,
        over_budget_count=one.over_budget_count,
        spill_count=one.spill_count,
        restore_count=one.restore_count,
        spilled_bytes=one.spilled_bytes,
        restored_bytes=one.restored_bytes,
    )
