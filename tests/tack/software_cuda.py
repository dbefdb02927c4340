"""A stand-in for the Python package cuda.bindings over the software CUDA driver: what Tack's CUDA backend calls for its memory. No kernels."""

from __future__ import annotations

import ctypes
import enum
import sys
from types import ModuleType, SimpleNamespace
from typing import Any


class CUresult(enum.IntEnum):
    """The codes that memory can lead to."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2


class CUdeviceptr:
    """A pointer, as the package gives it."""

    def __init__(self, value: int = 0) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value


def install(library: str) -> None:
    """Make `from cuda.bindings import driver, nvrtc` find this."""
    loaded = ctypes.CDLL(library)

    def call(name: str, *arguments: Any) -> tuple[CUresult]:
        return (CUresult(getattr(loaded, name)(*(ctypes.c_void_p(int(one)) if isinstance(one, (int, CUdeviceptr)) else one for one in arguments))),)

    def with_result(name: str, *arguments: Any) -> tuple[CUresult, int]:
        result = ctypes.c_void_p()
        (code,) = call(name, ctypes.byref(result), *arguments)
        return code, result.value or 0

    def allocate(nbytes: int) -> tuple[CUresult, CUdeviceptr]:
        code, pointer = with_result("cuMemAlloc_v2", nbytes)
        return code, CUdeviceptr(pointer)

    def new_context(*_: Any) -> tuple[CUresult, int]:
        code, context = with_result("cuDevicePrimaryCtxRetain", ctypes.c_int(0))
        call("cuCtxSetCurrent", context)
        return code, context

    def address_of(array: Any) -> int:
        return int(array.ctypes.data)

    driver = ModuleType("cuda.bindings.driver")
    vars(driver).update(
        CUresult=CUresult, CUdeviceptr=CUdeviceptr,
        cuInit=lambda flags: call("cuInit", flags),
        cuDeviceGet=lambda ordinal: (CUresult.CUDA_SUCCESS, ordinal),
        cuCtxGetCurrent=lambda: with_result("cuCtxGetCurrent"),
        cuCtxCreate=new_context,
        cuCtxDestroy=lambda context: (CUresult.CUDA_SUCCESS,),
        cuCtxSynchronize=lambda: call("cuCtxSynchronize"),
        cuMemAlloc=allocate,
        cuMemFree=lambda pointer: call("cuMemFree_v2", pointer),
        cuMemsetD8=lambda pointer, value, nbytes: call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(value), nbytes),
        cuMemcpyHtoD=lambda pointer, array, nbytes: call("cuMemcpyHtoD_v2", pointer, address_of(array), nbytes),
        cuMemcpyDtoH=lambda array, pointer, nbytes: call("cuMemcpyDtoH_v2", address_of(array), pointer, nbytes),
    )  # fmt: skip
    nvrtc = SimpleNamespace(nvrtcResult=type("nvrtcResult", (), {}))
    bindings = ModuleType("cuda.bindings")
    vars(bindings).update(driver=driver, nvrtc=nvrtc)
    package = ModuleType("cuda")
    package.bindings = bindings  # type: ignore[attr-defined]
    sys.modules.update({"cuda": package, "cuda.bindings": bindings, "cuda.bindings.driver": driver})
