"""From whatever names a device to the device: None, "cuda:0", "cuda", an ordinal, or a framework's own device object.

A device is opened when it is first named. Opening a device loads its driver and creates no context on it; the first allocation does.
"""

from __future__ import annotations

import os
from _thread import RLock
from operator import index as _integer

from . import _hosts
from ._control import call, call_json
from ._logging import debug, logger
from ._native import _fast, sim_library_path
from ._settings import KINDS, SIM_KINDS, SIMULATED_KINDS, parse_device_name, settings
from ._sizes import format_bytes, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex

    Device = SupportsIndex | str | object | None

DEFAULT_KINDS = ("cuda", "hip", "level_zero")
"""Where the default device is looked for, in this order; then, if TACK_MEMORY_SIM asks for it, sim; then the CPU."""

_lock = RLock()  # guards all below; may be held across a driver's loading, never taken by a destructor
NUMPY = "numpy"
"""The name under which NumPy's array memory is counted, once something counts it (tack_memory.numpy)."""

_opened: dict[str, int] = {}  # name -> index in this process
_opening: dict[str, int] = {}  # the same of a device that is being given its budget, by the thread that has the lock
_prepared = False
_told_budgets = False  # budgets of TACK_MEMORY_BUDGET that are for no device were looked for
_default: str | None = None  # the default device where no framework is plugged in; found once


def _new_lock_in_child() -> None:
    global _lock
    _lock = RLock()  # the thread that held it does not exist in the child
    _opening.clear()  # nor does the one that was opening a device


os.register_at_fork(after_in_child=_new_lock_in_child)


def resolve(device: Device) -> int:
    """Return the index of a device; open it, if it was not open yet. Called by the C lane for what it does not know.

    Raises
    ------
    ValueError
        There is no such device; the text lists those there are. Also where plugged-in frameworks disagree about None.
    TypeError
        `device` is of a type that cannot name a device.
    """
    name = _name(device)
    index = _opened.get(name)
    return _open(name) if index is None else index


def resolve_with_buffers(device: Device) -> int:
    """Return the index of a device that Go knows: the same, but ValueError for "numpy", which has figures and no buffers."""
    return _fast.check_memory(resolve(device))


def resolve_name(device: Device) -> str:
    """Return the full name of a device, "cuda:0"; open it, if it was not open yet."""
    name = _name(device)
    if name not in _opened:
        _open(name)
    return name


def open_names() -> list[str]:
    """The names of the devices that were opened in this process."""
    return list(_opened)


def devices() -> list[str]:
    """The names of the devices that can be used, those of the default kind first.

    Without a framework that is plugged in, the default device (None) is the first one here: of cuda, hip, level_zero, the first kind that works; else
    sim where TACK_MEMORY_SIM asks for it; else the CPU.

    Drivers are loaded to find out; no context is created. Devices of the software CUDA driver ("sim:0") are listed where TACK_MEMORY_SIM
    asks for them or they were named before, those of the other software drivers ("sim-hip:0") where they were named. In a forked child
    only the CPU can be used. May be called from any thread.
    """
    if _fast.forked():
        return ["cpu"]
    offered = [found for found in describe() if found["usable"] and _is_offered(found)]
    order = {kind: place for place, kind in enumerate((*_default_kinds(), "cpu"))}
    return [found["name"] for found in sorted(offered, key=lambda device: order.get(device["kind"], len(order)))]


def describe() -> list[dict[str, Any]]:
    """What Go knows of each device, working or not: name, kind, ordinal, usable, library, version, total, pools, why."""
    _prepare()
    found: list[dict[str, Any]] = call_json("Devices")
    order = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(found, key=lambda device: (order.get(device["kind"], len(order)), device["ordinal"]))


def budgets_for_nothing(found: list[dict[str, Any]]) -> dict[str, str]:
    """The devices that TACK_MEMORY_BUDGET names and that cannot be used, of those that `describe` found; and why."""
    why = {}
    for name in settings.budgets:
        kind, colon, ordinal = name.partition(":")
        if not colon:
            continue  # a kind: such a switch may be written for several machines
        if kind in SIM_KINDS:  # they come to be when they are named
            there = [f"{kind}:{one}" for one in range(len(settings.sim or (0,)))]
        else:
            there = [device["name"] for device in found if device["kind"] == kind and device["usable"]]
        if name not in there and name not in _opened:
            reason = next((device["why"] for device in found if device["name"] in (name, kind) and not device["usable"]), "")
            why[name] = reason or (f"there {'is' if len(there) == 1 else 'are'} only {', '.join(there)}" if there else "there is none")
    return why


def total_of(device: str) -> int | None:
    """The total memory of a device in bytes; None where it is unknown."""
    total: int | None = _fast.memory_info(device).device_total
    return total


def size_on(size: object, index: int) -> int:
    """A size argument in bytes; a percentage is one of the total of the device with this index."""
    name = _fast.device_name(index)
    return parse_size(size, lambda: total_of(name), of=name)


def count_numpy(books: object) -> None:
    """From now on "numpy" is the name of NumPy's memory, whose books these are."""
    if NUMPY in _opened:
        return  # without the lock, which another thread may have for as long as a driver's loading takes
    with _lock:
        if NUMPY not in _opened:
            index = _fast.count_numpy(books)
            _fast.announce_device(index)
            _opened[NUMPY] = index


def default_device_changed() -> None:
    """The set of plugged-in frameworks changed: None is asked anew from now on."""
    _fast.set_default_device(None)


def _name(device: Device) -> str:
    if device is None:
        return _current()
    if isinstance(device, str):
        return _from_text(device)
    for host in _hosts.registered():
        name = host.device_of(device)
        if name is not None:
            return _from_text(name)
    if isinstance(device, bool):
        raise TypeError(f"a device cannot be the bool {device}; {_known()}")
    try:
        ordinal = _integer(device)  # type: ignore[arg-type]  # whatever is no integer raises
    except TypeError:
        raise TypeError(f"a device cannot be of type {type(device).__name__}; {_known()}") from None
    return from_ordinal(ordinal, _current())


def _from_text(text: str) -> str:
    if text in _opened:
        return text
    if text == NUMPY:
        raise ValueError("unknown device 'numpy': nothing counts NumPy's memory yet; tack_memory.numpy.install() does, or tack_memory.numpy.use()")
    parsed = parse_device_name(text)
    if parsed is None:
        raise ValueError(f"unknown device {text!r}; {_known()}")
    kind, ordinal = parsed
    if kind in ("cpu", "metal") and ordinal is None:
        return kind if kind == "cpu" else f"{kind}:0"
    if kind == "cpu":
        raise ValueError(f'unknown device {text!r}: there is one CPU device, "cpu"; {_known()}')
    if ordinal is not None:
        return f"{kind}:{ordinal}"
    return _current_of_kind(kind)


def _current_of_kind(kind: str) -> str:
    """The device that plugged-in frameworks use, of those that are on this kind now; else the first one."""
    hosts = {host.name: host.current_device() for host in _hosts.registered()} or {"": _find_default()}
    return _agreed({name: device for name, device in hosts.items() if device.partition(":")[0] == kind}) or f"{kind}:0"


def from_ordinal(ordinal: int, current: str) -> str:
    """The name of the device with this number, of the current device's kind."""
    kind = current.partition(":")[0]
    if ordinal < 0 or (kind == "cpu" and ordinal > 0):
        raise ValueError(f"unknown device {ordinal}: the current kind of device is {kind}; {_known()}")
    return "cpu" if kind == "cpu" else f"{kind}:{ordinal}"


def _current() -> str:
    """What None means now."""
    hosts = _hosts.registered()
    if not hosts:
        return _find_default()
    return _agreed({host.name: host.current_device() for host in hosts}) or _find_default()


def _agreed(current: dict[str, str]) -> str | None:
    """The device that all these frameworks use; None where there is no framework."""
    if len(set(current.values())) > 1:
        told = ", ".join(f"{name} uses {device}" for name, device in current.items())
        raise ValueError(f"name a device: {told}")
    return next(iter(current.values()), None)


def _default_kinds() -> tuple[str, ...]:
    return DEFAULT_KINDS if settings.sim is None else (*DEFAULT_KINDS, "sim")


def _find_default() -> str:
    """The default device where no framework is plugged in. The C lane remembers it, so this runs once."""
    global _default
    if _default is None:
        if _fast.forked():
            return "cpu"  # no driver can be asked in a forked child, and no other device works there
        with _lock:
            usable = [device["name"] for device in describe() if device["usable"]]
            candidates = (name for kind in _default_kinds() for name in usable if name.partition(":")[0] == kind)
            found = _default = next(candidates, "cpu")
        debug("default device: %s", found)
    else:
        found = _default
    if not _hosts.registered():
        _fast.set_default_device(_opened[found] if found in _opened else _open(found))
    return found


def _open(name: str) -> int:
    kind, _, ordinal = name.partition(":")
    with _lock:
        index = _opened.get(name, _opening.get(name))
        if index is not None:
            return index
        if not _fast.forked():
            _prepare()
        try:
            index = _fast.open_device(kind, int(ordinal or 0))
        except ValueError as error:
            why = str(error).partition("; there are:")[0]
            raise ValueError(f"unknown device {name!r}: {why}; {_known()}") from None
        _opening[name] = index
        try:
            apply_budget(name)
        finally:
            del _opening[name]
        # Only now may others use it, and C remember its name: where the budget cannot be had, the next use reads the switch again, and fails as this one does.
        _fast.announce_device(index)
        _opened[name] = index
    debug("opened %s", name)
    _tell_budgets_for_nothing()
    return index


def _tell_budgets_for_nothing() -> None:
    """At the first use of any device: a name that is written wrongly would give no device the budget, without a word."""
    global _told_budgets
    with _lock:
        if _told_budgets or _fast.forked():
            return
        _told_budgets = True
        asks_a_driver = any(":" in name and name.partition(":")[0] not in SIM_KINDS and name not in _opened for name in settings.budgets)
        for name, why in budgets_for_nothing(describe() if asks_a_driver else []).items():
            logger().warning("TACK_MEMORY_BUDGET: the budget of %s is for nothing: %s", name, why)


def apply_budget(name: str) -> None:
    """Give a device the budget of TACK_MEMORY_BUDGET, if that has one for it."""
    written = settings.budget_of(name)
    if written is None:
        return
    text, _ = written
    try:
        budget = parse_size(text, lambda: total_of(name), of=name)
    except ValueError as error:
        raise ValueError(f"TACK_MEMORY_BUDGET: {error}") from None
    _fast.set_memory_budget(budget, name)
    debug("budget of %s: %s, from TACK_MEMORY_BUDGET", name, format_bytes(budget))


def _prepare() -> None:
    """What Go must know before it opens its first device."""
    global _prepared
    with _lock:
        if _prepared:
            return
        call("SetSimFolder", os.path.dirname(sim_library_path()))
        if settings.sim is not None:
            call("ConfigureSim", ",".join(str(capacity) for capacity in settings.sim))
        if settings.host_limit is not None:
            call("SetHostLimit", settings.host_limit)
        call("SetCheck", settings.check)
        call("SetPools", settings.pools)
        _prepared = True


def _is_offered(device: dict[str, Any]) -> bool:
    return device["kind"] not in SIMULATED_KINDS or (device["kind"] == "sim" and settings.sim is not None) or device["name"] in _opened


def _known() -> str:
    """The end of an error's text: the devices there are. In a forked child only those that are open can be told."""
    names = list(_opened) if _fast.forked() else devices()
    more = [f"{kind}:0" for kind in SIM_KINDS if not any(name.partition(":")[0] == kind for name in names)]
    return "known devices: " + ", ".join(names) + (f"; simulated, only when named: {', '.join(more)}" if more else "")
