"""Kernels: Python functions that run on a device."""

import inspect
import threading
from collections.abc import Callable
from typing import Any

from .array import array


class Variant:
    """A kernel made ready for one backend and one list of argument types."""

    def __init__(self, function: Callable[..., None], writes: set[str], args: tuple[Any, ...]) -> None:
        self.name = function.__name__
        self.function = function
        self.arrays = [i for i, a in enumerate(args) if isinstance(a, array)]
        self.writes = [i for i, name in enumerate(inspect.signature(function).parameters) if name in writes]
        self.dispatch_lock = threading.Lock()


class Kernel:
    """What `@kernel` makes of a function. Calling it launches."""

    def __init__(self, function: Callable[..., None], writes: str) -> None:
        self.function = function
        self._writes = set(writes.split())
        self._variants: dict[Any, Variant] = {}

    def __call__(self, *args: Any) -> None:
        backends = {a._buffer._backend for a in args if isinstance(a, array)}
        if len(backends) != 1:
            raise ValueError(f"{self.function.__name__}: needs arrays, all on one device")
        (backend,) = backends
        key = backend, tuple((a.dtype, a.ndim) if isinstance(a, array) else type(a) for a in args)
        variant = self._variants.get(key) or self._variants.setdefault(key, Variant(self.function, self._writes, args))
        backend.execute(variant, args)


def kernel(*, writes: str) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of a function over NumPy arrays. `writes` names the array parameters that it writes, with spaces between."""
    return lambda function: Kernel(function, writes)
