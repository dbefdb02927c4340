"""What holds for every host that is plugged in and out, whatever its shape: its attributes, refusals, and memory that becomes the host's again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support import MIB, SoftDriver

import tack_memory
from tack_memory.hosts import HostHasMemoryError, MissingSeamError

ADDED = ("memory_info", "reset_peak_memory", "memory_peak", "set_memory_budget", "get_memory_budget", "memory_budget", "memory_report")
"""The names that a host gets."""


def attributes(host: ModuleType) -> dict[tuple[str, str], Any]:
    """Every attribute of every module of the host, and of every class in them."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in list(sys.modules.items()):
        if name == host.__name__ or name.startswith(f"{host.__name__}."):
            for key, value in vars(module).items():
                found[name, key] = value
                if isinstance(value, type) and value.__module__.startswith(host.__name__):
                    found.update({(f"{name}.{key}", own): method for own, method in vars(value).items()})
    return found


def same(left: dict[tuple[str, str], Any], right: dict[tuple[str, str], Any]) -> bool:
    return left.keys() == right.keys() and all(left[key] is right[key] for key in left)


def take_out(host: ModuleType) -> None:
    """Unplug a host, where it is plugged in."""
    try:
        tack_memory.uninstall(host)
    except ValueError:
        pass  # it is not plugged in


# ---- refusals


def check_install_is_refused(host: ModuleType, error: type[Exception], match: str, **options: Any) -> None:
    """An install raises this, and touches nothing."""
    before = attributes(host)
    with pytest.raises(error, match=match):
        tack_memory.install(host, **options)
    assert same(before, attributes(host))


def check_counting_by_itself_is_refused(host: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(host, name, lambda: None, raising=False)
    check_install_is_refused(host, HostHasMemoryError, name)


def check_missing_seam_is_named(host: ModuleType, monkeypatch: pytest.MonkeyPatch, place: str, name: str, *also: Any) -> None:
    """A host without an attribute of one of its modules or classes (which those in `also` do not have either) is not plugged in to."""
    owner: Any = host
    for part in place.split(".") if place else ():
        owner = getattr(owner, part)
    for one in (*also, owner):
        monkeypatch.delattr(one, name)
    check_install_is_refused(host, MissingSeamError, name)


def check_own_name_stays(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    own = object()
    monkeypatch.setattr(host, "memory_report", own, raising=False)
    tack_memory.install(host)
    assert host.memory_report is own
    tack_memory.uninstall(host)
    assert host.memory_report is own


# ---- memory that becomes the host's again


Make = Callable[[int, int], Any]  # an array of so many bytes, each of this value
Read = Callable[[Any], Any]  # an array's contents, as NumPy's


def right(arrays: list[Any], read: Read) -> bool:
    return all((read(array) == n).all() for n, array in enumerate(arrays))


def check_everything_comes_back(host: ModuleType, device: str, soft: SoftDriver, make: Make, read: Read, settle: Callable[[], object]) -> None:
    """`settle`: what the host and we free late is back."""
    settle()
    live = soft.live()
    tack_memory.install(host)
    with host.memory_budget(2 * MIB):
        arrays = [make(MIB, n) for n in range(6)]
        assert host.memory_info().spilled == 4 * MIB
    tack_memory.uninstall(host)
    info = tack_memory.memory_info(device)
    assert (info.in_use, info.spilled) == (0, 0)
    assert right(arrays, read)
    assert soft.live() == live + len(arrays)
    del arrays
    settle()
    assert soft.live() == live


def check_uninstall_is_refused_where_not_everything_fits(host: ModuleType, soft: SoftDriver, make: Make, read: Read) -> None:
    tack_memory.install(host)
    soft.live()  # what earlier tests freed is back
    soft.set("taken", soft.get("capacity.0") - 8 * MIB)
    arrays = [make(2 * MIB, n) for n in range(8)]
    assert host.memory_info().spilled
    with pytest.raises(tack_memory.DeviceMemoryError):
        tack_memory.uninstall(host)
    assert right(arrays, read)
    assert host.memory_info().footprint == 16 * MIB
    del arrays[3:]
    tack_memory.uninstall(host)
    assert right(arrays, read)
