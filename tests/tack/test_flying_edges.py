"""Flying edges over 63^3 cells: the same bytes without us and under any budget."""

from __future__ import annotations

import numpy as np
import pytest
import tack
from meshes import digest, grid, upload, waves
from tack.algorithms.flying_edges import flying_edges

import tack_memory

CELLS = 63


def surface() -> tuple[str, int, int]:
    mesh = grid(CELLS)
    found = flying_edges(upload(waves(mesh)), mesh, 0.3)
    return digest(found["points"], found["conn"]), found["total_points"], found["total_tris"]


def crossed_edges() -> int:
    """The mesh's edges whose ends are on two sides of the isovalue: each is a point of the surface."""
    values = waves(grid(CELLS)).reshape((CELLS + 1,) * 3) >= np.float32(0.3)
    return sum(int((np.diff(values.astype(np.int8), axis=axis) != 0).sum()) for axis in range(3))


@pytest.fixture(scope="module")
def plain() -> tuple[str, int, int]:
    tack.init("cpu")
    return surface()


def test_it_is_the_right_surface(plain: tuple[str, int, int]) -> None:
    assert plain[1] == crossed_edges() > 1000


@pytest.mark.parametrize("addresses", ["fresh", "reuse"])
@pytest.mark.parametrize("budget", [3_000_000, 2_000_000, 0])
def test_the_same_bytes_under_a_budget(plain: tuple[str, int, int], budget: int, addresses: str) -> None:
    tack_memory.install(tack, simulate=budget, simulate_addresses=addresses)
    try:
        before = tack.memory_info()
        with tack.memory_peak() as peak:
            assert surface() == plain
        after = tack.memory_info()
    finally:
        tack_memory.uninstall(tack)
    spills, restores = after.spill_count - before.spill_count, after.restore_count - before.restore_count
    print(f"budget {budget}: {spills} spills, {restores} restores, footprint {peak.footprint}, {plain[1]} points, {plain[2]} triangles, sha {plain[0]}")
    assert (spills > 0 and restores > 0) == (peak.footprint > budget)


def test_the_same_bytes_counted_only(plain: tuple[str, int, int]) -> None:
    tack_memory.install(tack)
    try:
        with tack.memory_peak() as peak:
            assert surface() == plain
    finally:
        tack_memory.uninstall(tack)
    assert peak.own > (CELLS + 1) ** 3 * 4
