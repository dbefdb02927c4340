"""The filters: each derives arrays of a data set from others, as visualisation pipelines do."""

from typing import Any

import minihost as mh
import numpy as np

from . import kernels
from .mesh import Mesh


class DataSet:
    """One time step: the arrays that were derived for it, by name. They live on the device for as long as the data set does."""

    def __init__(self, topology: "Topology", time: float) -> None:
        self.topology = topology
        self.time = time
        self.arrays: dict[str, mh.array] = {}

    def __getattr__(self, name: str) -> mh.array:
        try:
            return self.arrays[name]
        except KeyError:
            raise AttributeError(f"this data set has no {name}") from None

    def new(self, name: str, shape: Any, dtype: Any) -> mh.array:
        self.arrays[name] = mh.empty(shape, dtype)
        return self.arrays[name]


class Topology:
    """What all time steps share: the points at rest and the cells."""

    def __init__(self, mesh: Mesh) -> None:
        self.rest = mh.asarray(mesh.points)
        self.cells = mh.asarray(mesh.cells)
        self.point_count = len(mesh.points)
        self.cell_count = len(mesh.cells)


def move(data: DataSet) -> None:
    """points, scalar"""
    count = data.topology.point_count
    kernels.move(data.topology.rest, data.time, data.new("points", (count, 3), np.float64), data.new("scalar", count, np.float64))


def faces(data: DataSet) -> None:
    """faces (each once), face_uses (by how many cells), cell_faces (six a cell)"""
    cells = data.topology.cells
    entries = 6 * data.topology.cell_count
    low, high = mh.empty(entries, np.int64), mh.empty(entries, np.int64)
    kernels.face_keys(cells, data.topology.point_count, low, high)
    order, first = mh.empty(entries, np.int32), mh.empty(entries, np.uint8)
    kernels.order_pairs(low, high, order)
    kernels.first_pairs(low, high, order, first)
    del low, high
    count = int(mh.reduce_sum(first))
    example = mh.empty(count, np.int32)
    kernels.count_uses(order, first, example, data.new("face_uses", count, np.int32))
    kernels.number_uniques(order, first, data.new("cell_faces", (data.topology.cell_count, 6), np.int32))
    kernels.gather_faces(cells, example, data.new("faces", (count, 4), np.int32))


def surface(data: DataSet) -> None:
    """surface: the faces that only one cell has"""
    flags = mh.empty(len(data.faces), np.uint8)
    kernels.seen_once(data.face_uses, flags)
    numbers = _selected(flags)
    kernels.take_rows(data.faces, numbers, data.new("surface", (len(numbers), 4), np.int32))


def edges(data: DataSet) -> None:
    """edges (each once), cell_edges (twelve a cell)"""
    entries = 12 * data.topology.cell_count
    keys = mh.empty(entries, np.int64)
    kernels.edge_keys(data.topology.cells, data.topology.point_count, keys)
    order, first = mh.empty(entries, np.int32), mh.empty(entries, np.uint8)
    kernels.sort_keys(keys, order)
    kernels.first_keys(keys, first)
    kernels.decode_edges(keys, first, data.topology.point_count, data.new("edges", (int(mh.reduce_sum(first)), 2), np.int32))
    del keys
    kernels.number_uniques(order, first, data.new("cell_edges", (data.topology.cell_count, 12), np.int32))


def links(data: DataSet) -> None:
    """offsets, links: the cells of each point (CSR)"""
    cells = data.topology.cells
    kernels.link_offsets(cells, data.new("offsets", data.topology.point_count + 1, np.int64))
    kernels.fill_links(cells, data.new("links", 8 * data.topology.cell_count, np.int32))


def volumes(data: DataSet) -> None:
    """volumes of the cells"""
    kernels.cell_volumes(data.points, data.topology.cells, data.new("volumes", data.topology.cell_count, np.float64))


def gradient(data: DataSet) -> None:
    """gradient of the scalar: cell_gradients, and gradients at the points"""
    cell_gradients = data.new("cell_gradients", (data.topology.cell_count, 3), np.float64)
    kernels.cell_gradients(data.points, data.topology.cells, data.scalar, cell_gradients)
    gradients = data.new("gradients", (data.topology.point_count, 3), np.float64)
    kernels.average_over_links(cell_gradients, data.offsets, data.links, gradients)


def crossing(data: DataSet, level: float = 0.9) -> None:
    """crossed: the cells that the isosurface of the scalar at this level goes through"""
    flags = mh.empty(data.topology.cell_count, np.uint8)
    kernels.crosses(data.scalar, data.topology.cells, level, flags)
    data.arrays["crossed"] = _selected(flags)


def measures(data: DataSet) -> None:
    """edge_lengths, face_areas"""
    kernels.edge_lengths(data.points, data.edges, data.new("edge_lengths", len(data.edges), np.float64))
    kernels.face_areas(data.points, data.faces, data.new("face_areas", len(data.faces), np.float64))


FILTERS = (move, faces, surface, edges, links, volumes, gradient, crossing, measures)
"""In the order in which a time step runs them."""


def compare(new: DataSet, old: DataSet) -> dict[str, float]:
    """How much changed between two time steps: the greatest change of some fields, and two sums."""
    changes = {}
    for name in ("points", "gradients", "volumes", "face_areas", "edge_lengths"):
        change = mh.empty(len(new.arrays[name]), np.float64)
        kernels.difference(new.arrays[name], old.arrays[name], change)
        changes[name] = float(mh.reduce_max(change))
    changes["volume"] = float(mh.reduce_sum(new.volumes))
    changes["shortest"] = float(mh.reduce_min(new.edge_lengths))
    return changes


def _selected(flags: mh.array) -> mh.array:
    numbers = mh.empty(int(mh.reduce_sum(flags)), np.int32)
    kernels.select(flags, numbers)
    return numbers
