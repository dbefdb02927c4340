"""Which objects only certain references keep alive: what would be freed if these were dropped.

It is the method of Python's own cycle collector. All that can be reached from the references is found; of each object, the references that come from there are
subtracted from its reference count. Where something is left, somebody else holds the object (a variable, a running frame, C), and with it all that it refers
to. What remains when these are gone is kept by the given references alone. So nothing is named that anything else still uses: where an object's references
cannot be told (of a type that shows them to nobody), it counts as held by others.
"""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, CodeType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST = 200_000
"""Objects that are looked at; some 0.2 s. Of a traceback with more behind it, what it keeps cannot be told."""


class TooManyError(Exception):
    """More than `MOST` objects are reached."""


# They refer to nothing that is of interest, or to half of the program.
_LEAVES = (str, bytes, bytearray, int, float, complex, bool, type(None), type, ModuleType, CodeType, BuiltinFunctionType)

# Objects of these live as long as the program, and refer to all of it. Not looking into them only makes what they refer to count as held by others.
_MACHINERY = frozenset(
    ("IPython", "ipykernel", "traitlets", "jupyter_client", "tornado", "zmq", "asyncio", "threading", "logging", "nbclient", "pytest", "_pytest", "pluggy")
)

_RECORDS = ("ExecutionResult", "ExecutionInfo")  # of IPython: what it tells of one cell, which the cell's own frames refer to


def only_kept_by(getters: Iterable[Callable[[], object]], *, apart: object = None) -> dict[int, object]:
    """The objects that nothing else keeps alive than the references that the getters read, by id. TooManyError: more than `MOST` are reached.

    Each getter stands for one reference, and returns what it refers to; two getters of one place would count it twice. Garbage is to be collected before: what
    shows a traceback in colours leaves cycles behind that refer to its frames. `apart` is not looked into: references from it are either among the getters
    or those of others."""
    nodes, inside = _reach([get() for get in getters], id(apart))
    _take_away_held(nodes, inside)
    return nodes


def _reach(values: list[object], apart: int) -> tuple[dict[int, object], dict[int, int]]:
    """All that can be reached, by id, and how many references to each come from there. Empties `values`, so that no reference is left in it."""
    nodes: dict[int, object] = {}
    inside: dict[int, int] = {}
    order: list[int] = []
    while values or order:
        found = values if values else referents(nodes[order.pop()])
        while found:
            one = found.pop()
            if id(one) == apart or is_boundary(one):
                continue
            name = id(one)
            if name in nodes:
                inside[name] += 1
                continue
            nodes[name] = one
            inside[name] = 1
            order.append(name)
        if len(nodes) > MOST:
            raise TooManyError
    return nodes, inside


def _take_away_held(nodes: dict[int, object], inside: dict[int, int]) -> None:
    """Take out of `nodes` what others hold, and all that these refer to."""
    probe: list[object] = []  # nothing has a reference to it but what this function makes for each
    nodes[id(probe)], inside[id(probe)] = probe, 0
    names = [id(probe), *(name for name in inside if name != id(probe))]
    del probe
    held: list[int] = []
    ours = -1
    for name in names:
        count = sys.getrefcount(nodes[name]) - inside[name]
        if ours < 0:
            ours = count
        elif count > ours:
            held.append(name)
    del nodes[names[0]]
    while held:
        one = nodes.pop(held.pop(), None)
        if one is not None:
            held.extend(id(child) for child in referents(one))


def referents(one: object) -> list[object]:
    """What an object refers to, each as often as it does; of a NumPy array, whose type tells the collector nothing, its base."""
    found = gc.get_referents(one)
    if not found and type(one).__module__ == "numpy":
        base = getattr(one, "base", None)
        if base is not None:
            return [base]
    return found


def is_boundary(one: object) -> bool:
    """What is not looked at, so that references from it are those of others: see `_LEAVES` and `_MACHINERY`; and namespaces of modules and notebooks."""
    kind = type(one)
    if issubclass(kind, _LEAVES):  # not isinstance(): a proxy would be asked for its __class__, and run code
        return True
    if type(one) is dict:
        return "__name__" in one and ("__builtins__" in one or "__spec__" in one)
    return str(kind.__module__).partition(".")[0] in _MACHINERY and kind.__name__ not in _RECORDS
