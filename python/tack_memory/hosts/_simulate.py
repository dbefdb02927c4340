"""The device that a host's CPU backend computes on under `install(host, simulate=...)`: ordinary memory that spills, at addresses that the host can use.

An adapter whose host has such a backend calls `configure` in `attach`, and allocates what the backend computes on with
`_fast.allocate(nbytes, DEVICE)`: `device_ptr` is where the host reads and writes it. As with any device it is valid while the buffer is held or
launched on, and no longer: then a stale pointer crashes ("fresh"), or reads what somebody else has there ("reuse").
"""

from __future__ import annotations

import gc
from typing import NamedTuple

from .. import _devices, _hosts
from .._control import call
from .._logging import debug
from .._native import _fast
from .._settings import ADDRESS_MODES, SIM_CPU_KIND, settings
from .._sizes import format_bytes, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._sizes import Size

DEVICE = f"{SIM_CPU_KIND}:0"

_UNLIMITED = -1  # as Go takes it


class Simulation(NamedTuple):
    """How a host's CPU backend computes on the simulated device."""

    budget: int | None
    """Bytes of its soft budget; None: that of TACK_MEMORY_BUDGET, if any."""
    capacity: int | None
    """How many bytes it has; None: unlimited."""
    addresses: str
    """What becomes of the addresses of freed and spilled memory: one of ADDRESS_MODES."""

    def __str__(self) -> str:
        size = f"soft budget {format_bytes(self.budget)}" if self.capacity is None else f"capacity {format_bytes(self.capacity)}"
        return f"{size}, addresses {'used once' if self.addresses == 'fresh' else 'used again at once'}"


def wanted(simulate: Size | None, simulate_capacity: Size | None, mode: str | None = None) -> Simulation:
    """What the arguments of `configure` ask for. Changes nothing; raises as `configure` does for arguments that are wrong."""
    if (simulate is None) == (simulate_capacity is None):
        raise ValueError("give either simulate (a soft budget, on a device of unlimited capacity) or simulate_capacity (how small the device is)")
    budget = None if simulate is None else parse_size(simulate, of=DEVICE)
    capacity = None if simulate_capacity is None else parse_size(simulate_capacity, of=DEVICE)
    if capacity == 0:
        raise ValueError("simulate_capacity cannot be 0: nothing could be computed; simulate=0 spills everything that is not in use")
    if mode is None:
        mode = settings.simulate_addresses
    if mode not in ADDRESS_MODES:
        raise ValueError(f"the addresses of a simulated device are one of {', '.join(ADDRESS_MODES)}, not {mode!r}")
    return Simulation(budget, capacity, mode)


def configure(simulate: Size | None = None, simulate_capacity: Size | None = None, mode: str | None = None) -> str:
    """Make the simulated device, or make it another one, and return its name.

    Parameters
    ----------
    simulate : size, optional
        A device of unlimited capacity with this soft budget; 0: everything that is not in use is spilled.
    simulate_capacity : size, optional
        A device that is physically this small; its budget is that of TACK_MEMORY_BUDGET, if any.
    mode : {"fresh", "reuse"}, optional
        What becomes of the addresses of freed and spilled memory; by default as TACK_MEMORY_SIMULATE_ADDRESSES says, else "fresh".

    Raises
    ------
    ValueError
        Not exactly one of the two sizes is given; one is no size; the capacity is 0; there is no such mode; another host computes on the device;
        memory is allocated on the device (then it is as before).
    TypeError
        A size is neither an int nor a string.

    Notes
    -----
    May be called from any thread; whoever installs has a lock of its own around it.
    """
    simulation = wanted(simulate, simulate_capacity, mode)
    there = next((host.name for host in _hosts.registered() if getattr(host, "simulated", None) == DEVICE), None)
    if there is not None:
        raise ValueError(f"{there} computes on {DEVICE} already, and what one host set up would not be what the other asked for; uninstall {there} first")
    _set_up(_UNLIMITED if simulation.capacity is None else simulation.capacity, simulation.addresses)
    index = _devices.resolve(DEVICE)  # opens it at the first time, with the budget of the environment
    _fast.set_memory_budget(simulation.budget, DEVICE)
    if simulation.budget is None:
        _devices.apply_budget(DEVICE)
    debug("%s: %s", _fast.device_name(index), simulation)
    return DEVICE


def _set_up(capacity: int, mode: str) -> None:
    try:
        call("SetSimCPU", capacity, mode)
    except ValueError:  # something is left of the last time; perhaps only in garbage
        gc.collect()
        call("SetSimCPU", capacity, mode)
