"""The validation sweep: a pipeline of Tack's own algorithms over a mesh whose footprint is at least three times the budget.

A program runs it as any user would who keeps the results: scalars on several blocks, isosurfaces over all of them, their normals, values from cells to
points, isosurfaces of those, prefix sums, histograms. Each step must complete, and each step's results must have the same bytes as without us. What it
costs is printed.

    python tests/tack/sweep.py [--cells 64] [--blocks 8] [--shares 3 6] [--repeat 3]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, NamedTuple

os.environ["TACK_CPU_THREADS"] = "1"  # sums in the same order each time
os.environ["TACK_MEMORY_AUTOINSTALL"] = "0"

import numpy as np
import tack
from meshes import digest, grid, upload, waves
from tack.algorithms import count_nonzero, histogram, inclusive_scan, norm
from tack.algorithms.cell_to_point import cell_to_point
from tack.algorithms.compute_normals import compute_normals
from tack.algorithms.flying_edges import flying_edges, flying_edges_multiblock

import tack_memory


class Step(NamedTuple):
    """What one step gave."""

    name: str
    digest: str
    seconds: float


def pipeline(cells: int, blocks: int) -> list[Step]:
    """All steps. What they make is kept to the end."""
    steps: list[Step] = []
    layers = cells // blocks
    meshes = [grid(cells, layers, place * layers) for place in range(blocks)]
    kept: dict[str, Any] = {}

    def step(name: str, work: Any) -> None:
        begun = time.perf_counter()
        kept[name] = work()
        took = time.perf_counter() - begun
        parts = kept[name] if isinstance(kept[name], list) else [kept[name]]
        steps.append(Step(name, digest(*(part["points"] if isinstance(part, dict) else part for part in parts)), took))

    step("scalars at the points", lambda: [upload(waves(mesh)) for mesh in meshes])
    step("scalars at the cells", lambda: [upload(waves(mesh)[: mesh.nx * mesh.ny * mesh.nz]) for mesh in meshes])
    step(
        "from cells to points",
        lambda: [cell_to_point(field, mesh.nx, mesh.ny, mesh.nz) for field, mesh in zip(kept["scalars at the cells"], meshes, strict=True)],
    )
    for isovalue in (-0.2, 0.1, 0.4):
        name = f"isosurface {isovalue}"
        all_blocks = [{"scalar": field, "grid": mesh} for field, mesh in zip(kept["scalars at the points"], meshes, strict=True)]
        step(name, lambda all_blocks=all_blocks, isovalue=isovalue: flying_edges_multiblock(all_blocks, isovalue))
        surface = kept[name]
        step(
            f"normals {isovalue}",
            lambda surface=surface: compute_normals(surface["points_field"], surface["conn_field"], surface["total_points"], surface["total_tris"]),
        )
    step("isosurfaces of the cells' values", lambda: [flying_edges(field, mesh, 0.2) for field, mesh in zip(kept["from cells to points"], meshes, strict=True)])

    def sums() -> list[Any]:
        found = []
        for field in kept["from cells to points"]:
            found.append(tack.field(dtype=tack.f32, shape=field.shape))
            inclusive_scan(field, found[-1], field.size)
        return found

    step("prefix sums", sums)
    step("figures", lambda: [figures(field) for field in (*kept["scalars at the points"], *kept["prefix sums"])])
    return steps


def figures(field: Any) -> Any:
    """A field's norm, number of values that are not zero, sum, least, greatest, and histogram."""
    counts, edges = histogram(field, bins=16)
    told = [norm(field), count_nonzero(field), field.sum(), field.min(), field.max()]
    return np.concatenate([np.asarray(one.to_numpy() if hasattr(one, "to_numpy") else one, np.float64) for one in (told, counts, edges)])


def main() -> int:
    """Run it without us, and under budgets; 0 where all results are the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=64, help="of the mesh, along each side")
    parser.add_argument("--blocks", type=int, default=8, help="that the mesh is cut into")
    parser.add_argument("--shares", type=int, nargs="+", default=[3, 6], help="the budgets: the footprint through these")
    parser.add_argument("--repeat", type=int, default=3, help="each run so often; of each step's times the least is told")
    options = parser.parse_args()
    tack.init("cpu")
    pipeline(8, 2)  # compiles the kernels
    plain = pipeline(options.cells, options.blocks)
    tack_memory.install(tack)
    with tack.memory_peak() as counted:
        right = same(plain, pipeline(options.cells, options.blocks), "counted only")
    tack_memory.uninstall(tack)
    budgets = {counted.own // share: share for share in options.shares}
    told: dict[int, str] = {}
    runs: dict[int | None, list[list[Step]]] = {None: [plain], **{budget: [] for budget in budgets}}
    for _ in range(options.repeat):  # in turn, so that what else the machine does meets all of them
        runs[None].append(pipeline(options.cells, options.blocks))
        for budget, share in budgets.items():
            found, peak, moves, told[budget] = under(budget, options)
            runs[budget].append(found)
            right = same(plain, found, f"budget {budget}") and right
            if peak < share * budget:
                print(f"the footprint was {peak} bytes, less than {share} times the budget", file=sys.stderr)
                right = False
            if min(moves) == 0:
                print(f"budget {budget}: {moves[0]} spills and {moves[1]} restores: it was no budget at all", file=sys.stderr)
                right = False
    fastest = {budget: [min(steps, key=lambda step: step.seconds) for steps in zip(*found, strict=True)] for budget, found in runs.items()}
    without = total(fastest[None])
    print(f"{len(plain)} steps over {options.cells}^3 cells in {options.blocks} blocks; footprint {counted.own} bytes; without us {without * 1000:.1f} ms")
    for budget, what in told.items():
        under_it = total(fastest[budget])
        print(f"budget {budget} bytes ({what}): {under_it * 1000:.1f} ms, {under_it / without:.2f} times as long")
        for one, other in zip(fastest[None], fastest[budget], strict=True):
            print(f"  {one.name}: {one.seconds * 1000:.1f} ms, then {other.seconds * 1000:.1f} ms; {other.digest}")
    print("sweep: all results are the same" if right else "sweep: results differ")
    return 0 if right else 1


def under(budget: int, options: argparse.Namespace) -> tuple[list[Step], int, tuple[int, int], str]:
    """One run under a budget: its steps, its footprint, its spills and restores, and all of that in words."""
    tack_memory.install(tack, simulate=budget)
    before = tack.memory_info()
    with tack.memory_peak() as peak:
        found = pipeline(options.cells, options.blocks)
    after = tack.memory_info()
    tack_memory.uninstall(tack)
    spills, restores = after.spill_count - before.spill_count, after.restore_count - before.restore_count
    moved = after.spilled_bytes - before.spilled_bytes + after.restored_bytes - before.restored_bytes
    over = after.over_budget_count - before.over_budget_count
    told = (
        f"footprint {peak.footprint}, {peak.footprint / budget:.1f} times as much; peak {peak.bytes}, over budget {over} times; "
        f"{spills} spills and {restores} restores, {moved} bytes moved"
    )
    return found, peak.footprint, (spills, restores), told


def same(plain: list[Step], found: list[Step], name: str) -> bool:
    differing = [one.name for one, other in zip(plain, found, strict=True) if (one.name, one.digest) != (other.name, other.digest)]
    for step in differing:
        print(f"{name}: {step} has other results", file=sys.stderr)
    return not differing


def total(steps: list[Step]) -> float:
    return sum(step.seconds for step in steps)


if __name__ == "__main__":
    sys.exit(main())
