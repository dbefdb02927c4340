"""What a kernel's variant is given beside arrays: its scalars, in memory of the device."""

from typing import Any

import numpy as np

from ..lang import array as arrays

SCALARS = (int, float)


def _create_pack_arrays(backend: Any, args: Any) -> list[Any]:
    """An array for the scalars of a launch, if it has any."""
    count = sum(isinstance(one, SCALARS) for one in args)
    dtype = np.dtype(np.float64)
    return [arrays.array(arrays._allocate(backend, dtype, (count,)), dtype, (count,))] if count else []


class Compiled:
    """A variant as the driver has it: with the address of the scalars, which was bound when it was made."""

    def __init__(self, packs: list[Any]) -> None:
        self.scalars = packs[0]._buffer.device_ptr if packs else 0
