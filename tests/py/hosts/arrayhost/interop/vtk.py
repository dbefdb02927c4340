"""VTK: an array's memory as a data array of the other library's, which works on host memory."""

from typing import Any

import numpy as np


class DataArray:
    """What VTK makes of a NumPy array: it keeps it for as long as it uses its memory."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def values(self) -> np.ndarray:
        return self._values


def to_vtk(a: Any, copy: bool = True) -> DataArray:
    """A data array with the contents of an array; without a copy over its memory itself, where the host can read that."""
    return DataArray(a.numpy() if copy else np.from_dlpack(a))
