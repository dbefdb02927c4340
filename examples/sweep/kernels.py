"""The kernels: NumPy functions that run on the device. Each reads and writes few arrays, so that one launch needs little at a time."""

from typing import Any, TypeAlias

import minihost as mh
import numpy as np

from .mesh import CORNERS, EDGES, FACES

Array: TypeAlias = np.ndarray[Any, Any]


@mh.kernel(writes="points scalar")
def move(rest: Array, time: float, points: Array, scalar: Array) -> None:
    """A wave goes through the mesh; the scalar is a field on the moved points."""
    x, y, z = rest.T
    points[:, 0] = x + 0.05 * np.sin(2 * np.pi * (y + time))
    points[:, 1] = y + 0.05 * np.sin(2 * np.pi * (z + 0.7 * time))
    points[:, 2] = z + 0.05 * np.cos(2 * np.pi * (x - 0.4 * time))
    scalar[:] = np.sin(3 * points[:, 0]) + points[:, 1] * points[:, 2]


@mh.kernel(writes="low high")
def face_keys(cells: Array, points: int, low: Array, high: Array) -> None:
    """Each face of each cell as two numbers made of its four points in ascending order: the same face gives the same numbers."""
    corners = np.sort(cells[:, FACES].reshape(-1, 4), axis=1).astype(np.int64)
    low[:] = corners[:, 0] * points + corners[:, 1]
    high[:] = corners[:, 2] * points + corners[:, 3]


@mh.kernel(writes="order")
def order_pairs(low: Array, high: Array, order: Array) -> None:
    order[:] = np.lexsort((high, low))


@mh.kernel(writes="first")
def first_pairs(low: Array, high: Array, order: Array, first: Array) -> None:
    """1 where a pair differs from the one before it in that order."""
    first[0] = 1
    first[1:] = (low[order[1:]] != low[order[:-1]]) | (high[order[1:]] != high[order[:-1]])


@mh.kernel(writes="keys order")
def sort_keys(keys: Array, order: Array) -> None:
    """Sort the keys in place; the order says where each came from."""
    order[:] = np.argsort(keys, kind="stable")
    keys[:] = keys[order]


@mh.kernel(writes="first")
def first_keys(keys: Array, first: Array) -> None:
    """1 where a sorted key differs from the one before it."""
    first[0] = 1
    first[1:] = keys[1:] != keys[:-1]


@mh.kernel(writes="numbers")
def number_uniques(order: Array, first: Array, numbers: Array) -> None:
    """For each entry, the number of its unique value."""
    numbers.reshape(-1)[order] = np.cumsum(first, dtype=np.int32) - 1


@mh.kernel(writes="example uses")
def count_uses(order: Array, first: Array, example: Array, uses: Array) -> None:
    """For each unique value, an entry that has it and how many have it."""
    starts = np.flatnonzero(first)
    example[:] = order[starts]
    uses[:] = np.diff(starts, append=len(order))


@mh.kernel(writes="faces")
def gather_faces(cells: Array, example: Array, faces: Array) -> None:
    faces[:] = cells[example[:, None] // len(FACES), FACES[example % len(FACES)]]


@mh.kernel(writes="flags")
def seen_once(uses: Array, flags: Array) -> None:
    flags[:] = uses == 1


@mh.kernel(writes="numbers")
def select(flags: Array, numbers: Array) -> None:
    """The numbers of the entries whose flag is set."""
    numbers[:] = np.flatnonzero(flags)


@mh.kernel(writes="rows")
def take_rows(table: Array, numbers: Array, rows: Array) -> None:
    rows[:] = table[numbers]


@mh.kernel(writes="keys")
def edge_keys(cells: Array, points: int, keys: Array) -> None:
    """Each edge of each cell as one number made of its two points in ascending order."""
    ends = np.sort(cells[:, EDGES].reshape(-1, 2), axis=1).astype(np.int64)
    keys[:] = ends[:, 0] * points + ends[:, 1]


@mh.kernel(writes="edges")
def decode_edges(keys: Array, first: Array, points: int, edges: Array) -> None:
    edges[:, 0], edges[:, 1] = np.divmod(keys[first != 0], points)


@mh.kernel(writes="offsets")
def link_offsets(cells: Array, offsets: Array) -> None:
    """CSR: links of point p are entries offsets[p] to offsets[p + 1]."""
    offsets[0] = 0
    np.cumsum(np.bincount(cells.reshape(-1), minlength=len(offsets) - 1), out=offsets[1:])


@mh.kernel(writes="links")
def fill_links(cells: Array, links: Array) -> None:
    """The cells of each point, in ascending order."""
    links[:] = np.argsort(cells.reshape(-1), kind="stable") // cells.shape[1]


@mh.kernel(writes="volumes")
def cell_volumes(points: Array, cells: Array, volumes: Array) -> None:
    """Exact volume of hexahedra with trilinear faces (Grandy's formula of three determinants)."""
    c = [points[cells[:, i]] for i in range(8)]
    diagonal = c[6] - c[0]
    volumes[:] = (
        _determinant(diagonal, c[1] - c[0], c[2] - c[5]) + _determinant(diagonal, c[4] - c[0], c[5] - c[7]) + _determinant(diagonal, c[3] - c[0], c[7] - c[2])
    ) / 6


@mh.kernel(writes="gradients")
def cell_gradients(points: Array, cells: Array, scalar: Array, gradients: Array) -> None:
    """Gradient in the middle of each cell: solves three equations, one an axis of the reference cell."""
    j = [_slopes(points[cells], axis) for axis in range(3)]
    s = [_slopes(scalar[cells], axis) for axis in range(3)]
    cofactors = (np.cross(j[1], j[2]), np.cross(j[2], j[0]), np.cross(j[0], j[1]))
    determinant = (j[0] * cofactors[0]).sum(axis=1)
    gradients[:] = sum(s[a][:, None] * cofactors[a] for a in range(3)) / determinant[:, None]


@mh.kernel(writes="averages")
def average_over_links(values: Array, offsets: Array, links: Array, averages: Array) -> None:
    """Each point gets the mean of its cells' values."""
    counts = np.diff(offsets)
    averages[:] = np.add.reduceat(values[links], offsets[:-1], axis=0) / counts[:, None]


@mh.kernel(writes="flags")
def crosses(scalar: Array, cells: Array, level: float, flags: Array) -> None:
    """1 where a cell has corners on both sides of the level."""
    corners = scalar[cells]
    flags[:] = (corners.min(axis=1) < level) & (corners.max(axis=1) >= level)


@mh.kernel(writes="lengths")
def edge_lengths(points: Array, edges: Array, lengths: Array) -> None:
    lengths[:] = np.sqrt(((points[edges[:, 0]] - points[edges[:, 1]]) ** 2).sum(axis=1))


@mh.kernel(writes="areas")
def face_areas(points: Array, faces: Array, areas: Array) -> None:
    """Area of the flat quadrilateral that fits best: half the cross product of the diagonals."""
    diagonals = points[faces[:, 2]] - points[faces[:, 0]], points[faces[:, 3]] - points[faces[:, 1]]
    areas[:] = np.sqrt((np.cross(*diagonals) ** 2).sum(axis=1)) / 2


@mh.kernel(writes="change")
def difference(new: Array, old: Array, change: Array) -> None:
    """How far two fields are apart, entry by entry."""
    change[:] = np.abs(new - old).reshape(len(change), -1).max(axis=1)


@mh.kernel(writes="out")
def add_up(a: Array, b: Array, c: Array, out: Array) -> None:
    out[:] = a + b + c


def _determinant(a: Array, b: Array, c: Array) -> Array:
    return (a * np.cross(b, c)).sum(axis=1)


def _slopes(corners: Array, axis: int) -> Array:
    """Derivative of the trilinear function with these corner values, in the middle of the cell."""
    ahead = CORNERS[:, axis] == 1
    return (corners[:, ahead].sum(axis=1) - corners[:, ~ahead].sum(axis=1)) / 4
