"""The backends of this host, by vendor. Importing this puts them in the place of minihost's."""

import contextlib
import threading
from typing import Any

from . import cpu, cuda_backend, devices, hip_backend, level_zero_backend  # noqa: F401
from .driver import RESULT
from .grown import CachingBackend, GrownBackend, GrownBuffer
from .metal import MetalBackend
from .textures import TextureImage


class CUDATextureImage(TextureImage):
    """An image of a CUDA device."""


class CUDABuffer(GrownBuffer, cuda_backend.CUDABuffer):
    """Memory of a CUDA device."""


class CUDABackend(GrownBackend, cuda_backend.CUDABackend):
    """One CUDA device. Launches take turns kernel by kernel."""

    buffer_class, image_class = CUDABuffer, CUDATextureImage

    def allocate_unpooled(self, nbytes: int) -> int:
        return self._get("cuMemAlloc_v2", RESULT, nbytes)

    def free_unpooled(self, pointer: int) -> None:
        self.synchronize_stream()
        self._call("cuMemFree_v2", pointer)


class HIPTextureImage(TextureImage):
    """An image of a HIP device."""


class HIPBuffer(GrownBuffer, hip_backend.HIPBuffer):
    """Memory of a HIP device, which the backend keeps for others when it is dropped."""

    def __del__(self) -> None:
        if getattr(self, "_pooled", True) and getattr(self, "_owned", False) and getattr(self, "_device_ptr", 0):
            self._backend.recycle(self._device_ptr, self._nbytes)
        else:
            super().__del__()


class HIPBackend(CachingBackend, hip_backend.HIPBackend):
    """One HIP device. Launches take turns kernel by kernel."""

    buffer_class, image_class = HIPBuffer, HIPTextureImage

    def allocate_unpooled(self, nbytes: int) -> int:
        return self._get("hipMalloc", RESULT, nbytes)

    def free_unpooled(self, pointer: int) -> None:
        self.synchronize_stream()
        self._call("hipFree", pointer)


class L0TextureImage(TextureImage):
    """An image of a Level Zero device."""


class L0Buffer(GrownBuffer, level_zero_backend.L0Buffer):
    """Memory of a Level Zero device."""


class LevelZeroBackend(GrownBackend, level_zero_backend.LevelZeroBackend):
    """One Level Zero device. Launches take turns, whatever the kernel, and so does everything that is appended to the list."""

    buffer_class, image_class = L0Buffer, L0TextureImage

    def _open(self) -> None:
        super()._open()
        self._launch_lock = threading.RLock()  # held through a launch, which appends copies

    def launch_lock(self, variant: Any) -> contextlib.AbstractContextManager:
        return self._launch_lock

    def empty_cache(self) -> None:
        with self._launch_lock:  # what is appended meanwhile would have to be waited for, too
            super().empty_cache()


devices._VENDORS.update(cuda=CUDABackend, hip=HIPBackend, level_zero=LevelZeroBackend, metal=MetalBackend)
