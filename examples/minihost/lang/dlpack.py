"""DLPack: an array's memory for other libraries, without a copy."""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # NumPy's kind -> type code

_Deleter = _Destructor = ctypes.CFUNCTYPE(None, c_void_p)  # a dying capsule is a plain pointer here: ctypes would revive an object
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, _Destructor)(("PyCapsule_New", ctypes.pythonapi))
_valid = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_FRESH = c_char_p(b"dltensor")  # a consumer gives the capsule another name, and calls the deleter when it is done

_exported: dict[int, tuple[Any, ...]] = {}  # what consumers still use: keeps tensor, shape and array alive


class _Tensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h, with its DLTensor written out."""

    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
        ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64), ("context", c_void_p), ("deleter", _Deleter),
    ]  # fmt: skip


@_Deleter
def _delete(tensor: int) -> None:
    _exported.pop(tensor, None)


@_Destructor
def _drop(capsule: int) -> None:
    """A capsule that nobody consumed takes its export with it."""
    if _valid(capsule, _FRESH):
        _delete(_pointer(capsule, _FRESH))


def to_dlpack(a: Any) -> Any:
    """A DLPack capsule over the array's memory; the array lives until its consumer is done."""
    shape = (c_int64 * max(a.ndim, 1))(*a.shape)
    device_type, device_id = a.__dlpack_device__()
    tensor = _Tensor(
        data=a._buffer._device_ptr, device_type=device_type, device_id=device_id, ndim=a.ndim,
        code=_CODES[a.dtype.kind], bits=a.dtype.itemsize * 8, lanes=1, shape=shape, deleter=_delete,
    )  # fmt: skip
    _exported[ctypes.addressof(tensor)] = (tensor, shape, a)
    return _new(ctypes.addressof(tensor), _FRESH, _drop)
