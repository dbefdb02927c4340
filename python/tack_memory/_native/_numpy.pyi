from contextvars import ContextVar, Token
from typing import Any, TypeAlias

import numpy

# A capsule named "mem_handler": NEP 49's PyDataMem_Handler. (types.CapsuleType is of Python 3.13.)
Handler: TypeAlias = object

def statistics() -> tuple[int, int, int, int, int, int, int, int, int, int, int]:
    """(in_use, peak, overhead, live, allocations, frees, resizes, failed, unknown_frees, inherited, inherited_live), of one moment."""

def books() -> object:
    """A capsule, for _fast.count_numpy."""

def counted() -> Handler: ...
def aligned(align: int, /) -> Handler:
    """ValueError where it is no power of two, or more than 1 GiB."""

def hugepage(advise: bool, /) -> Handler: ...
def wrapped(capsule: Handler, align: int, /) -> Handler:
    """ValueError where it is named otherwise, is of a version that is not known, or counts already."""

def context_variable() -> ContextVar[Handler]:
    """RuntimeError where NumPy has none of the known name."""

def set_process_handler(capsule: Handler | None, /) -> None:
    """RuntimeError, and nothing has changed, where this Python is not known."""

def set_context_handler(capsule: Handler | None, /) -> Handler: ...
def enter_context(capsule: Handler, tokens: list[object], /) -> None:
    """The handler of this context; what takes it back is appended to the list, in one step that no signal can divide."""

def leave_context(tokens: list[object], above: tuple[tuple[Handler, list[object]], ...], /) -> bool | Token[Handler]:
    """Takes back the last of the list; the blocks that were entered after it, (capsule, tokens) each, stay in force in their order. False, and the
    handler stays, in another context than it was entered in. A token: takes back what was installed in the youngest of those blocks."""

def current_handler() -> Handler: ...
def owner(array: object, /) -> tuple[str, int | None, int | None, int] | None:
    """(handler, bytes, sequence, site)."""

def shared(capacity: int, advise: bool, /) -> Handler:
    """At most so many bytes of addresses; 0: as much as the machine can have. OSError where there is no memory file."""

def mapped(path: str, /) -> Handler:
    """The path is absolute. OSError; FileExistsError where the file is no file of ours, BlockingIOError where a process has it."""

def arenas() -> tuple[tuple[str | None, bool, int, int, int, int, int], ...]:
    """(path, own, live, live_bytes, kept, waiting_bytes, cut) of each arena."""

def export(array: object, readonly: bool, handle: object, /) -> tuple[int, int, int]:
    """(start, bytes, first), and handle._fd becomes a descriptor. ValueError where the memory is not in a file."""

def attach(
    descriptor: int, start: int, bytes: int, first: int, dtype: numpy.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...], writable: bool, /
) -> numpy.ndarray[Any, Any]: ...

Track: TypeAlias = tuple[
    tuple[int, int, int, int, int, float, float, bool],
    list[tuple[int, int, int, int, int, int, int, int, int, int, int, float | None, tuple[tuple[int, int], ...], int]],
]

def track(threshold: int, /) -> object: ...
def end_track(track: object, /) -> None: ...
def read_track(track: object, /) -> Track:
    """((in_use, peak, in_use_first, failed, peak_site, peak_after, seconds, open), rows)."""

def running_locals() -> list[Any]:
    """What the variables of all functions that run now are, in all threads."""

def site_name(number: int, /) -> tuple[str, int, str] | None:
    """(file, line, function)."""

def set_site_skip(beginnings: tuple[str, ...], /) -> None: ...
