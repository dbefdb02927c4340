"""Kernels: functions over NumPy arrays. An argument that is a `data_oriented` object brings its fields, which come last, in the order of their names."""

from collections.abc import Callable
from inspect import signature
from typing import Any


class Kernel:
    """What `@kernel` makes of a function. Calling it launches."""

    def __init__(self, function: Callable[..., None], atomic: str = "") -> None:
        self.function = function
        self.name = function.__name__
        parameters = list(signature(function).parameters)
        self.atomic = [parameters.index(name) for name in atomic.split()]  # the places of the arguments that it changes by atomic operations

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        from ..runtime.dispatch import get_backend

        get_backend().execute(self, args, kwargs)


def kernel(function: Callable[..., None] | None = None, *, atomic: str = "") -> Any:
    """`@kernel`, or `@kernel(atomic="out")` with the names of the parameters that it changes by atomic operations."""
    return Kernel(function, atomic) if function is not None else lambda one: Kernel(one, atomic)


def data_oriented(cls: type) -> type:
    """Objects of this class may be arguments of kernels."""
    cls._data_oriented = True
    return cls
