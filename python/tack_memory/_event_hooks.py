"""Being told of each allocation, free and move of array memory while it happens: hooks in Python and, by tack_memory.h, in C.

The hooks and their delivery are C (bindings/events), loaded with this module: `import tack_memory` does not do that.
"""

from __future__ import annotations

import atexit
import os
from typing import NamedTuple

from ._native import _events, _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Literal, Self

    from ._native._events import Event as Event
    from ._native._events import EventHook as EventHook
    from ._native._events import flush_events as flush_events
    from ._native._events import set_event_hook as set_event_hook
else:
    Event = _events.Event
    EventHook = _events.EventHook
    flush_events = _events.flush_events
    set_event_hook = _events.set_event_hook

_C_API = _events.c_api
"""The table of tack_memory.h: `tack_memory_import()` asks for it."""

DOMAINS = ("numpy", "device", "pinned", "shared")
"""By number, as in tack_memory.h."""


class EventCounts(NamedTuple):
    """What became of events so far in this process."""

    delivered: int
    """Calls of hooks."""
    suppressed: int
    """Events of memory that hooks themselves allocated."""
    dropped: int
    """Events that were lost because too many waited."""
    waiting: int
    """Events that wait to be delivered."""


def event_counts() -> EventCounts:
    """What became of events so far in this process.

    Returns
    -------
    EventCounts
        (delivered, suppressed, dropped, waiting): calls of hooks; events of memory that hooks themselves allocated; events that were lost because
        too many waited; events that wait.

    Raises
    ------
    MemoryError
        There is none left for the result.

    Notes
    -----
    May be called from any thread, also by a hook.
    """
    return EventCounts(*_events.event_counts())


def get_include() -> str:
    """The folder of the header tack_memory.h, for the C compiler's -I.

    Raises
    ------
    OSError
        The package's path is relative, and the working directory was deleted.

    Notes
    -----
    May be called from any thread.
    """
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def _bits(domains: str | Iterable[str]) -> int:
    names = (domains,) if isinstance(domains, str) else tuple(domains)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"domains must be names, of {', '.join(DOMAINS)}; not {type(name).__name__}")
        if name not in DOMAINS:
            raise ValueError(f"there is no domain {name!r}; there are {', '.join(DOMAINS)}")
    if not names:
        raise ValueError(f"domains is empty: name at least one of {', '.join(DOMAINS)}")
    return sum(1 << DOMAINS.index(name) for name in set(names))


class event_hook:
    """Call a function with each event of memory in a block: `with tack_memory.event_hook(print): ...`.

    Parameters
    ----------
    hook : callable
        It is called with one `Event`, a tuple with named fields: kind ("new", "free", "renew", "fail"), domain, device, old, new (addresses, or None),
        old_size, new_size, requested (bytes), reason ("adopt", "spill", "restore", or None), seq, thread, site: a number that
        tells the allocating lines of one domain apart while they are recorded (`tack_memory.numpy.track`, `set_origins`), else None.
    domains : str or iterable of str, optional
        Whose memory: "numpy" (arrays, while `tack_memory.numpy` is installed, those of the allocators "shared" and "mmap" included) and "device" (what
        tack_memory allocates or adopts on its devices). "pinned" and "shared" are for other allocators, which tell of their memory in C (tack_memory.h).
    sync : bool, default False
        Call it at once, inside the allocation and inside the free, with automatic garbage collection off. Else it is called a little later, in order:
        by the main thread between two lines of its program, by `flush_events`, and at the end of the block.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments, at the call.
    RuntimeError
        On entering twice, and leaving without having entered.

    Notes
    -----
    Any number may be open, in any threads, and closed in any order; each sees the events of all threads. The events of one address come in their
    order: new memory is told of before its owner has it, a free before the address can be given to somebody else. Device memory that is spilled
    has not ended: its spill and its restore are "renew", from the address on the device to that of the host copy, and back. A buffer of 0 bytes
    has no memory and no events. While anybody listens to NumPy's memory, a resize of an array always makes a new block and copies. Memory from before
    the block may end or move inside it. An `event_hook` that is dropped while it is open ends itself.

    A hook may allocate, collect garbage, set and remove hooks. What it allocates itself is never told, from its allocation to its free. What it
    raises goes to `sys.unraisablehook`, never into the program; KeyboardInterrupt is raised again in the main thread. After ten calls in a row that
    raised, it is switched off, with a RuntimeWarning, and what waits for it is lost.

    Automatic garbage collection is off for the whole process while a sync hook runs: also in other threads that run while the hook lets them
    (`gc.isenabled()` is False there). A `gc.disable()` in that time does not outlast the hook, and a `gc.enable()` ends the protection.

    65,536 events can wait for a hook; where the main thread does not come to them (it waits for other threads), the thread of the next event calls the
    hook, as if it were sync. While one thread does, others that allocate wait for it before there is no room any more; those that free do not. Who has
    waited for two seconds while the hook took nothing (it may be waiting for that very thread) goes on, and what has no room then is lost. As many can
    wait for a thread with the GIL to tell them (spills, NumPy's parsing of text); more are lost. What was lost is counted (`event_counts`). In a forked
    child hooks go on; what waited is the parent's.
    """

    __slots__ = ("_domains", "_hook", "_sync", "_tokens")

    def __init__(self, hook: Callable[[Event], object], domains: str | Iterable[str] = ("numpy", "device"), *, sync: bool = False) -> None:
        self._tokens: list[int] = []  # what removes it; C puts it there and takes it out, so that no signal comes in between
        if not callable(hook):
            raise TypeError(f"a hook must be callable, not {type(hook).__name__}")
        self._hook, self._domains, self._sync = hook, _bits(domains), bool(sync)

    def __enter__(self) -> Self:
        if self._tokens:
            raise RuntimeError("this event_hook was entered already: make another one")
        _events.add_hook(self._hook, self._domains, self._sync, self._tokens)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> Literal[False]:
        if not self._tokens:
            raise RuntimeError("this event_hook was not entered, or was left already")
        _events.remove_hook(self._tokens, True)
        return False

    def __del__(self, _remove: Callable[[list[int], bool], bool] = _events.remove_hook) -> None:  # at the end of Python the module's own names may be gone
        tokens: list[int] = getattr(self, "_tokens", [])  # not there where __init__ was not even begun
        while tokens:
            _remove(tokens, False)

    def __repr__(self) -> str:
        return f"<event_hook {self._hook!r}{', open' if self._tokens else ''}>"


_fast.attach_events(_events.api)
atexit.register(_events.flush_at_exit)  # what waits at the end of the program is delivered while Python is whole
