"""The errors, and the one place where an error of the compiled part becomes a typed exception.

Two ways lead here. The C fast lane calls `memory_error` with the fields of an out-of-memory error, and has the other classes from
`configure`. The control plane (gopy) can raise nothing but RuntimeError: its text is "tm1:" and JSON, which `typed` turns back.
"""

from __future__ import annotations

from ._hosts import registered
from ._sizes import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Any, Literal, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")
    Reason = Literal["budget", "device", "host", "too_large"]

_SHOWN_HOLDERS = 5  # in the text of an error; the field has all


class DeviceLostError(RuntimeError):
    """The device cannot be used again in this process; counters can be read, and other devices go on.

    The driver reports a state that no call can leave, or an error inside tack_memory or the driver broke off a call half-way: then the text
    says so, and what to report.
    """

    __module__ = "tack_memory"  # what a traceback calls it


class StreamCaptureError(RuntimeError):
    """A graph is being recorded from a stream that the operation needs, so it was refused; nothing changed, and the recording goes on.

    What is queued on a stream that is being captured becomes part of the graph and does not run now. So nothing is allocated, spilled or restored on
    it, nor waited for, until the capture ends. Make what the graph uses resident before, and hold it. The text says which stream it is.
    """

    __module__ = "tack_memory"  # what a traceback calls it


class ForkError(RuntimeError):
    """GPU and sim devices do not work in a forked child process; start processes with "spawn" or "forkserver"."""

    __module__ = "tack_memory"  # what a traceback calls it


class Holder:
    """What one place of a program holds on one device: buffers of the same label and origin.

    Attributes
    ----------
    label : str or None
        The label that the buffers were given.
    origin : str or None
        Where they were allocated, "file.py:12"; None unless origins are recorded (`set_origins`).
    stack : tuple of str or None
        The frames that led there, the innermost first, "file.py:12 function"; None unless stacks are recorded (`set_origins("stack")`).
    device : str
        "cuda:0".
    bytes : int
        All bytes; `resident` and `spilled` are their parts on the device and in host memory.
    count : int
        The number of buffers.
    holds : str
        Why (some of) them cannot be spilled now; empty where nothing holds them.
    """

    __slots__ = ("bytes", "count", "device", "holds", "label", "origin", "resident", "spilled", "stack")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        get = _lower_keys(fields).get
        self.label: str | None = get("label") or None
        self.origin: str | None = get("origin") or None
        self.stack: tuple[str, ...] | None = tuple(get("stack") or ()) or None
        self.device: str = get("device") or ""
        self.bytes: int = get("bytes") or 0
        self.resident: int = get("resident") or 0
        self.spilled: int = get("spilled") or 0
        self.count: int = get("count") or 0
        self.holds: str = get("holds") or ""

    @property
    def name(self) -> str:
        """Label and origin in one piece, for people."""
        return name_of(self.label, self.origin)

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values."""
        told = {name: getattr(self, name) for name in ("label", "origin", "stack", "device", "bytes", "resident", "spilled", "count", "holds")}
        return {**told, "stack": None if self.stack is None else list(self.stack)}

    def __repr__(self) -> str:
        return f"<Holder {self.name}: {format_bytes(self.bytes)} in {self.count} buffer{'' if self.count == 1 else 's'}>"

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Holder) else NotImplemented

    __hash__: None = None  # type: ignore[assignment]  # its attributes can be set

    def __reduce__(self) -> tuple[type[Holder], tuple[dict[str, Any]]]:
        return Holder, (self.to_dict(),)


def name_of(label: str | None, origin: str | None) -> str:
    """Label and origin in one piece, for people: on one line, and without what a terminal would take for a command."""
    label = label and one_line(label)
    if label and origin:
        return f"{label} ({origin})"
    return label or origin or "(no label)"


def one_line(text: str) -> str:
    """With a backslash escape in the place of each character that cannot be seen."""
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


class DeviceMemoryError(MemoryError, RuntimeError):
    """A request does not fit, and nothing more can be spilled to make room.

    All figures are of the moment of the failure, in bytes; None is: unknown, or (for the budget) none. The error can be pickled and
    keeps no buffer alive. Raised while a framework is plugged in that has a DeviceMemoryError of its own, it is an instance of that
    class, too.

    Attributes
    ----------
    device : str
        "cuda:0".
    requested : int
        What was asked for.
    in_use, spilled : int
        What the program's buffers held on the device, and in host memory.
    cached, device_free, device_total, largest_free : int or None
        What caches kept; what the driver said was free and there is in total, and the largest free block, where the vendor has a query
        for it.
    not_ours : int or None
        What is neither free nor ours nor kept by caches: other processes, frameworks that are not plugged in, the driver itself.
    budget : int or None
        The budget of the device.
    unspillable : dict of str to int
        Bytes on the device that could not be moved, by reason.
    reason : {"budget", "device", "host", "too_large"}
        What refused: the (strict) budget; the device; host memory for spilled copies; or the request can never fit.
    holders : list of Holder
        What held the memory, largest first.
    """

    __module__ = "tack_memory"  # what a traceback calls it

    device: str
    requested: int
    in_use: int
    cached: int | None
    spilled: int
    budget: int | None
    device_free: int | None
    device_total: int | None
    largest_free: int | None
    unspillable: dict[str, int]
    reason: Reason
    holders: list[Holder]

    def __init__(
        self,
        device: str,
        requested: int,
        *,
        in_use: int = 0,
        cached: int | None = None,
        spilled: int = 0,
        budget: int | None = None,
        device_free: int | None = None,
        device_total: int | None = None,
        largest_free: int | None = None,
        unspillable: Mapping[str, int] | None = None,
        reason: Reason = "device",
        holders: list[Holder] | None = None,
        cause: str | None = None,
    ) -> None:
        self.device = device
        self.requested = requested
        self.in_use = in_use
        self.cached = cached
        self.spilled = spilled
        self.budget = budget
        self.device_free = device_free
        self.device_total = device_total
        self.largest_free = largest_free
        self.unspillable = dict(unspillable or {})
        self.reason = reason
        self.holders = list(holders or ())
        self.cause = cause
        """What the system said, where it said something ("cuMemAllocAsync failed: CUDA_ERROR_OUT_OF_MEMORY (2)")."""
        # Not through super().__init__: a host's class that is mixed in may want arguments of its own.
        self.args: tuple[Any, ...] = (_text(self),)

    @property
    def not_ours(self) -> int | None:
        """Bytes of the device that are neither free nor ours nor kept by caches."""
        if self.device_free is None or self.device_total is None:
            return None
        return max(0, self.device_total - self.device_free - self.in_use - (self.cached or 0))

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def fields(self) -> dict[str, Any]:
        """The fields as a dict of plain values; `DeviceMemoryError(**fields)` makes an equal error."""
        names = ("device", "requested", "in_use", "cached", "spilled", "budget", "device_free", "device_total", "largest_free", "reason")
        return {**{name: getattr(self, name) for name in names}, "unspillable": dict(self.unspillable), "holders": list(self.holders), "cause": self.cause}

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], DeviceMemoryError], tuple[dict[str, Any]]]:
        return _rebuild, (self.fields(),)


class leaving:
    """What the exit of a block does with an error of its own: `with leaving("what it does", error): ...`, where `error` is the block's.

    The block's own exception is what its caller must get, so an error of the exit becomes a note of it. And what was entered before a fork is the
    parent's: in the child, a block is left without an error."""

    __slots__ = ("_error", "_what")

    def __init__(self, what: str, error: BaseException | None) -> None:
        self._what, self._error = what, error

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, late: BaseException | None, traceback: TracebackType | None, /) -> bool:
        """True: the exit's error goes no further."""
        if isinstance(late, ForkError):
            return True
        if self._error is None or not isinstance(late, Exception):
            return False
        self._error.add_note(f"{self._what} failed: {type(late).__name__}: {late}")
        return True


def memory_error(fields: Mapping[str, Any]) -> DeviceMemoryError:
    """Make the error from the fields that Go or C found. Figures below 0 are unknown; keys in any case, unknown keys are left out."""
    get = _lower_keys(fields).get

    def known(name: str) -> int | None:
        value = get(name)
        return None if value is None or value < 0 else int(value)

    return _rebuild(
        {
            "device": get("device") or "",
            "requested": known("requested") or 0,
            "in_use": known("in_use") or 0,
            "cached": known("cached"),
            "spilled": known("spilled") or 0,
            "budget": known("budget"),
            "device_free": known("device_free"),
            "device_total": known("device_total"),
            "largest_free": known("largest_free"),
            "unspillable": {str(reason): int(nbytes) for reason, nbytes in (get("unspillable") or {}).items()},
            "reason": get("reason") or "device",
            "holders": [held if isinstance(held, Holder) else Holder(held) for held in get("holders") or ()],
            "cause": get("cause") or None,
        }
    )


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of the control plane raise the exception that Go meant, in place of RuntimeError("tm1:...")."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            translated = translate(error)
            if translated is error:
                raise
        raise translated  # outside the handler: no "During handling of the above exception"

    return call


def translate(error: RuntimeError) -> BaseException:
    """The exception that the control plane's RuntimeError stands for; the error itself where it is none of ours."""
    text = str(error)
    if type(error) is not RuntimeError or not text.startswith("tm1:"):
        return error
    import json

    told = json.loads(text[len("tm1:") :])
    kind, message, fields = told.get("kind", ""), told.get("msg", ""), told.get("fields") or {}
    if kind == "memory":
        return memory_error(fields)
    return _KINDS.get(kind, RuntimeError)(message)


_KINDS: dict[str, type[BaseException]] = {
    "lost": DeviceLostError,
    "capture": StreamCaptureError,
    "fork": ForkError,
    "busy": BufferError,
    "value": ValueError,
    "overlap": ValueError,
    "freed": ValueError,
    "type": TypeError,
    "cancelled": KeyboardInterrupt,
}

_mixed: dict[tuple[type[BaseException], ...], type[DeviceMemoryError]] = {(): DeviceMemoryError}


def _error_class() -> type[DeviceMemoryError]:
    """DeviceMemoryError, mixed with the errors of the frameworks that are plugged in now, so that their own handlers catch it."""
    theirs: list[type[BaseException]] = []
    for host in registered():
        error = host.memory_error
        if error is not None and error not in theirs and not issubclass(DeviceMemoryError, error):
            theirs.append(error)
    key = tuple(theirs)
    found = _mixed.get(key)
    if found is None:
        fields = {"__module__": "tack_memory", "__doc__": DeviceMemoryError.__doc__}
        try:
            found = type("DeviceMemoryError", (DeviceMemoryError, *theirs), fields)
        except TypeError:  # a class that Python cannot combine with ours (another memory layout): ours alone still says all
            found = DeviceMemoryError
        _mixed[key] = found
    return found


def _rebuild(fields: dict[str, Any]) -> DeviceMemoryError:
    """Make an error of the class that fits the frameworks of this process; unpickling comes here, too."""
    return _error_class()(**fields)


def _lower_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {_snake(str(key)): value for key, value in fields.items()}


def _snake(name: str) -> str:
    """InUse -> in_use; names that are written so already stay."""
    return "".join(f"_{letter.lower()}" if letter.isupper() and place else letter.lower() for place, letter in enumerate(name))


def _text(error: DeviceMemoryError) -> str:
    """What was asked, what is held and why it cannot move, and what to try."""
    size = format_bytes
    lines = [f"{error.device}: {size(error.requested)} ({error.requested:,} bytes) cannot be had: {_why(error)}"]
    held = f"tracked: {size(error.in_use)} on the device, {size(error.spilled)} spilled to the host"
    if error.budget is not None:
        held += f"; budget {size(error.budget)}"
    if error.cached is not None:
        held += f"; caches {size(error.cached)}"
    lines.append(held)
    if error.device_free is not None:
        free = f"the driver says: {size(error.device_free)} free"
        if error.device_total is not None:
            free += f" of {size(error.device_total)}"
        if error.largest_free is not None:
            free += f", largest block {size(error.largest_free)}"
        if error.not_ours is not None:
            free += f"; not ours: {size(error.not_ours)}"
        lines.append(free)
    if error.unspillable:
        reasons = sorted(error.unspillable.items(), key=lambda item: (-item[1], item[0]))
        lines.append("cannot move now: " + ", ".join(f"{size(nbytes)} ({reason})" for reason, nbytes in reasons))
    elif error.reason in ("budget", "device"):
        lines.append("cannot move now: nothing of ours is left on the device to spill")
    if error.holders:
        largest = [f"{size(held.bytes)} {held.name}" + (f" x{held.count}" if held.count > 1 else "") for held in error.holders[:_SHOWN_HOLDERS]]
        more = len(error.holders) - _SHOWN_HOLDERS
        lines.append("largest holders: " + "; ".join(largest) + (f"; and {more} more" if more > 0 else ""))
    if error.cause:
        lines.append(f"cause: {error.cause}")
    lines.append("try: " + _advice(error))
    return "\n  ".join(lines)


def _why(error: DeviceMemoryError) -> str:
    if error.reason == "budget":
        return f"the strict budget of {format_bytes(error.budget)} does not allow it, and what could be spilled was"
    if error.reason == "too_large":
        if _more_than_the_budget(error):
            return f"it is more than the whole strict budget of {format_bytes(error.budget)}, so spilling cannot help"
        return "it is more than the whole device has, so spilling cannot help"
    if error.reason == "host":
        return "host memory for spilled copies ran out, so nothing more could be moved off the device"
    return "the device is full, and what could be spilled was"


def _more_than_the_budget(error: DeviceMemoryError) -> bool:
    """The request was found too large by a strict budget, and neither by the device's size nor by its driver, which says why (`cause`)."""
    if error.budget is None or error.cause is not None or (error.device_total is not None and error.requested > error.device_total):
        return False
    return error.requested > error.budget


_STRICT = "raise the budget (set_memory_budget) or make it soft (strict=False)"


def _advice(error: DeviceMemoryError) -> str:
    if error.reason == "too_large":
        return "work in smaller pieces" + (f"; {_STRICT}" if _more_than_the_budget(error) else "")
    if error.reason == "host":
        advice = ["free arrays that are not needed, raise TACK_MEMORY_HOST_LIMIT, or give the process more host memory"]
        advice.append("empty_host_pool() gives back what is pooled")
        if error.budget is not None and error.device_free is not None and error.device_free >= error.requested:  # only a strict one refuses then
            advice.append(_STRICT)
        return "; ".join(advice)
    advice = []
    if any(reason.startswith("export") for reason in error.unspillable):
        advice.append("drop exported arrays (DLPack) that are still alive")
    if any(reason.startswith("hold") for reason in error.unspillable):
        advice.append("end holds that are still open")
    if any(reason.startswith("launch") for reason in error.unspillable):
        advice.append("use fewer or smaller arrays in one launch")
    if error.reason == "budget":
        advice.append(_STRICT)
    if error.device_free is not None and error.reason == "device":
        advice.append("look at memory_report() and at other processes on this device")
    return "; ".join(advice or ["drop arrays that are not needed; memory_report() shows what holds the memory"])
