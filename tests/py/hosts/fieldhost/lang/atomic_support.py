"""Atomic operations: changes of one element that other threads of a kernel make, too."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .field import Field


def atomic_add(values: np.ndarray, index: Any, by: Any) -> None:
    """Inside a kernel: add to one element, or to each of several, which may be the same one more than once."""
    np.add.at(values, index, by)


def check_atomic_alignment(kernel: Any, args: Sequence[Any]) -> None:
    """Devices change whole elements at once only where these lie at multiples of their size. Before each launch, since each may bring other memory."""
    for place in kernel.atomic:
        if isinstance(args[place], Field):
            address, size = args[place]._buffer.address, args[place].dtype.numpy_dtype.itemsize
            if address % size:
                raise ValueError(f"{kernel.name}: atomic operations need elements of {size} bytes at a multiple of that; argument {place} is at {address:#x}")
