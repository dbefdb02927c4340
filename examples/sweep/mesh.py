"""An unstructured hexahedral mesh, made on the host: a box of cells with a ball cut out, points and cells in random order."""

from typing import NamedTuple

import numpy as np

# Corners of a hexahedron as visualisation tools number them: 0 to 3 around the bottom, 4 to 7 above them.
CORNERS = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)])
FACES = np.array([(0, 4, 7, 3), (1, 2, 6, 5), (0, 1, 5, 4), (3, 7, 6, 2), (0, 3, 2, 1), (4, 5, 6, 7)])  # corners, seen from outside anticlockwise
EDGES = np.array([(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7)])

_BALL = 0.3  # radius of the ball that is cut out, in edges of the box
_KEPT = 1 - 4 / 3 * np.pi * _BALL**3  # share of the cells that are left


class Mesh(NamedTuple):
    """Points at rest (P, 3) and the cells' corners (N, 8)."""

    points: np.ndarray
    cells: np.ndarray


def make_mesh(cells: int, seed: int = 7) -> Mesh:
    """A mesh with about that many cells; the same every time."""
    side = max(2, round((cells / _KEPT) ** (1 / 3)))
    corner = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    middle = (corner + 0.5) / side - 0.5
    corner = corner[(middle**2).sum(axis=1) > _BALL**2]
    grid = corner[:, None, :] + CORNERS
    numbers = (grid[..., 0] * (side + 1) + grid[..., 1]) * (side + 1) + grid[..., 2]

    used, numbers = np.unique(numbers, return_inverse=True)
    random = np.random.default_rng(seed)
    new_number = random.permutation(len(used))
    points = np.empty((len(used), 3))
    points[new_number] = np.stack(np.unravel_index(used, (side + 1,) * 3), axis=1) / side
    numbers = new_number[numbers.reshape(-1, 8)]
    return Mesh(points, random.permutation(numbers).astype(np.int32))
