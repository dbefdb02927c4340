"""The places in which Python and IPython keep the last error, and in which IPython keeps the results of cells."""

from __future__ import annotations

import contextlib
import sys
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LAST_RESULTS = ("_", "__", "___")


class Slot(NamedTuple):
    """One place that keeps an exception, a traceback or a result."""

    name: str
    get: Callable[[], object]
    drop: Callable[[], None]


def running_shell() -> Any:
    """IPython's shell, or None. IPython is not imported for it."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _attribute(name: str, owner: object, attribute: str, empty: object = None) -> list[Slot]:
    """The slot that an attribute is, if there is something in it; `empty` is put in its place when it is dropped."""
    if getattr(owner, attribute, None) is None:
        return []
    return [Slot(name, lambda: getattr(owner, attribute, None), lambda: setattr(owner, attribute, empty))]


def _of_sys(attribute: str) -> list[Slot]:
    def drop() -> None:
        with contextlib.suppress(AttributeError):
            delattr(sys, attribute)

    return [Slot(f"sys.{attribute}", lambda: getattr(sys, attribute, None), drop)] if getattr(sys, attribute, None) is not None else []


def _entry(name: str, owner: dict[Any, object], key: object, empty: object = None) -> Slot:
    def drop() -> None:
        if empty is None:
            owner.pop(key, None)
        elif key in owner:
            owner[key] = empty

    return Slot(name, lambda: owner.get(key), drop)


def error_slots(shell: Any = None) -> list[Slot]:
    """Where Python and IPython keep the last error."""
    slots: list[Slot] = []
    for attribute in ("last_value", "last_exc", "last_traceback"):
        slots += _of_sys(attribute)
    for attribute in ("InteractiveTB", "SyntaxTB"):
        slots += _attribute(f"IPython's {attribute}", getattr(shell, attribute, None), "tb")
    result = getattr(shell, "last_execution_result", None)
    for attribute in ("error_in_exec", "error_before_exec"):
        slots += _attribute("IPython's last result", result, attribute)
    return slots


def drop_error(shell: Any = None) -> bool:
    """Drop the stored error from all its places; whether there was one."""
    slots = error_slots(shell)
    for slot in slots:
        slot.drop()
    with contextlib.suppress(AttributeError):
        del sys.last_type  # %tb and %debug take it for the sign that the others are there
    return bool(slots)


def result_slots(shell: Any) -> list[Slot]:
    """Where IPython keeps the results of cells. Of the three last ones, when dropped, is left what IPython begins with: an empty text.

    IPython goes on naming results `_` only where its namespaces agree on what is in it."""
    slots: list[Slot] = []
    history = getattr(getattr(shell, "history_manager", None), "output_hist", None) or {}
    slots += [_entry(f"Out[{number}]", history, number) for number in list(history)]
    for names in (getattr(shell, "user_ns", {}), getattr(shell, "user_ns_hidden", {})):
        for name in list(names):
            if name in _LAST_RESULTS:
                slots.append(_entry(name, names, name, ""))
            elif isinstance(name, str) and name[:1] == "_" and name[1:].isdecimal():
                slots.append(_entry(name, names, name))
    hook = getattr(shell, "displayhook", None)
    for name in _LAST_RESULTS:
        slots += _attribute(name, hook, name, "")
    slots += _attribute("_", getattr(shell, "last_execution_result", None), "result")
    return slots
