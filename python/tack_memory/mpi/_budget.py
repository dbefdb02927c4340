"""One budget for all ranks: those that share a device split it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from .. import _budget
from .._devices import resolve, size_on
from .._native import _fast
from .._physical import physical
from .._sizes import format_bytes, parse_size
from ._collective import TIMEOUT, collective

if TYPE_CHECKING:
    from .._devices import Device
    from .._sizes import Size


def set_memory_budget(
    size: Size | None, /, *, comm: MPI.Intracomm | None = None, device: Device = None, strict: bool = False, timeout: float = TIMEOUT
) -> int | None:
    """Set the budget of each device that the ranks use, and return this rank's own budget before. Ranks that share a device split it evenly.

    Collective: all ranks of the communicator must call it, with the same size and strictness. Either all ranks have their new budget afterwards, or all
    have that from before. (What was spilled for a budget that was taken back stays spilled until it is used.)

    Parameters
    ----------
    size : int, str or None
        For each device: bytes, "8 GiB", or a share of the device's total memory, "80%". None: no budget.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks; by default MPI.COMM_WORLD. Processes outside it that use the device have no part of the size.
    device : device, optional
        Which device of this rank; by default its current one. Ranks may name different ones.
    strict : bool
        As in `tack_memory.set_memory_budget`.
    timeout : float
        Seconds in which the other ranks must call it, too.

    Returns
    -------
    int or None
        The previous budget of this rank in bytes; None: there was none.

    Raises
    ------
    CollectiveError
        On every rank that called, and nothing changes on any: ranks ask for different sizes; the size is none, or less than a byte a rank; a rank has no such
        device, or does not know the total that a percentage is of; host memory for what has to be spilled ran out on a rank; a rank was not there in time, or
        called something else.
    ValueError, TypeError
        `comm` is no communicator of which this rank is a member; or it is one between two groups.
    RuntimeError
        MPI is not initialized, or finalized.

    Notes
    -----
    May be called from any thread where MPI was initialized with MPI_THREAD_MULTIPLE, as mpi4py does; one call at a time on each communicator. It ends within
    `1.4 * timeout + 2` seconds, and what a rank needs to spill.

    Which ranks share a device is found out by its UUID; a simulated device is a rank's own. Only a rank that dies in the very moment in which all confirm can
    leave others with different budgets.
    """
    name = ""

    def arguments() -> dict[str, Any]:
        if not isinstance(strict, bool):
            raise TypeError(f"strict must be True or False, not {strict!r}")
        return {"size": _comparable(size), "strict": strict}

    def part() -> dict[str, Any]:
        nonlocal name
        index = resolve(device)
        budget = None if size is None else size_on(size, index)
        if budget == 0:
            raise ValueError("a budget cannot be 0; None is: no budget")
        name = _fast.device_name(index)
        return {"device": name, "physical": physical(name), "bytes": budget}

    agreed = collective(comm, "set_memory_budget", arguments, part, timeout)
    sharing = [sum(other["physical"] == one["physical"] for other in agreed.told) for one in agreed.told]
    parts = [None if one["bytes"] is None else one["bytes"] // ranks for one, ranks in zip(agreed.told, sharing, strict=True)]
    agreed.refuse(
        {
            rank: f"{format_bytes(agreed.told[rank]['bytes'])} of {agreed.told[rank]['device']} for {sharing[rank]} ranks is less than a byte each"
            for rank, nbytes in enumerate(parts)
            if nbytes == 0
        }
    )

    before, was_strict = _fast.get_memory_budget(name), _fast.get_strict(name)
    failed: Exception | None = None
    try:
        try:
            _budget.set_memory_budget(parts[agreed.channel.rank], name, strict=strict)
        except Exception as error:
            failed = error
        agreed.confirm(failed)
    except BaseException as error:
        try:
            _fast.set_memory_budget(before, name, strict=was_strict)
        except Exception as undo:  # going back to a lower budget spills, too; the budget is set all the same
            error.add_note(f"the budget of {name} is as before, but what it has to spill could not be: {undo}")
        raise
    return before


def _comparable(size: object) -> int | str | None:
    """The same for sizes that are the same, however they are written; a percentage as it is written."""
    if size is None:
        return None
    if isinstance(size, str) and size.strip().endswith("%"):
        return f"{size.strip().removesuffix('%').strip()}%"
    return parse_size(size)
