"""Texture images: memory of the device in the form in which it is sampled."""

import math
from typing import Any

import numpy as np


class TextureImage:
    """The image of an array. Made by the backend's `create_texture_image`; freed when it is dropped."""

    def __init__(self, backend: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._backend = backend
        self.shape, self.dtype = shape, dtype
        self._nbytes = self.nbytes = math.prod(shape) * dtype.itemsize
        self._device_ptr = backend.allocate(self._nbytes)

    def __del__(self) -> None:
        if getattr(self, "_device_ptr", 0):
            self._backend.free(self._device_ptr)

    def upload(self, source: Any) -> None:
        """Copy an array into the image, on the device."""
        self._backend.copy(self._device_ptr, source._buffer.device_ptr, self._nbytes)
