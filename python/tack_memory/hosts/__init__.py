"""Plugging in to array frameworks: `install` gives one exact accounting, spilling and budgets; `uninstall` leaves it as it was.

A framework (a *host*) goes on allocating through its own driver binding. What it allocates is adopted: from then on it is counted,
moved and freed here. `_protocol` says what a host must tell and what it gets; each other module adapts hosts of one shape.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock
from typing import NamedTuple

from .. import _auto, _hosts
from .._logging import debug
from .._native import PACKAGE_FOLDER, _fast, sim_library_path
from .._settings import SIM_KINDS, parse_device_name
from ._array_generation import ArrayGeneration
from ._field_generation import FieldGeneration
from ._names import OWN_ACCOUNTING
from ._protocol import HostAdapter, HostDevice, HostHasMemoryError, MissingSeamError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import SupportsIndex

    from ._simulate import Simulation

__all__ = ["HostAdapter", "HostDevice", "HostHasMemoryError", "MissingSeamError", "install", "sim_library", "uninstall"]

ADAPTERS: tuple[type[HostAdapter], ...] = (ArrayGeneration, FieldGeneration)
"""The shapes of hosts that are known; the first that recognises a host adapts it."""


class Plugged(NamedTuple):
    """A host that is plugged in."""

    adapter: HostAdapter
    simulation: Simulation | None
    by_itself: bool
    """Nobody asked for it but `import tack_memory`: an explicit install may still say how."""
    whole: bool = True
    """False: Ctrl-C ended the plugging in or out on the way. It can be taken out, and is before it is plugged in again."""


_lock = RLock()  # guards _installed and the plugging in; outer to every lock of ours
_installed: dict[str, Plugged] = {}  # by the module's name; from before the first attribute is replaced until the last one is put back


def _new_lock_in_child() -> None:
    global _lock
    _lock = RLock()  # the thread that held it does not exist in the child


os.register_at_fork(after_in_child=_new_lock_in_child)


def install(
    host: ModuleType | None = None,
    *,
    simulate: SupportsIndex | str | None = None,
    simulate_capacity: SupportsIndex | str | None = None,
    simulate_addresses: str | None = None,
) -> None:
    """Plug in to an array framework: its arrays are counted, and spilled when memory runs short.

    The host gets memory_info, reset_peak_memory, memory_peak, set_memory_budget, get_memory_budget, memory_budget and memory_report,
    each only where it has no such name. Arrays that it holds already are adopted. Installing twice changes nothing. Tack is plugged in by
    `import tack_memory` alone; then this is for saying how.

    Parameters
    ----------
    host : module, optional
        The framework; by default Tack.
    simulate : size, optional
        Run the host's CPU backend on a spillable device with this soft budget, in bytes or as "64 KiB"; 0 is legal: whatever is not in
        use is spilled. For hosts that have a CPU backend.
    simulate_capacity : size, optional
        Instead: on a device that is physically this small.
    simulate_addresses : "fresh" or "reuse", optional
        Whether the simulated device uses addresses again. "fresh": never, so that a stale pointer crashes. "reuse": at once, so that a
        stale pointer finds something else's bytes. By default as TACK_MEMORY_SIMULATE_ADDRESSES says, else "fresh".

    Raises
    ------
    MissingSeamError
        The host is not one of a known shape; the text names what is missing. Nothing was changed.
    HostHasMemoryError
        The host counts and spills by itself, or something else is plugged into it already.
    TypeError, ValueError
        `host` is no module; a size is none; the host has no CPU backend that could be simulated, or is plugged in already and is
        simulated otherwise.
    ImportError
        No host is given and Tack is not there.

    Notes
    -----
    May be called from any thread, while no other one uses the host: one that reads, fills or makes an array at that moment may have an address
    that is moved from under it.
    """
    simulation = None
    if not (simulate is simulate_capacity is simulate_addresses is None):
        from ._simulate import wanted

        simulation = wanted(simulate, simulate_capacity, simulate_addresses)
    module = _module(host)
    with _lock:
        _take_out_former(module)
        known = _known_whole(module)
        if known is None:
            _attach(module, simulation, by_itself=False)
        elif simulation is None or simulation == known.simulation:
            _installed[module.__name__] = known._replace(by_itself=False)
        elif not known.adapter.simulates:
            raise ValueError(_no_cpu_backend(module))
        elif not known.by_itself:
            how = "without simulate" if known.simulation is None else f"with simulate ({known.simulation})"
            raise ValueError(f"{module.__name__} is plugged in already, {how}; to have {simulation}, uninstall it first")
        else:
            _detach(module, known)
            try:
                _attach(module, simulation, by_itself=False)
            except BaseException:
                _attach(module, None, by_itself=True)
                raise


def install_by_itself(module: ModuleType) -> None:
    """What `import tack_memory` does with Tack. Raises as `install`; one that is plugged in stays as it is. One that is imported anew is plugged in as
    the one before was."""
    with _lock:
        former = _take_out_former(module)
        if former is not None:
            _attach(module, former.simulation, former.by_itself)
        elif _known_whole(module) is None:
            _attach(module, None, by_itself=True)


def uninstall(host: ModuleType | None = None) -> None:
    """Undo `install`: bring every array back to the device, give the memory back to the host, and put each attribute back.

    Tack is not plugged in by itself again; where it was not imported yet, it will not be.

    Parameters
    ----------
    host : module, optional
        The framework; by default Tack.

    Raises
    ------
    DeviceMemoryError
        Not all arrays fit on the device. The host stays plugged in, and no array was lost.
    BufferError
        An array is held, exported, or was handed out for good by the host's own means (`share`). The host stays plugged in.
    RuntimeError
        Something else was plugged in on top of us, so that we cannot be taken out; the text names it.
    ValueError
        The host is not plugged in.

    Notes
    -----
    May be called from any thread, while no other one uses the host: one that reads, fills or makes an array at that moment may have an address
    that is moved from under it.
    """
    tack = _installed.get(_auto.TACK) if host is None else None  # be it still in sys.modules or not
    if host is None and tack is None and _auto.TACK not in sys.modules:
        if not _auto.stop():
            raise ValueError(f"{_auto.TACK} is not plugged in: it is not even imported")
        return
    module = _module(host) if tack is None else tack.adapter.module
    with _lock:
        known = _installed.get(module.__name__)
        if known is None or known.adapter.module is not module:
            raise ValueError(f"{module.__name__} is not plugged in")
        _detach(module, known)
    if module.__name__ == _auto.TACK:
        _auto.stop()


def plugged(name: str) -> Plugged | None:
    """The host of this name, where it is plugged in. May be called from any thread."""
    return _installed.get(name)


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


def _known(module: ModuleType) -> Plugged | None:
    known = _installed.get(module.__name__)
    if known is not None and known.adapter.module is not module:
        raise HostHasMemoryError(f"another module named {module.__name__} is plugged in; uninstall that one first")
    return known


def _take_out_former(module: ModuleType) -> Plugged | None:
    """Where a host was imported anew, after its module was taken out of `sys.modules`, the one before is unplugged: what it was, or None.

    Both may have submodules and classes in common. Arrays of classes that are the former's alone are its own again, and are not counted any more."""
    known = _installed.get(module.__name__)
    if known is None or known.adapter.module is module or sys.modules.get(module.__name__) is not module:
        return None
    try:
        _detach(known.adapter.module, known)
    except Exception as error:
        raise RuntimeError(f"{module.__name__} was imported anew, and the one that is plugged in cannot be taken out: {error}") from error
    return known


def _known_whole(module: ModuleType) -> Plugged | None:
    """As `_known`; what Ctrl-C left of a plugging in or out is undone first."""
    known = _known(module)
    if known is not None and not known.whole:
        _detach(module, known)
        return None
    return known


def _attach(module: ModuleType, simulation: Simulation | None, by_itself: bool) -> None:
    adapter = _adapter_for(module)
    if simulation is not None and not adapter.simulates:
        raise ValueError(_no_cpu_backend(module))
    known = Plugged(adapter, simulation, by_itself)
    try:
        _installed[module.__name__] = known
        _hosts.register(adapter)
        if simulation is None:
            adapter.attach()
        else:
            adapter.attach(simulate=simulation.budget, simulate_capacity=simulation.capacity, simulate_addresses=simulation.addresses)
        _skip_machinery()
    except BaseException:
        _installed[module.__name__] = known._replace(whole=False)
        _detach(module, known)  # what `attach` undid itself is undone; a signal may have ended that
        raise
    debug("plugged in to %s (%s%s)", module.__name__, adapter.shape, "" if simulation is None else f", simulated: {simulation}")


def _detach(module: ModuleType, known: Plugged) -> None:
    try:
        known.adapter.detach()
        _hosts.unregister(known.adapter)
        del _installed[module.__name__]
        _skip_machinery()
    except BaseException as error:
        if not isinstance(error, Exception) and module.__name__ in _installed:  # a signal, which may have come in the middle
            _installed[module.__name__] = known._replace(whole=False)
        raise
    debug("unplugged from %s", module.__name__)


def machinery() -> tuple[str, ...]:
    """The folders of the hosts' own machinery, each with its last slash: what a person did is nowhere there."""
    parts = (sys.modules.get(f"{name}.{part}") for name, known in _installed.items() for part in known.adapter.machinery)
    return tuple(sorted({os.path.join(folder, "") for part in parts for folder in getattr(part, "__path__", ())}))


def _skip_machinery() -> None:
    """Origins are lines of those who use the hosts, not of the hosts' own machinery; what the rest of a host allocates is labelled with its function's name."""
    _fast.set_origin_skip((PACKAGE_FOLDER, *machinery()))
    _fast.set_host_folders(tuple(sorted({os.path.join(folder, "") for name in _installed for folder in getattr(sys.modules.get(name), "__path__", ())})))


def _adapter_for(module: ModuleType) -> HostAdapter:
    own = [name for name in OWN_ACCOUNTING if hasattr(module, name)]
    if own:
        raise HostHasMemoryError(f"{module.__name__} has {' and '.join(own)} of its own: it is never given a second spiller")
    missing: dict[str, list[str]] = {}
    for adapter in ADAPTERS:
        seams = adapter.missing_seams(module)
        if not seams:
            return adapter(module)
        missing[adapter.shape] = seams
    fewest = min(len(seams) for seams in missing.values())
    nearest = "; ".join(f"as a host of the {shape} it lacks {', '.join(seams)}" for shape, seams in missing.items() if len(seams) == fewest)
    raise MissingSeamError(f"{module.__name__} is not a host that tack_memory knows (docs/hosts.md): {nearest}")


def _no_cpu_backend(module: ModuleType) -> str:
    return f"{module.__name__} has no CPU backend that could compute on a simulated device: install it without simulate"


def _module(host: ModuleType | None) -> ModuleType:
    if host is None:
        from importlib import import_module

        host = import_module(_auto.TACK)  # whatever somebody put into sys.modules
    if not hasattr(host, "__name__") or not hasattr(host, "__spec__"):
        raise TypeError(f"a host is a module, not {type(host).__name__}")
    return host
