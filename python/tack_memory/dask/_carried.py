"""Functions and classes that travel as what they are, not as names: the other side needs neither this package nor its version.

Pickle sends a function as its module and name, which the other side imports. What `_on_scheduler` and `_on_worker` have is needed where the package may be
missing or older, just to say so. So it is pickled by value (cloudpickle, which distributed brings along).
"""

from __future__ import annotations

import functools
import pickle
import threading
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from . import _on_scheduler, _on_worker

_lock = threading.Lock()  # cloudpickle's list of modules is one for the whole process


def by_value(thing: object) -> bytes:
    """The pickle of a function, a class or an instance of these two modules, with its code in it. `pickle.loads` makes it again."""
    with _lock:
        modules = (_on_scheduler, _on_worker)
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            pickled: bytes = cloudpickle.dumps(thing)
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
    return pickled


@functools.cache
def carried(function: Any) -> bytes:
    """`by_value` of a function; made once, since it is always the same."""
    return by_value(function)


class Carried:
    """A stand-in for a function where something else does the pickling: unpickled it is the function itself."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return pickle.loads, (carried(self._function),)
