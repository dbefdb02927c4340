"""What one run of one test holds: its set-up apart from its body, on every device that is open."""

from __future__ import annotations

import gc
import inspect
import sys
from typing import TYPE_CHECKING

from tack_memory import MemoryPeak, _devices, memory_report
from tack_memory._holders import by_line
from tack_memory._native import _fast
from tack_memory._sizes import format_bytes

from . import failure
from .limits import KINDS, Limit, Resolved, checked

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

    import pytest

    from tack_memory import Holder
    from tack_memory._devices import Device
    from tack_memory._sizes import Size

ANY_DEVICE = "cpu"
"""A scope counts all devices that are open, but wants one of its own: this one is always there, and loads no driver."""

NAMES = {"own": "own", "delta": "delta", "peak": "bytes", "footprint": "footprint", "leak": "own_end"}
"""Kinds of limits, and what the figures of a scope call them."""

NOTHING = {"bytes": 0, "delta": 0, "footprint": 0, "own": 0, "own_end": 0, "end": 0, "spilled_bytes": 0, "restored_bytes": 0}
"""The figures of a device that was not open."""


class Measurement:
    """One run of a test. `start` comes before its set-up, `begin_body` and `end_body` around its body, `close` before its teardown."""

    def __init__(self, item: pytest.Item, limits: list[Limit]) -> None:
        self.item = item
        self.limits = limits
        self.code = code_of(item)
        self.hold: list[Resolved] = []  # of the limits, those that hold; known when the body begins
        self.set_up: dict[str, dict[str, int]] = {}  # figures of the set-up, by device
        self.body: dict[str, dict[str, int]] | None = None  # figures of the body, once it has ended
        self.complete = False  # the body ended without an exception of its own
        self.scopes: dict[str, MemoryPeak] = {}  # those of the body, by the device that each was opened for
        self.alive: dict[str, dict[tuple[str | None, str | None], Holder]] = {}  # holders when the body began, of devices of which a leak may be told
        self._now: MemoryPeak | None = None  # the scope whose figures are those of this moment
        self._watches_leaks = False  # on every device: the test may ask for what is left at any time

    def start(self) -> None:
        self._now = MemoryPeak(ANY_DEVICE, f"set-up of {self.item.nodeid}").__enter__()

    def begin_body(self, hold: list[Resolved], more: list[str]) -> None:
        """From now on the body is measured; `more`: devices of which more than the figures may be asked for."""
        self.hold = hold
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):  # keep the arrays of a test that failed; pytest deletes them in a moment
            sys.__dict__.pop(name, None)
        collect(is_any_alive)  # garbage of earlier tests and of the set-up is no memory of the body, and might go in the middle of it
        if self._now is not None:
            self._now.__exit__(None, None, None)
            self.set_up = self._now._figures
        for limit in hold:
            if limit.limit.kind == "leak":
                self.alive[limit.device] = holders_of(limit.device)
        if self._watches_leaks:
            self.watch_leaks()
        for device in dict.fromkeys([*(limit.device for limit in hold), *more, ANY_DEVICE]):
            scope = self.scopes[device] = MemoryPeak(device, self.item.nodeid).__enter__()
            scope._note_stacks(self.code)
            self._now = scope

    def watch_leaks(self) -> None:
        """Remember what is alive now, on every device: no leak of the test. Again when the body begins."""
        self._watches_leaks = True
        self.alive |= {device: holders_of(device) for device in _devices.open_names()}

    def end_body(self, complete: bool) -> None:
        """The body has ended; complete: without an exception, which would keep its arrays alive."""
        self.complete = complete
        assert self._now is not None
        if complete:
            now = self._now
            collect(lambda: any(figures["own_end"] for figures in now._figures.values()))
        self.close()
        self.body = self._now._figures

    def close(self) -> None:
        """Nothing is measured any more; the figures stay. What is closed already is left as it is."""
        for scope in [*self.scopes.values(), self._now]:
            if scope is not None and scope.end is None:
                scope.__exit__(None, None, None)

    def figures(self, device: str) -> dict[str, int]:
        """Of the body, so far or when it ended; while the test is set up, of that."""
        if self.body is not None:
            return self.body.get(device, NOTHING)
        return NOTHING if self._now is None else self._now._figures.get(device, NOTHING)

    def used(self) -> dict[str, dict[str, int | None]]:
        """What is worth reporting: of each device that the body used or that has a limit, its figures by the names that reports use. What was left behind is
        not known of a body that ended by an exception, which keeps its arrays."""
        used: dict[str, dict[str, int | None]] = {}
        for device, body in sorted((self.body or {}).items()):
            set_up = self.set_up.get(device, NOTHING)["own"]
            if set_up or body["own"] or body["spilled_bytes"] or body["restored_bytes"] or any(limit.device == device for limit in self.hold):
                used[device] = {kind: body[NAMES[kind]] for kind in KINDS}
                if not self.complete:
                    used[device]["leak"] = None
                used[device] |= {"set_up": set_up, "spilled_bytes": body["spilled_bytes"], "restored_bytes": body["restored_bytes"]}
        return used

    def excess(self) -> str | None:
        """The text about all limits that the body went over; None: none."""
        over = [limit for limit in self.hold if self.value(limit) > limit.nbytes]
        return "\n\n".join(failure.text(self, limit) for limit in over) or None

    def elsewhere(self) -> str | None:
        """The text about limits without a device whose device, the current one, was not used while others were: they could not fail. None: there is none."""
        used = {device: body["own"] for device, body in sorted((self.body or {}).items()) if body["own"]}
        idle = [limit for limit in self.hold if limit.limit.device is None and not self.figures(limit.device)["bytes"]]
        if not used or not idle:
            return None
        names = ", ".join(f"{format_bytes(nbytes)} on {device}" for device, nbytes in used.items())
        return (
            f"{idle[0].limit.source} names no device, so it looks at the current one, {idle[0].device}, of which the test used nothing; it used {names}. "
            f"Name the device: device={next(iter(used))!r}"
        )

    def value(self, limit: Resolved) -> int:
        return self.figures(limit.device)[NAMES[limit.limit.kind]]

    def left(self, device: str) -> list[Holder]:
        """What is alive on a device now and was not when the body began, the largest first."""
        before = self.alive.get(device, {})
        left = []
        for key, holder in holders_of(device).items():
            old = before.get(key)
            if old is not None:
                holder.bytes, holder.count = holder.bytes - old.bytes, holder.count - old.count
            if holder.bytes > 0:
                left.append(holder)
        return sorted(left, key=lambda holder: -holder.bytes)


class DeviceMemory:
    """The device memory that a test's body holds (in fixtures, while they are set up: the set-up of the test)."""

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement

    def peak(self, device: Device = None, *, kind: str = "own") -> int:
        """The highest so far, in bytes: of what the body allocated ("own"), or one of the other kinds that `limit_device_memory` knows.

        Raises
        ------
        ValueError, TypeError
            There is no such device, or no such kind.
        """
        checked(None, device, kind)
        return self._measurement.figures(_devices.resolve_name(device))[NAMES[kind]]

    def assert_below(self, size: Size, device: Device = None, *, kind: str = "own") -> None:
        """Fail the test here where more than `size` was held so far; `size` itself is allowed, as with `limit_device_memory`.

        Raises
        ------
        AssertionError
            With all that a failing `limit_device_memory` tells.
        ValueError, TypeError
            `size` is no size; there is no such device, or no such kind.
        """
        __tracebackhide__ = True
        checked(size, device, kind)
        limit = Limit(size, device, kind, "device_memory.assert_below", "device_memory.assert_below(ARGUMENTS)").resolved()
        if limit is not None and self._measurement.value(limit) > limit.nbytes:
            raise AssertionError(failure.text(self._measurement, limit))

    @property
    def leaked(self) -> int:
        """Bytes that the body allocated on the current device and that are alive now: in the body, what it holds at this moment; in a fixture's
        teardown, what it left behind."""
        return self._measurement.figures(_devices.resolve_name(None))[NAMES["leak"]]

    def __repr__(self) -> str:
        return f"<device_memory of {self._measurement.item.nodeid}>"


def collect(is_alive: Callable[[], bool]) -> None:
    """Collect garbage. What has lived for long takes tens of milliseconds to look through, so that is done only where memory is alive that might be garbage."""
    gc.collect(1)
    if is_alive():
        gc.collect()


def is_any_alive() -> bool:
    """Whether there is device memory at all."""
    return any(in_use or spilled for in_use, _, spilled in map(_fast.counters, _devices.open_names()))


def holders_of(device: str) -> dict[tuple[str | None, str | None], Holder]:
    """What holds memory now, by label and origin; nothing on a device that has figures and no more."""
    try:
        report = memory_report(device)
    except ValueError:
        return {}
    return by_line(report.holders)


def code_of(item: pytest.Item) -> CodeType | None:
    """The code of the test's body, under its decorators; None where it has none of its own."""
    function: Any = getattr(item, "function", None) or getattr(item, "obj", None)
    try:
        function = inspect.unwrap(function)
    except ValueError:  # a wrapper that wraps itself
        return None
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if inspect.iscode(code) else None
