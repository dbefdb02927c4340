"""DLPack: what a consumer gets, and that the hold lives exactly as long as the last of those that have the memory."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from support import KIB, SoftDriver, contents, filled, pattern

import tack_memory

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # calls without the GIL
DeleterWithGil = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", Tensor),
    )  # fmt: skip


NEVER: Any = ctypes.c_char_p(b"used_dltensor")  # a capsule does not copy its name


def take(capsule: object) -> Managed:
    """What a consumer does: takes the tensor out, so that the capsule does not end it."""
    managed = Managed.from_address(_get(capsule, b"dltensor"))
    _rename(capsule, NEVER)
    return managed


def test_both_kinds_of_capsule_describe_the_memory(device: str) -> None:
    buffer = filled(1000, device)
    exported = buffer.view(8, 100).export("dlpack")
    plain = take(exported.__dlpack__(stream=-1))
    capsule = exported.__dlpack__(stream=-1, max_version=(1, 1))
    versioned = Versioned.from_address(_get(capsule, b"dltensor_versioned"))
    assert (versioned.major, versioned.flags) == (1, 0)
    for tensor in (plain.tensor, versioned.tensor):
        assert tensor.data == exported.device_ptr == buffer.device_ptr + 8
        assert (tensor.device_type, tensor.device_id) == exported.__dlpack_device__()
        assert (tensor.ndim, tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset) == (1, 1, 8, 1, 0)
        assert (tensor.shape[0], tensor.strides[0]) == (100, 1)
    assert "dltensor" in repr(exported.__dlpack__(stream=-1, max_version=(0, 8)))
    DeleterWithGil(plain.deleter)(ctypes.addressof(plain))


@pytest.mark.parametrize("how", ["with the GIL", "without the GIL", "on another thread"])
def test_the_hold_ends_with_the_last_of_all_in_any_order(device: str, how: str) -> None:
    buffer = filled(KIB, device)
    exported = buffer.export("dlpack")
    managed = [take(exported.__dlpack__(stream=-1)) for _ in range(2)]
    unused = exported.__dlpack__(stream=-1)
    exported.close()
    with pytest.raises(ValueError, match="closed"):
        exported.device_ptr  # noqa: B018
    with pytest.raises(ValueError, match="closed"):
        exported.__dlpack__()
    del unused
    for left, one in zip((1, 0), managed, strict=True):
        assert buffer.holds == {"export: dlpack": 1} and buffer.spill() == 0
        kind = DeleterWithGil if how == "with the GIL" else Deleter
        if how == "on another thread":
            thread = threading.Thread(target=kind(one.deleter), args=(ctypes.addressof(one),))
            thread.start()
            thread.join()
        else:
            kind(one.deleter)(ctypes.addressof(one))
        assert bool(buffer.holds) == bool(left)
    assert buffer.spill() == KIB and contents(buffer) == pattern(KIB)


def test_a_tensor_keeps_a_dropped_buffer_alive(device: str) -> None:
    start = tack_memory._native._fast.counters(device)[0]
    managed = take(filled(KIB, device).export("x").__dlpack__(stream=-1))
    assert tack_memory._native._fast.counters(device)[0] == start + KIB
    Deleter(managed.deleter)(ctypes.addressof(managed))
    assert tack_memory._native._fast.counters(device)[0] == start


def test_the_host_reads_a_simulated_device_in_place(soft: SoftDriver) -> None:
    soft.set("delay_us", 20_000)
    buffer = tack_memory.allocate(KIB, "sim:0")
    buffer.fill(9)
    array = np.from_dlpack(buffer.export("dlpack"))  # waits for the fill
    assert array.dtype == np.uint8 and array.tolist() == [9] * KIB
    assert array.ctypes.data == buffer.device_ptr
    copied = np.from_dlpack(buffer.export("dlpack"), copy=True)
    assert copied.ctypes.data != buffer.device_ptr and copied.tolist() == [9] * KIB
    del array
    assert list(buffer.holds) == [] and buffer.spill() == KIB
    assert copied[0] == 9, "a copy is not moved with its source"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"stream": 1}, ValueError),  # memory that the host reads has no streams
        ({"stream": "x"}, TypeError),
        ({"max_version": 1}, TypeError),
        ({"dl_device": (2, 0)}, BufferError),
        ({"dl_device": (2, 0), "copy": True}, BufferError),
        ({"dl_device": (1, 7), "copy": False}, BufferError),
        ({"nonsense": 1}, TypeError),
    ],
)
def test_what_cannot_be_given_is_refused_and_holds_nothing(arguments: dict[str, Any], error: type[Exception]) -> None:
    buffer = filled(KIB, "sim:0")
    exported = buffer.export("dlpack")
    with pytest.raises(error):
        exported.__dlpack__(**arguments)
    exported.close()
    assert buffer.holds == {}
