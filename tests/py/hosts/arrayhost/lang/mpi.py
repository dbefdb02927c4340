"""Memory for MPI: libraries keep its address, and cannot share what comes from a stream's pool."""

from typing import Any

import numpy as np

from ..runtime import devices
from .array import array


def allocate_mpi_array(shape: tuple[int, ...], dtype: Any = np.float64, device: Any = None) -> array:
    """A new array whose memory MPI can use."""
    dtype = np.dtype(dtype)
    return array(devices.device(device).backend.create_mpi_buffer(dtype, shape), dtype, shape)
