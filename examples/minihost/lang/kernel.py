"""Kernels: Python functions that run on a device."""

import inspect
import threading
from collections.abc import Callable
from typing import Any

from .array import array


class Variant:
    """A kernel made ready for one backend and one list of argument types."""

    def __init__(self, function: Callable[..., None], parameters: list[str], writes: frozenset[str], args: tuple[Any, ...]) -> None:
        self.name = function.__name__
        self.function = function
        self.arrays = [i for i, a in enumerate(args) if isinstance(a, array)]
        self.writes = [i for i in self.arrays if parameters[i] in writes]
        self.dispatch_lock = threading.Lock()


class Kernel:
    """What `@kernel` makes of a function. Calling it launches."""

    def __init__(self, function: Callable[..., None], writes: str) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self._signature = inspect.signature(function)
        self._parameters = list(self._signature.parameters)
        self._writes = frozenset(writes.split())
        if unknown := self._writes - set(self._parameters):
            raise TypeError(f"{self.__name__} has no parameter {', '.join(sorted(unknown))}")
        self._variants: dict[Any, Variant] = {}

    def __call__(self, *args: Any, **named: Any) -> None:
        bound = self._signature.bind(*args, **named)
        bound.apply_defaults()
        arguments = tuple(bound.args)
        backends = {id(a._buffer._backend): a._buffer._backend for a in arguments if isinstance(a, array)}
        if len(backends) != 1:
            raise ValueError(f"{self.__name__}: needs arrays, all on one device")
        (backend,) = backends.values()
        types = tuple((a.dtype, a.ndim) if isinstance(a, array) else type(a) for a in arguments)
        variant = self._variants.get((id(backend), types))
        if variant is None:
            variant = Variant(self.function, self._parameters, self._writes, arguments)
            variant = self._variants.setdefault((id(backend), types), variant)
        backend.execute(variant, arguments)


def kernel(*, writes: str) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of a function over NumPy arrays. `writes` names the array parameters that it writes, with spaces between."""
    return lambda function: Kernel(function, writes)
