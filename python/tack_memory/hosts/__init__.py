"""Plugging in to array frameworks: `install` gives one exact accounting, spilling and budgets; `uninstall` leaves it as it was.

A framework (a *host*) goes on allocating through its own driver binding. What it allocates is adopted: from then on it is counted,
moved and freed here. `_protocol` says what a host must tell and what it gets; each other module adapts hosts of one shape.
"""

from __future__ import annotations

from _thread import RLock

from .. import _hosts
from .._logging import debug
from .._native import sim_library_path
from .._settings import SIM_KINDS, parse_device_name
from ._array_generation import ArrayGeneration
from ._protocol import HostAdapter, HostDevice, HostHasMemoryError, MissingSeamError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import SupportsIndex

__all__ = ["HostAdapter", "HostDevice", "HostHasMemoryError", "MissingSeamError", "install", "sim_library", "uninstall"]

ADAPTERS: tuple[type[HostAdapter], ...] = (ArrayGeneration,)
"""The shapes of hosts that are known; the first that recognises a host adapts it."""

_lock = RLock()  # guards _installed and the plugging in; outer to every lock of ours
_installed: dict[str, HostAdapter] = {}  # module name -> its adapter


def install(
    host: ModuleType | None = None,
    *,
    simulate: SupportsIndex | str | None = None,
    simulate_capacity: SupportsIndex | str | None = None,
) -> None:
    """Plug in to an array framework: its arrays are counted, and spilled when memory runs short.

    The host gets memory_info, reset_peak_memory, memory_peak, set_memory_budget, get_memory_budget, memory_budget and memory_report,
    each only where it has no such name. Arrays that it holds already are adopted. Installing twice changes nothing.

    Parameters
    ----------
    host : module, optional
        The framework; by default Tack.
    simulate, simulate_capacity : size, optional
        Run the host's CPU backend on a spillable device: of unlimited capacity with this soft budget, or physically this small. For
        hosts that have a CPU backend.

    Raises
    ------
    MissingSeamError
        The host is not one of a known shape; the text names what is missing. Nothing was changed.
    HostHasMemoryError
        The host counts and spills by itself, or something else is plugged into it already.
    TypeError, ValueError
        `host` is no module; `simulate` or `simulate_capacity` is given for a host without a CPU backend.
    ImportError
        No host is given and Tack is not there.

    Notes
    -----
    May be called from any thread, while the host launches nothing in another one.
    """
    module = _module(host)
    with _lock:
        known = _installed.get(module.__name__)
        if simulate is not None or simulate_capacity is not None:
            adapter = known or _adapter_for(module)
            if not adapter.simulates:
                raise ValueError(f"{module.__name__} has no CPU backend that could compute on a simulated device: install it without simulate")
        if known is not None:
            if known.module is module:
                return
            raise HostHasMemoryError(f"another module named {module.__name__} is plugged in; uninstall that one first")
        adapter = _adapter_for(module)
        _hosts.register(adapter)
        try:
            adapter.attach(simulate=simulate, simulate_capacity=simulate_capacity)
        except BaseException:
            _hosts.unregister(adapter)
            raise
        _installed[module.__name__] = adapter
    debug("plugged in to %s (%s)", module.__name__, type(adapter).__name__)


def uninstall(host: ModuleType | None = None) -> None:
    """Undo `install`: bring every array back to the device, give the memory back to the host, and put each attribute back.

    Parameters
    ----------
    host : module, optional
        The framework; by default Tack.

    Raises
    ------
    DeviceMemoryError
        Not all arrays fit on the device. The host stays plugged in, and no array was lost.
    BufferError
        An array is held or exported. The host stays plugged in.
    RuntimeError
        Something else was plugged in on top of us, so that we cannot be taken out; the text names it.
    ValueError
        The host is not plugged in.

    Notes
    -----
    May be called from any thread, while the host launches nothing in another one.
    """
    module = _module(host)
    with _lock:
        adapter = _installed.get(module.__name__)
        if adapter is None or adapter.module is not module:
            raise ValueError(f"{module.__name__} is not plugged in")
        adapter.detach()
        del _installed[module.__name__]
        _hosts.unregister(adapter)
    debug("unplugged from %s", module.__name__)


def sim_library(device: str = "sim:0") -> str:
    """The path of a software driver, for a host that is to run on simulated devices: it must load this very file.

    Parameters
    ----------
    device : str
        The simulated device, or its kind: "sim:0" (CUDA's driver), "sim-hip:0", "sim-level_zero:0".

    Returns
    -------
    str
        An absolute path.

    Raises
    ------
    ValueError
        `device` names no simulated device.
    """
    parsed = parse_device_name(device)
    if parsed is None or parsed[0] not in SIM_KINDS:
        raise ValueError(f"{device!r} is no simulated device; there are {', '.join(SIM_KINDS)}, each with :0, :1 and so on")
    return sim_library_path(parsed[0])


def _adapter_for(module: ModuleType) -> HostAdapter:
    missing: dict[str, list[str]] = {}
    for adapter in ADAPTERS:
        seams = adapter.missing_seams(module)
        if not seams:
            return adapter(module)
        missing[adapter.shape] = seams
    told = "; ".join(f"{shape}: {', '.join(seams)}" for shape, seams in missing.items())
    raise MissingSeamError(f"{module.__name__} is not a host that tack_memory knows; what is missing, by shape: {told}")


def _module(host: ModuleType | None) -> ModuleType:
    if host is None:
        from importlib import import_module

        return import_module("tack")
    if not hasattr(host, "__name__") or not hasattr(host, "__spec__"):
        raise TypeError(f"a host is a module, not {type(host).__name__}")
    return host
