"""Limits of a test: what markers, the configuration file and baselines say, and which of them hold for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tack_memory import _devices
from tack_memory._sizes import parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = "limit_device_memory"
ALLOW = f"@pytest.mark.{MARKER}(ARGUMENTS) on "

KINDS = {
    "own": "the most that was alive at one time of what the test's body allocated",
    "delta": "the most in use on the device during the test's body, above what was in use when it began",
    "peak": "the most in use on the device during the test's body, what was there before included",
    "footprint": "the most in use and spilled together during the test's body, what was there before included",
    "leak": "what the test's body allocated and was alive when it had ended",
}
"""What can be limited, and what it means, in the words of reports."""


@dataclass(frozen=True)
class Limit:
    """As it was written. A size is checked as far as it can be without the device; None: no limit of this kind, whatever is said further out."""

    size: Any
    device: Any
    kind: str
    source: str  # "limit_device_memory on class TestX"
    allow: str  # how to allow more; ARGUMENTS in it become those of a call that does
    level: int = 0  # 0 is nearest to the test: of limits of one kind on one device only the nearest hold

    def resolved(self) -> Resolved | None:
        """On its device; None: no limit. Raises ValueError or TypeError where there is no such device, or it has no total for a percentage."""
        name = _devices.resolve_name(self.device)
        if self.size is None:
            return None
        return Resolved(self, name, _devices.size_on(self.size, _devices.resolve(name)))

    def arguments(self, size: str) -> str:
        """Those of a call that allows so much, as a person would write them."""
        device = f'"{self.device}"' if isinstance(self.device, str) else repr(self.device)
        more = [f"device={device}"] if self.device is not None else []
        return ", ".join([f'"{size}"', *more, *([f'kind="{self.kind}"'] if self.kind != "own" else [])])


@dataclass(frozen=True)
class Resolved:
    """A limit that holds for a test."""

    limit: Limit
    device: str
    nbytes: int


def checked(size: object, device: object, kind: object) -> None:
    """Raise ValueError or TypeError for what can be told to be wrong before the test runs. A named device is looked up, but not NumPy's memory, which the test
    itself may begin to count."""
    if size is not None:
        parse_size(size, lambda: 2**40)  # a share of some total: the device's own comes later
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if device not in (None, _devices.NUMPY):
        _devices.resolve_name(device)


def of_marker(mark: pytest.Mark, where: str, level: int) -> Limit:
    """The limit that one marker asks for. Raises ValueError or TypeError, with a text that needs no more than the marker's name before it."""

    def signature(size: object, device: object = None, kind: object = "own") -> tuple[object, object, object]:
        return size, device, kind

    try:
        size, device, kind = signature(*mark.args, **mark.kwargs)
    except TypeError as wrong:
        told = str(wrong).rpartition("signature() ")[2]
        raise TypeError(f'{told}; it is {MARKER}("24 MiB", device=None, kind="own")') from None
    checked(size, device, kind)
    return Limit(size, device, str(kind), f"{MARKER} of {where}", ALLOW + where, level)


def of_markers(item: pytest.Item) -> Iterator[Limit]:
    """All limits of an item's markers, the nearest first: of its parameters, its function, its classes, its module, its packages."""
    of_parameters = list(getattr(getattr(item, "callspec", None), "marks", ()))
    level = 0
    for node in reversed(item.listchain()):
        for of_them in (True, False) if node is item else (False,):
            level += 1
            for mark in node.own_markers:
                if mark.name != MARKER or (node is item and any(mark is one for one in of_parameters) is not of_them):
                    continue
                where = "these parameters" if of_them else "the test" if node is item else f"{kind_of(node)} {node.name}"
                yield of_marker(mark, where, level)


def kind_of(node: Any) -> str:
    """What a person calls a node that tests are in."""
    return next((name for name, kind in (("class", pytest.Class), ("module", pytest.Module)) if isinstance(node, kind)), "package")


OUTERMOST = 1000
"""The level of the configuration file's limits."""


def of_configuration(lines: list[str], file: str) -> list[Limit]:
    """The limits of `device_memory_limit`, one a line: `24 MiB`, or `24 MiB, device=cuda:0, kind=peak`. Raises ValueError or TypeError."""
    limits = []
    for line in lines:
        try:
            size, device, kind = of_line(line)
            parse_size(size, lambda: 2**40)  # its device is looked up when a test needs it
        except ValueError as wrong:
            raise ValueError(f"device_memory_limit: {wrong}") from None
        limits.append(Limit(size, device, kind, f"device_memory_limit in {file}", ALLOW + "the test", OUTERMOST))
    return limits


def of_line(line: str) -> tuple[str, str | None, str]:
    """Size, device and kind. Raises ValueError."""
    size, *options = (part.strip() for part in line.split(","))
    given: dict[str, str] = {}
    for option in options:
        name, equals, value = (part.strip() for part in option.partition("="))
        if not equals or name not in ("device", "kind") or name in given:
            raise ValueError(f'{line!r}: after the size comes device=... or kind=..., each once, not {option!r}; write for example "24 MiB, kind=peak"')
        given[name] = value
    kind = given.get("kind", "own")
    if kind not in KINDS:
        raise ValueError(f"{line!r}: kind must be one of {', '.join(KINDS)}, not {kind!r}")
    return size, given.get("device"), kind


def that_hold(limits: list[Limit]) -> list[Resolved]:
    """Of the limits of one kind on one device only those of the nearest level hold; of one level all do. The devices are looked up now: None is the
    current one at this moment."""
    nearest: dict[tuple[str, str], int] = {}
    named = [(limit, _devices.resolve_name(limit.device)) for limit in limits]
    for limit, device in named:
        key = (limit.kind, device)
        nearest[key] = min(nearest.get(key, limit.level), limit.level)
    hold = (limit.resolved() for limit, device in named if nearest[limit.kind, device] == limit.level)
    return [one for one in hold if one is not None]
