"""Kernels for hosts of the field generation: `out = a * x + y`, and `x = x + by`."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def over_arrays(host: ModuleType) -> tuple[Any, Any]:
    """Over whole arrays, as fieldhost's are. They are called as `axpy(x, y, out, a)`, `shift(x, by)`."""

    @host.kernel
    def axpy(x: Any, y: Any, out: Any, a: Any) -> None:
        out[:] = a * x + y

    @host.kernel
    def shift(x: Any, by: Any) -> None:
        x += by

    return axpy, shift


def over_indexes(host: ModuleType) -> tuple[Any, Any]:
    """Loops over plain indexes, which every host of this shape can compile, Tack too. The last argument is how many."""

    @host.kernel
    def axpy(x, y, out, a, n):  # type: ignore[no-untyped-def]
        for i in range(n):
            out[i] = a * x[i] + y[i]

    @host.kernel
    def shift(x, by, n):  # type: ignore[no-untyped-def]
        for i in range(n):
            x[i] = x[i] + by

    return axpy, shift
