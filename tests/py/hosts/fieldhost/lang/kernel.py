"""Kernels: functions over NumPy arrays. An argument that is a `data_oriented` object brings its fields, which come last, in the order of their names."""

from collections.abc import Callable
from typing import Any


class Kernel:
    """What `@kernel` makes of a function. Calling it launches."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.name = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        from ..runtime.dispatch import get_backend

        get_backend().execute(self, args, kwargs)


def kernel(function: Callable[..., None]) -> Kernel:
    return Kernel(function)


def data_oriented(cls: type) -> type:
    """Objects of this class may be arguments of kernels."""
    cls._data_oriented = True
    return cls
