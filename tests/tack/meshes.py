"""Meshes for Tack's algorithms, and comparing what comes out of them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tack
from tack.algorithms.flying_edges import UniformGrid


def grid(cells: int, layers: int | None = None, first_layer: int = 0) -> Any:
    """A grid over [-1.5, 1.5]^2; `layers` of cells in z, of the same size, from `first_layer` on. UniformGrid takes numbers of cells, not of points."""
    h = 3.0 / cells
    return UniformGrid(cells, cells, layers or cells, -1.5, -1.5, -1.5 + first_layer * h, h, h, h)


def waves(mesh: Any) -> np.ndarray:
    """A scalar at each point whose isosurfaces run through all of the mesh."""
    x, y, z = (origin + np.arange(n + 1) * step for origin, n, step in ((mesh.x0, mesh.nx, mesh.dx), (mesh.y0, mesh.ny, mesh.dy), (mesh.z0, mesh.nz, mesh.dz)))
    kk, jj, ii = np.meshgrid(z, y, x, indexing="ij")
    return (np.sin(3 * ii) * np.cos(2 * jj) + 0.5 * kk * ii + 0.3 * np.sin(5 * kk)).ravel().astype(np.float32)


def upload(values: np.ndarray) -> Any:
    """A field with these values."""
    return tack.field_like(np.ascontiguousarray(values))


def digest(*arrays: Any) -> str:
    """Of the bytes of NumPy arrays and fields."""
    found = hashlib.sha256()
    for array in arrays:
        values = array if isinstance(array, np.ndarray) else array.to_numpy()
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()[:16]
