"""Arrays that only a stored traceback keeps alive, or only IPython's cache of results, or only these two.

After an error, Python and IPython keep the exception for a debugger (`sys.last_value` and others), and with it the local variables of every function that
the error came through. Arrays among these stay on the device until the next error, although no variable of the notebook refers to them. IPython keeps the
results of cells, too: `Out[3]`, `_3`, `_`.

No code of the objects runs that are looked at: an isinstance() would ask a proxy for its `__class__`.
"""

from __future__ import annotations

import gc
import os
import sys
import weakref
from types import FrameType, TracebackType
from typing import NamedTuple

from .._cards import cell_number
from .._devices import NUMPY, open_names
from .._errors import one_line
from .._logging import debug
from .._native import _fast
from . import kept
from .kept import TooManyError, is_boundary, only_kept_by, referents
from .slots import Slot, drop_error, error_slots, result_slots, running_shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Kept(NamedTuple):
    """One array that nothing else keeps alive."""

    nbytes: int
    device: str
    spilled: bool
    name: str
    """Which variable of which function it is, or which result."""
    array: weakref.ref[Any]


class Stale(NamedTuple):
    """What the stored error alone keeps alive, or the cache of results alone, or both together; the largest first."""

    arrays: list[Kept]
    by_error: bool
    by_results: bool
    error: str = ""
    """The type of the exception, where there is one from which all the arrays are reached."""

    @property
    def nbytes(self) -> int:
        """All of it, on devices and spilled."""
        return sum(one.nbytes for one in self.arrays)


class Found(NamedTuple):
    """What is kept, and of whom it cannot be told, because there is too much behind them."""

    kept: list[Stale]
    error_untold: bool = False
    results_untold: bool = False
    both_untold: bool = False


class Forgotten(NamedTuple):
    """What `forget` did."""

    error: bool
    """There was one."""
    results: int
    freed: int | None
    """Bytes, of all devices; None: it cannot be told."""


# ---- what is kept


def look(shell: Any = None, *, collect: bool = True) -> Found:
    """What the last error keeps alive, what the cache of results does, and what they do together. Garbage is collected before, once (see `only_kept_by`)."""
    if collect:
        gc.collect()
    found: list[Stale] = []
    error_untold = results_untold = both_untold = False
    try:
        found += _of_error(shell)
    except TooManyError:
        error_untold = True
    try:
        found += _of_results(shell)
    except TooManyError:
        results_untold = True
    if not (error_untold or results_untold):
        try:
            found += _of_both(shell, {id(one.array()) for stale in found for one in stale.arrays})
        except TooManyError:
            both_untold = True
    return Found(found, error_untold, results_untold, both_untold)


def look_safely(shell: Any = None, *, collect: bool = True) -> Found:
    """`look`, for whoever has something else to show, whatever becomes of this: it looks into what IPython promises to nobody."""
    try:
        return look(shell, collect=collect)
    except Exception as error:
        debug("what a stored traceback keeps alive cannot be told", exc_info=error)
        return Found([])


def stale_arrays(shell: Any = None) -> Stale | None:
    """What only the last error keeps alive; None: nothing, or it cannot be told."""
    return next((one for one in look(shell).kept if not one.by_results), None)


def warning_of_notebook() -> str:
    """HTML of what is kept, where this runs in IPython; else empty."""
    from .told import html_of

    shell = running_shell()
    return "" if shell is None else html_of(look_safely(shell), shell)


def _of_error(shell: Any) -> list[Stale]:
    slots = error_slots(shell)
    nodes = _kept_by(slots, shell)
    return _stale(nodes, _arrays(nodes), slots, by_results=False)


def _of_results(shell: Any) -> list[Stale]:
    slots = result_slots(shell) if shell is not None else []
    nodes = _kept_by(slots, shell)
    found = set(_arrays(nodes))
    names: dict[int, str] = {}
    for slot in slots if found else ():
        for number in found.intersection(_reachable(id(slot.get()), nodes, through_frames=True)):  # a result may be an exception
            names.setdefault(number, slot.name)
    arrays = [_kept(nodes[number], name) for number, name in names.items()]
    return [Stale(_largest_first(arrays), by_error=False, by_results=True)] if arrays else []


def _of_both(shell: Any, named: set[int]) -> list[Stale]:
    """What they keep together, and nothing else; not what is named already (ids)."""
    errors, results = error_slots(shell), result_slots(shell) if shell is not None else []
    if not errors or not results:
        return []
    nodes = _kept_by([*errors, *results], shell)
    return _stale(nodes, [number for number in _arrays(nodes) if number not in named], errors, by_results=True)


def _stale(nodes: dict[int, object], arrays: list[int], errors: list[Slot], *, by_results: bool) -> list[Stale]:
    """These arrays, with the variables that they are of the functions which the error came through."""
    if not arrays:
        return []
    names = _names_in_frames(nodes, arrays)
    found = [_kept(nodes[number], names.get(number, "in the exception")) for number in arrays]
    return [Stale(_largest_first(found), True, by_results, _type_of_error(errors, nodes, arrays))]


def _kept_by(slots: list[Slot], shell: Any) -> dict[int, object]:
    """What the slots alone keep alive. Of the last result the slots name the parts: looking into it would count these a second time."""
    return only_kept_by([slot.get for slot in slots], apart=getattr(shell, "last_execution_result", None)) if slots else {}


def _largest_first(arrays: list[Kept]) -> list[Kept]:
    return sorted(arrays, key=lambda one: (-one.nbytes, one.name))


def _type_of_error(slots: list[Slot], nodes: dict[int, object], arrays: list[int]) -> str:
    """The exception of which it is true that it keeps them: IPython has the traceback of one error and Python that of a later one, as of a mistyped magic."""
    for slot in slots:
        value = slot.get()
        if issubclass(type(value), BaseException) and _reachable(id(value), nodes, through_frames=True).keys() >= set(arrays):
            return type(value).__name__
    return ""


# ---- arrays


def _numpy_array() -> Any:
    """NumPy's type of arrays, where their memory is counted; else None."""
    numpy = sys.modules.get("numpy")
    return numpy.ndarray if numpy is not None and NUMPY in open_names() else None


def _arrays(nodes: dict[int, object]) -> list[int]:
    """The live Buffers among these objects, and NumPy's arrays with memory of their own, where that is counted."""
    array = _numpy_array()
    return [number for number, one in nodes.items() if _is_array(one, array)]


def _is_array(one: Any, array: Any) -> bool:
    kind = type(one)
    if kind is _fast.Buffer:
        return bool(one.nbytes and one.state != "freed")
    if array is None or not issubclass(kind, array):
        return False
    # NumPy's own attributes: a class of somebody's may have others under these names
    return array.base.__get__(one) is None and array.flags.__get__(one).owndata and array.nbytes.__get__(one) > 0


def _kept(one: Any, name: str) -> Kept:
    name = one_line(name)
    if type(one) is _fast.Buffer:
        return Kept(one.nbytes, one.device, one.is_spilled, f"{one_line(one.label)}, {name}" if one.label else name, weakref.ref(one))
    return Kept(_numpy_array().nbytes.__get__(one), NUMPY, False, name, weakref.ref(one))


# ---- their names


def _reachable(start: int, nodes: dict[int, object], *, through_frames: bool = False) -> dict[int, int]:
    """What of `nodes` can be reached from one of them, and in how many steps; frames and tracebacks are not passed through where it is not said."""
    steps = {start: 0} if start in nodes else {}
    queue = list(steps)
    for number in queue:
        for child in referents(nodes[number]):
            name = id(child)
            if name in nodes and name not in steps and (through_frames or not issubclass(type(child), (FrameType, TracebackType))):
                steps[name] = steps[number] + 1
                queue.append(name)
    return steps


def _names_in_frames(nodes: dict[int, object], arrays: list[int]) -> dict[int, str]:
    """For each array the local variable, of the functions that the error came through, that is nearest to it."""
    lines = {id(one.tb_frame): one.tb_lineno for one in nodes.values() if type(one) is TracebackType}
    best: dict[int, tuple[int, str]] = {}
    wanted = set(arrays)
    for frame in [one for one in nodes.values() if type(one) is FrameType]:
        where = f"{_file(frame.f_code.co_filename)}:{lines.get(id(frame), frame.f_lineno)}"
        for variable, value in _variables(frame):
            for number, steps in _reachable(id(value), nodes).items():
                if number in wanted and (number not in best or steps < best[number][0]):
                    best[number] = steps, f"{variable} in {frame.f_code.co_name} ({where})"
    return {number: name for number, (_, name) in best.items()}


def _variables(frame: FrameType) -> Iterable[tuple[str, object]]:
    """The local variables of a function. Not the notebook's own: one of these holds the array by itself, or is one of the results (_)."""
    variables = frame.f_locals
    if variables is frame.f_globals or (type(variables) is not dict and type(variables).__name__ != "FrameLocalsProxy"):
        return ()  # the namespace of a class may be an object of somebody's
    return list(variables.items())


def _file(name: str) -> str:
    """A file for people; a cell by its number."""
    number = cell_number(name)
    return f"In[{number}]" if number is not None else os.path.basename(name)


# ---- letting go


def live_bytes() -> int | None:
    """What is counted now on all devices and spilled from them; None: it cannot be told."""
    try:
        found = [_fast.memory_info(name) for name in open_names()]
    except Exception as error:
        debug("how much memory is in use cannot be told", exc_info=error)
        return None
    return sum(info.in_use + info.spilled for info in found)


def forget(shell: Any = None, *, error: bool = True, results: bool = False) -> Forgotten:
    """Drop the stored error from all its places, and the results that lead to arrays from all of theirs. Whether it can be told what they keep or not."""
    gc.collect()
    before = live_bytes()
    there = drop_error(shell) if error else False
    number = _drop_results(shell) if results and shell is not None else 0
    gc.collect()  # an exception, its traceback and a frame mostly refer to one another
    after = live_bytes()
    return Forgotten(there, number, None if before is None or after is None else max(0, before - after))


def _drop_results(shell: Any) -> int:
    """How many results were dropped, each of them perhaps from several places."""
    array = _numpy_array()
    leads: dict[int, bool] = {}
    slots = result_slots(shell)
    values = [slot.get() for slot in slots]  # so that no id comes twice
    for value in values:
        if id(value) not in leads:
            leads[id(value)] = _leads_to_array(value, array)
    for slot, value in zip(slots, values, strict=True):
        if leads[id(value)]:
            slot.drop()
    return sum(leads.values())


def _leads_to_array(value: object, array: Any) -> bool:
    """Whether an array can be reached from a result; also True where there is too much to look at."""
    seen = {id(value): value}
    queue = [value]
    while queue:
        one = queue.pop()
        if _is_array(one, array):
            return True
        if is_boundary(one):
            continue
        for child in referents(one):
            if id(child) not in seen:
                seen[id(child)] = child
                queue.append(child)
        if len(seen) > kept.MOST:
            return True
    return False
