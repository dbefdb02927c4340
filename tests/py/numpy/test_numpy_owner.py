"""owner(array): who allocated the memory that an array is made of."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy
import pytest
from numpy_support import ALLOCATORS

import tack_memory.numpy as tn
from tack_memory._native import _numpy


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


def copied(capsule: Any, context: int | None = None) -> tuple[Any, Any]:
    """A handler that somebody made of another one, as one does to change a function or its name; and its memory, which the capsule needs."""
    point, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    point.argtypes, point.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
    memory = ctypes.create_string_buffer(ctypes.string_at(point(capsule, NAME), HANDLER) + b"\xee" * 200)  # what lies behind it is not ours
    ctypes.memmove(memory, b"a_copy\0", 7)
    if context is not None:
        ctypes.c_void_p.from_buffer(memory, 128).value = context
    return new(ctypes.addressof(memory), NAME, None), memory


NAME = b"mem_handler"
HANDLER = 128 + 5 * 8  # NEP 49's PyDataMem_Handler: name, version, context and four functions


@pytest.mark.parametrize("arguments", ALLOCATORS.values(), ids=ALLOCATORS.keys())
def test_a_copy_of_our_handler(arguments: dict[str, Any]) -> None:
    """It has our functions, and the rest of ours is not behind it. The blocks are ours all the same."""
    with tn.use(**arguments):
        original = _numpy.current_handler()
    copy, memory = copied(original)
    tokens: list[object] = []
    _numpy.enter_context(copy, tokens)
    array = numpy.zeros(1000)
    _numpy.leave_context(tokens, ())
    owner = tn.owner(array)
    assert owner is not None and owner.seq is not None
    assert (owner.handler, owner.bytes) == ("a_copy", 8000)
    with pytest.raises(ValueError, match="counts already"):
        tn.use(copy)
    if arguments.get("allocator") in ("shared", "mmap"):
        with tn.share(array) as handle:
            array[0] = 3
            assert handle.attach()[0] == 3
    else:
        with pytest.raises(ValueError, match="is of a_copy"):
            tn.share(array)
    del array
    assert memory[:6] == b"a_copy"


@pytest.mark.parametrize("context", [0, 8])
def test_a_copy_with_another_context(context: int) -> None:
    """That of "default" works without ours: whose blocks they are is not known then, and nothing is read to find out."""
    with tn.use():
        copy, memory = copied(_numpy.current_handler(), context)
    tokens: list[object] = []
    _numpy.enter_context(copy, tokens)
    array = numpy.zeros(1000)
    _numpy.leave_context(tokens, ())
    assert tn.owner(array) == tn.Owner("a_copy", "numpy", None, None, None)
    del array
    assert memory[:6] == b"a_copy"


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
