"""Arrays that only a stored traceback keeps alive, or only IPython's cache of results, or only these two.

After an error, Python and IPython keep the exception for a debugger (`sys.last_value` and others), and with it the local variables of every function that
the error came through. Arrays among these stay on the device until the next error, although no variable of the notebook refers to them. IPython keeps the
results of cells, too: `Out[3]`, `_3`, `_`.
"""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType
from typing import NamedTuple

from .._cards import cell_number, text
from .._logging import debug
from .._native import _fast
from .._sizes import format_bytes
from .kept import only_kept_by, referents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

WARN_FROM = 2**20
"""Bytes from which the end of a failed cell says something. `%memory_info` and reports name smaller arrays, too."""

_SHOWN = 5  # arrays that are named; the rest is a number


class Slot(NamedTuple):
    """One place that keeps an exception, a traceback or a result."""

    name: str
    get: Callable[[], object]
    drop: Callable[[], None]
    by_hand: str
    """The statement that drops it."""


class Kept(NamedTuple):
    """One array that nothing else keeps alive."""

    nbytes: int
    device: str
    spilled: bool
    name: str
    """Which variable of which function it is, or which result."""
    number: int
    """Its id()."""


class Stale(NamedTuple):
    """What one kind of slots alone keeps alive, the largest first."""

    arrays: list[Kept]
    slots: list[Slot]
    error: str
    """The type of the exception; "" where it has no part in it."""
    results: bool = False
    """Whether the cache of results has a part in it."""

    @property
    def nbytes(self) -> int:
        """All of it, on devices and spilled."""
        return sum(one.nbytes for one in self.arrays)


def running_shell() -> Any:
    """IPython's shell, or None. IPython is not imported for it."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _attribute(name: str, owner: object, attribute: str, by_hand: str, *, delete: bool = False) -> list[Slot]:
    """The slot that an attribute is, if there is something in it."""
    if getattr(owner, attribute, None) is None:
        return []

    def drop() -> None:
        if delete:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, None)

    return [Slot(name, lambda: getattr(owner, attribute, None), drop, by_hand)]


def error_slots(shell: Any = None) -> list[Slot]:
    """Where Python and IPython keep the last error."""
    slots: list[Slot] = []
    for attribute in ("last_value", "last_exc", "last_traceback"):
        slots += _attribute(f"sys.{attribute}", sys, attribute, f"del sys.{attribute}", delete=True)
    for attribute in ("InteractiveTB", "SyntaxTB"):
        owner = getattr(shell, attribute, None)
        slots += _attribute(f"IPython's {attribute}", owner, "tb", f"get_ipython().{attribute}.tb = None")
    result = getattr(shell, "last_execution_result", None)
    for attribute in ("error_in_exec", "error_before_exec"):
        slots += _attribute("IPython's last result", result, attribute, f"get_ipython().last_execution_result.{attribute} = None")
    return slots


def result_slots(shell: Any) -> list[Slot]:
    """Where IPython keeps the results of cells."""
    slots: list[Slot] = []
    history = getattr(getattr(shell, "history_manager", None), "output_hist", None) or {}
    for number in list(history):
        slots.append(_entry(f"Out[{number}]", history, number, f"%xdel _{number}"))
    for names in (getattr(shell, "user_ns", {}), getattr(shell, "user_ns_hidden", {})):
        for name in list(names):
            if name in ("_", "__", "___") or (name[:1] == "_" and name[1:].isdecimal()):
                slots.append(_entry(name, names, name, f"%xdel {name}"))
    hook = getattr(shell, "displayhook", None)
    for name in ("_", "__", "___"):
        slots += _attribute(name, hook, name, f"%xdel {name}")
    slots += _attribute("_", getattr(shell, "last_execution_result", None), "result", "%xdel _")
    return slots


def _entry(name: str, owner: dict[Any, object], key: object, by_hand: str) -> Slot:
    def drop() -> None:
        owner.pop(key, None)

    return Slot(name, lambda: owner.get(key), drop, by_hand)


def stale_arrays(shell: Any = None) -> Stale | None:
    """The arrays that only the last error keeps alive; None: there are none, or it cannot be told."""
    slots = error_slots(shell)
    kept = _kept_by(slots, shell)
    if not kept:
        return None
    found = _arrays(kept)
    if not found:
        return None
    names = _names_in_frames(kept, found)
    arrays = [_kept(kept[number], names.get(number, "in the exception")) for number in found]
    holding = [slot for slot in slots if id(slot.get()) in kept]
    return Stale(_largest_first(arrays), holding or slots, _type_of_error(slots))


def kept_results(shell: Any) -> Stale | None:
    """The arrays that only IPython's cache of results keeps alive; None: there are none, or it cannot be told."""
    slots = result_slots(shell) if shell is not None else []
    kept = _kept_by(slots, shell)
    if not kept:
        return None
    names: dict[int, str] = {}
    holding: list[Slot] = []
    found = set(_arrays(kept))
    for slot in slots:
        arrays = found & set(_reachable(id(slot.get()), kept))
        if arrays and not arrays <= names.keys():
            holding.append(slot)
        for number in arrays:
            names.setdefault(number, slot.name)
    arrays_kept = [_kept(kept[number], names[number]) for number in found if number in names]
    if not arrays_kept:
        return None
    return Stale(_largest_first(arrays_kept), holding, "", results=True)


def kept_by_both(shell: Any, named: set[int]) -> Stale | None:
    """The arrays that the last error and the cache of results keep alive together, and nothing else; not those that are named already (ids)."""
    errors, results = error_slots(shell), result_slots(shell) if shell is not None else []
    kept = _kept_by([*errors, *results], shell) if errors and results else None
    if not kept:
        return None
    found = [number for number in _arrays(kept) if number not in named]
    if not found:
        return None
    names = _names_in_frames(kept, found)
    arrays = [_kept(kept[number], names.get(number, "in the exception")) for number in found]
    holding = [slot for slot in results if set(found) & set(_reachable(id(slot.get()), kept))]
    return Stale(_largest_first(arrays), holding, _type_of_error(errors), results=True)


def _type_of_error(slots: list[Slot]) -> str:
    return next((type(value).__name__ for slot in slots if isinstance(value := slot.get(), BaseException)), "the last error")


def _largest_first(arrays: list[Kept]) -> list[Kept]:
    return sorted(arrays, key=lambda one: (-one.nbytes, one.name))


def _kept_by(slots: list[Slot], shell: Any) -> dict[int, object] | None:
    """What the slots alone keep alive. Of the last result the slots name the parts: looking into it would count these a second time."""
    return only_kept_by([slot.get for slot in slots], apart=getattr(shell, "last_execution_result", None)) if slots else None


def _arrays(kept: dict[int, object]) -> list[int]:
    """The live Buffers among these objects, and NumPy's arrays with memory of their own, where that is counted."""
    numpy = sys.modules.get("numpy") if "tack_memory.numpy" in sys.modules else None
    found = []
    one: Any
    for number, one in kept.items():
        if isinstance(one, _fast.Buffer):
            if one.nbytes and one.state != "freed":
                found.append(number)
        elif numpy is not None and isinstance(one, numpy.ndarray) and one.base is None and one.flags.owndata and one.nbytes:
            found.append(number)
    return found


def _kept(one: Any, name: str) -> Kept:
    if isinstance(one, _fast.Buffer):
        return Kept(one.nbytes, one.device, one.is_spilled, f"{one.label}, {name}" if one.label else name, id(one))
    return Kept(one.nbytes, "numpy", False, name, id(one))


def _reachable(start: int, kept: dict[int, object]) -> dict[int, int]:
    """What of `kept` can be reached from one of them, and in how many steps; frames and tracebacks are not passed through."""
    steps = {start: 0} if start in kept else {}
    queue = list(steps)
    for number in queue:
        for child in referents(kept[number]):
            name = id(child)
            if name in kept and name not in steps and not isinstance(child, (FrameType, TracebackType)):
                steps[name] = steps[number] + 1
                queue.append(name)
    return steps


def _names_in_frames(kept: dict[int, object], arrays: list[int]) -> dict[int, str]:
    """For each array the local variable, of the functions that the error came through, that is nearest to it."""
    lines = {id(one.tb_frame): one.tb_lineno for one in kept.values() if isinstance(one, TracebackType)}
    best: dict[int, tuple[int, str]] = {}
    wanted = set(arrays)
    for frame in [one for one in kept.values() if isinstance(one, FrameType)]:
        variables = frame.f_locals
        if variables is frame.f_globals:
            continue  # the notebook's own: a variable there holds the array by itself, or is one of the results (_)
        where = f"{_file(frame.f_code.co_filename)}:{lines.get(id(frame), frame.f_lineno)}"
        for variable, value in list(variables.items()):
            for number, steps in _reachable(id(value), kept).items():
                if number in wanted and (number not in best or steps < best[number][0]):
                    best[number] = steps, f"{variable} in {frame.f_code.co_name} ({where})"
    return {number: name for number, (_, name) in best.items()}


def _file(name: str) -> str:
    """A file for people; a cell by its number."""
    number = cell_number(name)
    return f"In[{number}]" if number is not None else os.path.basename(name)


# ---- in words


def lines_about(stale: Stale) -> list[str]:
    """What is kept by what, and how to let go of it: a head, a line an array, and the advice last."""
    devices = ", ".join(sorted({one.device for one in stale.arrays}))
    number = len(stale.arrays)
    arrays = f"{number:,} array{'' if number == 1 else 's'} of {format_bytes(stale.nbytes)} on {devices} {'is' if number == 1 else 'are'} kept alive only by"
    keepers = [*([f"the stored traceback of {stale.error}"] if stale.error else []), *(["IPython's cache of results"] if stale.results else [])]
    lines = [f"{arrays} {' and '.join(keepers)}{' together' if len(keepers) > 1 else ''}:"]
    for one in stale.arrays[:_SHOWN]:
        lines.append(f"{format_bytes(one.nbytes)}{', spilled' if one.spilled else ''}: {one.name}")
    if number > _SHOWN:
        lines.append(f"{format_bytes(sum(one.nbytes for one in stale.arrays[_SHOWN:]))}: {number - _SHOWN:,} more")
    if stale.error and not stale.results:
        by_hand = "; ".join(["import sys", *dict.fromkeys(slot.by_hand for slot in stale.slots)])
        lines.append(f"%memory_info --forget lets go of it, and %debug has nothing to look at then. By hand: {by_hand}")
    else:
        first = ["%memory_info --forget"] if stale.error else []
        shown = "; ".join([*first, *list(dict.fromkeys(slot.by_hand for slot in stale.slots))[:_SHOWN]])
        lines.append(f"{shown} lets go of it; a cell that ends in a semicolon keeps no result")
    return lines


def text_of(found: list[Stale]) -> str:
    """All of it as plain text; empty where nothing is kept."""
    parts = []
    for stale in found:
        head, *arrays, advice = lines_about(stale)
        parts.append("\n  ".join([head, *arrays, advice]))
    return "\n".join(parts)


def html_of(found: list[Stale]) -> str:
    """All of it as HTML, for a card; empty where nothing is kept."""
    parts = []
    for stale in found:
        head, *arrays, advice = lines_about(stale)
        items = "".join(f"<li>{text(line)}</li>" for line in arrays)
        parts.append(f'<div class="tm-warn">{text(head)}<ul class="tm-list">{items}</ul><p class="tm-note">{text(advice)}</p></div>')
    return "".join(parts)


def look(shell: Any = None) -> list[Stale]:
    """What the last error keeps alive, what the cache of results does, and what they do together."""
    apart = [stale for stale in (stale_arrays(shell), kept_results(shell)) if stale is not None]
    both = kept_by_both(shell, {one.number for stale in apart for one in stale.arrays})
    return [*apart, *([both] if both is not None else [])]


def forget(shell: Any = None) -> int:
    """Drop the stored error from all its places; returns how many bytes of arrays only it kept alive."""
    import gc

    stale = stale_arrays(shell)
    freed = stale.nbytes if stale is not None else 0
    del stale
    for slot in error_slots(shell):
        slot.drop()
    gc.collect()  # an exception, its traceback and a frame mostly refer to one another
    return freed


def warning_of_notebook() -> str:
    """HTML of what is kept, where this runs in IPython; else empty.

    A report is shown whatever becomes of this: it looks into what IPython promises to nobody."""
    shell = running_shell()
    try:
        return "" if shell is None else html_of(look(shell))
    except Exception as error:
        debug("what a stored traceback keeps alive cannot be told", exc_info=error)
        return ""
