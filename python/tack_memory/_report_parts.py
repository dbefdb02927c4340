"""The parts of a report: what was live at the peak, why buffers were spilled, which of them take turns."""

from __future__ import annotations

from typing import NamedTuple

from ._errors import Holder, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class PeakHolders(NamedTuple):
    """What was live when the device's peak was reached, since the last `reset_peak_memory`."""

    bytes: int
    """In use on the device: the peak. The holders' parts on the device add up to it."""
    spilled: int
    """In host memory at that moment."""
    seconds: float
    """When it was, in seconds since 1970."""
    holders: tuple[Holder, ...]
    """The largest first."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> PeakHolders:
        """From what the core tells, or `to_dict`."""
        return cls(told["bytes"], told["spilled"], told["time_ns"] / 1e9, tuple(map(Holder, told["holders"])))

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values."""
        return {"bytes": self.bytes, "spilled": self.spilled, "time_ns": round(self.seconds * 1e9), "holders": [one.to_dict() for one in self.holders]}


CAUSES = {
    "budget": "to stay within the budget",
    "device": "since the device was full",
    "asked": "by spill()",
    "budget lowered": "since the budget was lowered",
}
"""What can make the library spill, in words that follow "spilled"."""


class Spill(NamedTuple):
    """Why buffers of one place were spilled: all spills with the same cause, asked for from the same place."""

    label: str | None
    origin: str | None
    """Of the buffers that were spilled; None where it was not recorded (`set_origins`)."""
    stack: tuple[str, ...] | None
    bytes: int
    """Moved to host memory, all spills together."""
    nbytes: int
    """Size of the largest of these buffers."""
    times: int
    """How often one of them was spilled."""
    restores: int
    """How often one of them came back after such a spill."""
    out_seconds: float
    """How long these buffers lay in host memory, all together; those that lie there now included."""
    still_out: int
    """How many of them lie in host memory now."""
    cause: str
    """ "budget", "device", "asked" or "budget lowered"."""
    by_label: str | None
    by_origin: str | None
    """What needed the room: where it was allocated, or launched; None where it was not recorded, or nothing needed it."""
    by_stack: tuple[str, ...] | None
    by_nbytes: int | None
    """What was asked for when the last of these spills made room, in bytes; None: nothing of a size."""
    last_seconds: float
    """When the last of them was, in seconds since 1970."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Spill:
        """From what the core tells, or `to_dict`."""
        get = told.get
        stack, by_stack = (tuple(get(name) or ()) or None for name in ("stack", "by_stack"))
        return cls(
            get("label") or None, get("origin") or None, stack, told["bytes"], told["nbytes"], told["count"], told["restores"], told["out_ns"] / 1e9,
            told["still_out"], told["cause"], get("by_label") or None, get("by_origin") or None, by_stack, get("by_nbytes"), told["last_ns"] / 1e9,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values."""
        told: dict[str, Any] = self._asdict()
        for name in ("stack", "by_stack"):
            told[name] = None if told[name] is None else list(told[name])
        told["count"] = told.pop("times")
        told["out_ns"], told["last_ns"] = round(told.pop("out_seconds") * 1e9), round(told.pop("last_seconds") * 1e9)
        return told

    @property
    def name(self) -> str:
        """What was spilled, for people."""
        return name_of(self.label, self.origin)

    @property
    def by_name(self) -> str:
        """What pushed it out, for people; empty where that is not known."""
        return name_of(self.by_label, self.by_origin) if self.by_label or self.by_origin else ""

    @property
    def why(self) -> str:
        """The cause in words: "to stay within the budget"."""
        return CAUSES.get(self.cause, self.cause)


class TurnTaker(NamedTuple):
    """Buffers of one place that go to host memory and come back again and again."""

    label: str | None
    origin: str | None
    stack: tuple[str, ...] | None
    spills: int
    restores: int
    bytes: int
    """Moved in both directions."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> TurnTaker:
        """From what the core tells, or `to_dict`."""
        stack = tuple(told.get("stack") or ()) or None
        return cls(told.get("label") or None, told.get("origin") or None, stack, told["spills"], told["restores"], told["bytes"])

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values."""
        return {**self._asdict(), "stack": None if self.stack is None else list(self.stack)}

    @property
    def name(self) -> str:
        """Label and origin in one piece, for people."""
        return name_of(self.label, self.origin)


class Thrashing(NamedTuple):
    """Arrays that take turns: one pushes the other out, and is pushed out by it. Most of the time goes into moving them."""

    rounds: int
    """How often the one that went most often has gone."""
    bytes: int
    """Moved by them, in both directions."""
    since: float
    """Since when, in seconds since 1970."""
    holders: tuple[TurnTaker, ...]
    """Those that take turns, the one that moved most first."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Thrashing:
        """From what the core tells, or `to_dict`."""
        return cls(told["rounds"], told["bytes"], told["since_ns"] / 1e9, tuple(map(TurnTaker.of, told["holders"])))

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values."""
        return {"rounds": self.rounds, "bytes": self.bytes, "since_ns": round(self.since * 1e9), "holders": [one.to_dict() for one in self.holders]}
