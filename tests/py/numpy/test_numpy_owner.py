"""owner(array): who allocated the memory that an array is made of."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy
import pytest

import tack_memory.numpy as tn


def test_arrays_and_their_views_have_one_owner() -> None:
    with tn.use():
        first, array = numpy.empty(3), numpy.zeros((10, 20))
    owner = tn.owner(array)
    assert owner == tn.Owner("tack_memory", "numpy", 1600, None, owner.seq if owner else None)
    for view in (array[3:], array.T, array.reshape(200)[::7][1:], array[..., None], array.view("u1"), array.diagonal()):
        assert tn.owner(view) == owner
    copy = array.copy()
    assert tn.owner(copy).handler == "default_allocator"  # type: ignore[union-attr]
    assert tn.owner(first).seq + 1 == owner.seq  # type: ignore[union-attr,operator]


def test_a_view_is_found_through_what_is_not_an_array() -> None:
    """A buffer in between hides the array: nobody knows what it is made of."""
    with tn.use():
        array = numpy.zeros(100)
    assert tn.owner(numpy.asarray(memoryview(array))) is None


def test_memory_of_others_has_no_owner(tmp_path: Any) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4096))
    mapped = numpy.memmap(file, "u1", "r")
    with tn.use():
        found = [numpy.frombuffer(bytes(104)), mapped, mapped[10:], numpy.frombuffer(mmap.mmap(-1, 4096), "u1"), numpy.ctypeslib.as_array((ctypes.c_int * 4)())]
    assert [tn.owner(array) for array in found] == [None] * len(found)


def test_an_uncounted_array_is_numpys() -> None:
    assert tn.owner(numpy.zeros(10)) == tn.Owner("default_allocator", "numpy", None, None, None)


def test_a_resized_array_is_a_newer_one() -> None:
    with tn.use():
        array = numpy.zeros(10)
    before = tn.owner(array)
    array.resize(20, refcheck=False)
    after = tn.owner(array)
    assert before is not None and after is not None
    assert (before.bytes, after.bytes, after.seq) == (80, 160, before.seq + 1 if before.seq else None)


@pytest.mark.parametrize("wrong", [None, 3, [1, 2], b"bytes", numpy.float64(3)])
def test_what_is_no_array(wrong: Any) -> None:
    with pytest.raises(TypeError, match="takes an array"):
        tn.owner(wrong)


class Fields(ctypes.Structure):
    """NumPy's PyArrayObject_fields as far as its flags: the layout is part of its ABI."""

    _fields_ = [
        ("count", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("dimensions", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("kind", ctypes.c_void_p),
        ("flags", ctypes.c_int),
    ]


def test_memory_that_an_extension_gave_to_an_array() -> None:
    """The old way: malloc, PyArray_SimpleNewFromData, and the flag OWNDATA. There is no handler; NumPy frees it by free()."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    tn.install()
    before = tn.statistics()
    source = (ctypes.c_char * 1000).from_address(libc.malloc(1000))
    array = numpy.frombuffer(source, "u1")
    fields = Fields.from_address(id(array))
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(array.base))
    fields.base = None
    fields.flags |= 0x4
    assert array.flags.owndata
    assert tn.owner(array) is None
    assert tn.owner(array[10:]) is None
    with pytest.raises(RuntimeError, match="no memory handler"):
        array.resize(2000, refcheck=False)
    del array
    after = tn.statistics()
    assert (after.in_use, after.frees, after.unknown_frees) == (before.in_use, before.frees, before.unknown_frees)
    tn.uninstall()
