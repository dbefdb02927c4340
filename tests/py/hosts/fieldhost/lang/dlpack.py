"""DLPack: memory for other libraries, and theirs for us, without a copy. Only the plain capsule (`versioned` is taken and not used)."""

import ctypes
import itertools
from typing import Any

import numpy as np

from .types import of_dtype

_CODES = {"i": 0, "u": 1, "f": 2}
_HOST = 1  # kDLCPU: the software drivers' memory can be read by the host, too
_pointer = ctypes.c_void_p

_prevent_gc: dict[int, tuple[Any, ...]] = {}  # what consumers still use
_keys = itertools.count(1)

_new = ctypes.PYFUNCTYPE(ctypes.py_object, _pointer, ctypes.c_char_p, _pointer)(("PyCapsule_New", ctypes.pythonapi))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, _pointer, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_get = ctypes.PYFUNCTYPE(_pointer, _pointer, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", _pointer), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", _pointer), ("offset", ctypes.c_uint64),
        ("key", _pointer), ("deleter", ctypes.CFUNCTYPE(None, _pointer)),
    ]  # fmt: skip


@ctypes.CFUNCTYPE(None, _pointer)
def _delete(tensor: int) -> None:
    _prevent_gc.pop(_Tensor.from_address(tensor).key, None)


@ctypes.CFUNCTYPE(None, _pointer)
def _drop(capsule: int) -> None:
    if _is_valid(capsule, b"dltensor"):
        _delete(_get(capsule, b"dltensor"))


def _address_of(field: Any) -> int:
    """By the name of the buffer's class."""
    buffer = field._buffer
    match type(buffer).__name__:
        case "NumpyBuffer":
            return buffer._data.ctypes.data
        case "CUDABuffer" | "HIPBuffer":
            return int(buffer._device_ptr)
        case "L0Buffer":
            return buffer._device_ptr.value
    raise RuntimeError(f"no DLPack for {type(buffer).__name__}")


def field_to_dlpack(field: Any, versioned: bool = False) -> Any:
    dtype, key = field.dtype.numpy_dtype, next(_keys)
    shape = (ctypes.c_int64 * max(len(field.shape), 1))(*field.shape)
    tensor = _Tensor(
        data=_address_of(field), device=(_HOST, 0), ndim=len(field.shape), code=_CODES[dtype.kind], bits=8 * dtype.itemsize, lanes=1,
        shape=shape, key=key, deleter=_delete,
    )  # fmt: skip
    _prevent_gc[key] = (field, tensor, shape)
    return _new(ctypes.addressof(tensor), b"dltensor", ctypes.cast(_drop, _pointer))


def dlpack_device(field: Any) -> tuple[int, int]:
    _address_of(field)
    return _HOST, 0


def dlpack_to_field(source: Any) -> Any:
    """A field over somebody else's memory; it keeps that alive."""
    from .field import field_from_ptr

    values = np.from_dlpack(source)
    field = field_from_ptr(values.ctypes.data, of_dtype(values.dtype), values.shape)
    field._dlpack_hold = values
    return field
