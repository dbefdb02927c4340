"""The sweep's filters against plain NumPy, and that the example framework knows nothing of tack_memory."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def mesh_and_arrays(bare: ModuleType) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Cells of a mesh, and what the filters derive on it for one time step."""
    from sweep.filters import FILTERS, DataSet, Topology
    from sweep.mesh import make_mesh

    mesh = make_mesh(1000)
    data = DataSet(Topology(mesh), 0.3)
    for derive in FILTERS:
        derive(data)
    return mesh.cells, {name: array.numpy() for name, array in data.arrays.items()}


def test_faces_and_surface(mesh_and_arrays: tuple[np.ndarray, dict[str, np.ndarray]]) -> None:
    from sweep.mesh import FACES

    cells, found = mesh_and_arrays
    every = np.sort(cells[:, FACES].reshape(-1, 4), axis=1)
    unique, inverse, uses = np.unique(every, axis=0, return_inverse=True, return_counts=True)
    assert set(uses) == {1, 2}
    assert (np.sort(found["faces"], axis=1) == unique).all()
    assert (found["face_uses"] == uses).all()
    assert (found["cell_faces"].reshape(-1) == inverse.reshape(-1)).all()
    assert (np.sort(found["surface"], axis=1) == unique[uses == 1]).all()


def test_edges(mesh_and_arrays: tuple[np.ndarray, dict[str, np.ndarray]]) -> None:
    from sweep.mesh import EDGES

    cells, found = mesh_and_arrays
    unique, inverse = np.unique(np.sort(cells[:, EDGES].reshape(-1, 2), axis=1), axis=0, return_inverse=True)
    assert (found["edges"] == unique).all()
    assert (found["cell_edges"].reshape(-1) == inverse.reshape(-1)).all()
    ends = found["points"][found["edges"]]
    assert np.allclose(found["edge_lengths"], np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1), rtol=1e-14)


def test_links(mesh_and_arrays: tuple[np.ndarray, dict[str, np.ndarray]]) -> None:
    cells, found = mesh_and_arrays
    offsets, links = found["offsets"], found["links"]
    assert (offsets[0], offsets[-1], len(links)) == (0, cells.size, cells.size)
    for point in range(len(offsets) - 1):
        assert links[offsets[point] : offsets[point + 1]].tolist() == np.flatnonzero((cells == point).any(axis=1)).tolist()


def test_volumes_add_up_to_what_the_surface_encloses(mesh_and_arrays: tuple[np.ndarray, dict[str, np.ndarray]]) -> None:
    """By the divergence theorem; the bilinear faces are integrated exactly by 2 x 2 Gauss points."""
    _, found = mesh_and_arrays
    corners = found["points"][found["surface"]]
    enclosed = 0.0
    for u in (0.5 - 12**-0.5, 0.5 + 12**-0.5):
        for v in (0.5 - 12**-0.5, 0.5 + 12**-0.5):
            weights = [(1 - u) * (1 - v), u * (1 - v), u * v, (1 - u) * v]
            along_u = [-(1 - v), 1 - v, v, -v]
            along_v = [-(1 - u), -u, u, 1 - u]
            place, du, dv = (sum(w * corners[:, i] for i, w in enumerate(ws)) for ws in (weights, along_u, along_v))
            enclosed += (place * np.cross(du, dv)).sum() / 3 / 4
    assert found["volumes"].min() > 0
    assert np.isclose(found["volumes"].sum(), enclosed, rtol=1e-12)


def test_gradient_is_the_mean_of_the_cells_and_near_the_true_one(mesh_and_arrays: tuple[np.ndarray, dict[str, np.ndarray]]) -> None:
    cells, found = mesh_and_arrays
    sums = np.zeros_like(found["gradients"])
    np.add.at(sums, cells.reshape(-1), np.repeat(found["cell_gradients"], 8, axis=0))
    counts = np.bincount(cells.reshape(-1))[:, None]
    assert np.allclose(found["gradients"], sums / counts, rtol=1e-12, atol=1e-12)
    x, y, z = found["points"][cells].mean(axis=1).T
    exact = np.stack([3 * np.cos(3 * x), z, y], axis=1)
    assert np.abs(found["cell_gradients"] - exact).max() < 0.2  # of 3


def test_crossed_cells(mesh_and_arrays: tuple[np.ndarray, dict[str, np.ndarray]]) -> None:
    cells, found = mesh_and_arrays
    corners = found["scalar"][cells]
    below, above = (corners < 0.9).any(axis=1), (corners >= 0.9).any(axis=1)
    assert 0 < len(found["crossed"]) < len(cells)
    assert found["crossed"].tolist() == np.flatnonzero(below & above).tolist()


def test_the_framework_knows_nothing_of_tack_memory(bare: ModuleType) -> None:
    sources = list(Path(str(bare.__file__)).parent.rglob("*.py"))
    assert len(sources) >= 8
    for source in sources:
        assert "tack" not in source.read_text().lower(), f"{source} names tack"
