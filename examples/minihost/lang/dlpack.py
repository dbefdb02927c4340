"""DLPack: device memory to and from other libraries, without a copy."""

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any

import numpy as np

from ..runtime import devices
from .array import array

CUDA = 2  # kDLCUDA
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_KINDS = {code: kind for kind, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h, with its DLTensor written out."""


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)
_Tensor._fields_ = [
    ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
    ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
    ("byte_offset", c_uint64), ("context", c_void_p), ("deleter", _Deleter),
]  # fmt: skip

_api = ctypes.pythonapi
_Destructor = ctypes.CFUNCTYPE(None, c_void_p)  # gets the dying capsule: as a plain pointer, or ctypes would revive it
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, _Destructor)(("PyCapsule_New", _api))
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_SetName", _api))
_FRESH, _USED = c_char_p(b"dltensor"), c_char_p(b"used_dltensor")

_exported: dict[int, tuple[Any, ...]] = {}  # what consumers still use: keeps tensor, shape and array alive


@_Deleter
def _delete(tensor: int) -> None:
    _exported.pop(tensor, None)


@_Destructor
def _drop(capsule: int) -> None:
    """A capsule that nobody consumed takes its export with it."""
    if _valid(capsule, _FRESH):
        _delete(_pointer(capsule, _FRESH))


def to_dlpack(a: array) -> Any:
    """A DLPack capsule over the array's memory; the array lives until its consumer is done."""
    shape = (c_int64 * max(a.ndim, 1))(*a.shape)
    tensor = _Tensor(
        data=a._buffer._device_ptr, device_type=CUDA, device_id=a._buffer._backend.ordinal, ndim=a.ndim,
        code=_CODES[a.dtype.kind], bits=a.dtype.itemsize * 8, lanes=1, shape=shape, deleter=_delete,
    )  # fmt: skip
    _exported[ctypes.addressof(tensor)] = (tensor, shape, a)
    return _new(ctypes.addressof(tensor), _FRESH, _drop)


class _Consumed:
    """Somebody's tensor, given back when the last array over it is gone."""

    def __init__(self, tensor: _Tensor) -> None:
        self._tensor = tensor

    def __del__(self) -> None:
        if self._tensor.deleter:
            self._tensor.deleter(ctypes.addressof(self._tensor))


def from_dlpack(source: Any) -> array:
    """An array over another library's device memory."""
    capsule = source.__dlpack__()
    tensor = _Tensor.from_address(_pointer(id(capsule), _FRESH))
    if tensor.device_type != CUDA or tensor.lanes != 1 or tensor.strides or tensor.code not in _KINDS:
        raise ValueError("only dense arrays of numbers in CUDA memory")
    dtype = np.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    _rename(id(capsule), _USED)  # from here on the deleter is ours to call
    owner = _Consumed(tensor)
    backend = devices.device(f"cuda:{tensor.device_id}").backend
    return array(backend.wrap_ptr((tensor.data or 0) + tensor.byte_offset, dtype, shape), dtype, shape, owner)
