"""The memory of all ranks in one table."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from .._devices import resolve_name
from .._native import _fast
from .._physical import physical
from . import _figure
from ._collective import TIMEOUT, collective, ranks_text
from ._figure import Figure

if TYPE_CHECKING:
    from .._devices import Device

_OF_THE_DEVICE = ("device_free", "device_total")  # the same device's for all ranks that share it


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """One rank and its device. Sizes are bytes; what is unknown is None.

    Attributes
    ----------
    rank, pid : int
        The rank in the communicator, and its process.
    host : str
        The name of the machine, as MPI tells it.
    device : str
        "cuda:0", as the rank calls it.
    physical : str
        Which piece of hardware that is: ranks share a device exactly where these texts are equal.
    version : str
        Of tack_memory there.
    in_use, peak, cached, spilled, device_free, device_total, budget, footprint, reserved, over_budget, host_bytes : int or None
        Figures of its MemoryInfo.
    over_budget_count, spill_count, restore_count, spilled_bytes, restored_bytes : int
        Totals of its MemoryInfo.
    problem : str or None
        What is not as it should be.
    """

    rank: int
    pid: int
    host: str
    device: str
    physical: str
    version: str
    in_use: int | None
    peak: int | None
    cached: int | None
    spilled: int | None
    device_free: int | None
    device_total: int | None
    budget: int | None
    footprint: int | None
    reserved: int | None
    over_budget: int | None
    host_bytes: int | None
    over_budget_count: int | None
    spill_count: int | None
    restore_count: int | None
    spilled_bytes: int | None
    restored_bytes: int | None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksMemory:
    """The memory of all ranks of a communicator: what `memory_info(comm)` returns, the same on every rank. Print it, or show it in a notebook.

    Attributes
    ----------
    rows : list of RankMemory
        One a rank.
    in_use, peak, cached, spilled, device_free, device_total, budget, footprint, reserved, over_budget, host_bytes : Figure
        Bytes: minimum, maximum and sum over the ranks, and which ranks have them. The sum of the peaks is an upper bound: they need not have been at one
        time. Free and total memory of a device that several ranks share count once in the sum.
    over_budget_count, spill_count, restore_count, spilled_bytes, restored_bytes : Figure
        The same of the totals.
    problems : list of str
        What is not as it should be, a line for each: other versions of the package, ranks on devices of different kinds.
    """

    rows: list[RankMemory]
    in_use: Figure[int]
    peak: Figure[int]
    cached: Figure[int]
    spilled: Figure[int]
    device_free: Figure[int]
    device_total: Figure[int]
    budget: Figure[int]
    footprint: Figure[int]
    reserved: Figure[int]
    over_budget: Figure[int]
    host_bytes: Figure[int]
    over_budget_count: Figure[int]
    spill_count: Figure[int]
    restore_count: Figure[int]
    spilled_bytes: Figure[int]
    restored_bytes: Figure[int]
    problems: list[str]

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values, for JSON. Sizes are bytes."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join([_figure.text_table(*self._cells(), left=3), *self.problems])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _figure.html_table(*self._cells(), left=3, notes=self.problems)

    def _cells(self) -> tuple[list[str], list[list[str]], list[list[str]]]:
        heads = ["rank", "host", "device", "in use", "peak", "spilled", "budget", "free", "total", "spills", "restores"]
        size = _figure.size
        lines = [
            [
                str(row.rank), row.host, row.device, size(row.in_use), size(row.peak), size(row.spilled), size(row.budget),
                size(row.device_free), size(row.device_total), _count(row.spill_count), _count(row.restore_count),
            ]
            for row in self.rows
        ]  # fmt: skip
        shown = [None, None, self.in_use, self.peak, self.spilled, self.budget, self.device_free, self.device_total, self.spill_count, self.restore_count]
        return heads, lines, _figure.summary(shown, len(self.rows), [False] * 8 + [True] * 2)


FIGURES = tuple(field.name for field in fields(RanksMemory) if field.name not in ("rows", "problems"))


def memory_info(comm: MPI.Intracomm | None = None, device: Device = None, *, timeout: float = TIMEOUT) -> RanksMemory:
    """Return the memory of all ranks' devices: one row a rank, and of each figure the minimum, the maximum and the sum, with the ranks that have them.

    Collective: all ranks of the communicator must call it. The result is the same on all of them.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The ranks; by default MPI.COMM_WORLD.
    device : device, optional
        Which device of this rank; by default its current one. Ranks may name different ones.
    timeout : float
        Seconds in which the other ranks must call it, too.

    Returns
    -------
    RanksMemory
        Sizes are in bytes; what no rank knows is None.

    Raises
    ------
    CollectiveError
        On every rank that called: a rank has no such device, was not there in time, or called something else.
    ValueError, TypeError
        `comm` is no communicator of which this rank is a member; or it is one between two groups.
    RuntimeError
        MPI is not initialized, or finalized.

    Notes
    -----
    May be called from any thread where MPI was initialized with MPI_THREAD_MULTIPLE, as mpi4py does; one call at a time on each communicator. It ends within
    `1.1 * timeout + 1` seconds. The figures of each rank are of one moment, those of different ranks are not.
    """

    def part() -> dict[str, Any]:
        name = resolve_name(device)
        info = _fast.memory_info(name)
        told = {figure: getattr(info, figure) for figure in FIGURES}
        return {"pid": os.getpid(), "host": MPI.Get_processor_name(), "device": name, "physical": physical(name), **told}

    agreed = collective(comm, "memory_info", dict, part, timeout)
    return _of_all(agreed.told, agreed.versions)


def _of_all(told: Sequence[dict[str, Any]], versions: Sequence[str]) -> RanksMemory:
    rows = [
        RankMemory(
            rank=rank,
            version=version,
            problem=None if version == versions[0] else f"runs tack_memory {version}, rank 0 runs {versions[0]}",
            **{name: one.get(name) for name in ("pid", "host", "device", "physical", *FIGURES)},  # type: ignore[arg-type]  # what another version tells
        )
        for rank, (one, version) in enumerate(zip(told, versions, strict=True))
    ]
    hardware = [row.physical for row in rows]
    figures = {name: Figure.of([getattr(row, name) for row in rows], hardware if name in _OF_THE_DEVICE else None) for name in FIGURES}
    return RanksMemory(rows=rows, problems=problems_of(versions, [row.device for row in rows]), **figures)


def problems_of(versions: Sequence[str], devices: Sequence[str]) -> list[str]:
    """What is to be said of ranks that differ."""
    problems = []
    if len(set(versions)) > 1:
        problems.append("the ranks run different versions of tack_memory: " + _whose(versions))
    kinds = [device.partition(":")[0] for device in devices]
    if len(set(kinds)) > 1:
        problems.append("the ranks' devices differ: " + _whose(kinds))
    return problems


def _whose(texts: Sequence[str]) -> str:
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    for rank, text in enumerate(texts):
        ranks[text].append(rank)
    return ", ".join(f"{text} on {ranks_text(found)}" for text, found in ranks.items())


def _count(count: int | None) -> str:
    return "-" if count is None else str(count)
