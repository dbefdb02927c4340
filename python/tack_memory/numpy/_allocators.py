"""From the name of an allocator to NumPy's handler."""

from __future__ import annotations

import functools
import os
from importlib import import_module
from typing import TYPE_CHECKING

from .._native import _numpy
from .._sizes import parse_size

if TYPE_CHECKING:
    from .._native._numpy import Handler

    Allocator = str | object  # a name, or a handler's capsule
    Path = str | os.PathLike[str]
    Size = int | str

ALLOCATORS = ("default", "aligned", "hugepage", "shared", "mmap")
ALIGNMENT = 64
"""Of "aligned" where nothing is said: a cache line, and the widest vector registers."""
_OWN_ALIGNMENTS = {"default": 16, "hugepage": 16, "shared": 64, "mmap": 64}
"""Of the allocators that have one of their own, which nobody can choose."""

_CAPSULE = type(_numpy.books())  # types.CapsuleType is there from Python 3.13 on


def handler_of(allocator: Allocator, align: Size = ALIGNMENT, path: Path | None = None) -> Handler:
    """The handler that counts over this allocator.

    Raises
    ------
    ValueError
        There is no such allocator; it does not keep this alignment; it takes no path, or needs one; the alignment is no power of two from 1 to 1 GiB; the
        capsule is no handler of NumPy's, or counts already.
    TypeError
        `allocator` is neither a name nor a capsule; `align` is no size; `path` is no path.
    OSError
        There is no memory, or no descriptor, for shared arrays; the file cannot be made, or is somebody else's (FileExistsError), or is in use
        (BlockingIOError).
    """
    alignment = parse_size(align, None, of="an alignment")
    if path is not None and allocator != "mmap":
        raise ValueError('path is for the allocator "mmap", which has its arrays in a file')
    if isinstance(allocator, _CAPSULE):
        return _numpy.wrapped(allocator, alignment)
    if not isinstance(allocator, str):
        raise TypeError(f"an allocator is a name or a handler's capsule, not {type(allocator).__name__}; names: {_names()}")
    if allocator not in ALLOCATORS:
        raise ValueError(f"unknown allocator {allocator!r}; there are {_names()}, and the capsule of a handler of one's own")
    if allocator == "aligned":
        return _aligned(alignment)
    own = _OWN_ALIGNMENTS[allocator]
    if alignment not in (ALIGNMENT, *(1 << bit for bit in range(own.bit_length()))):
        raise ValueError(f'align={align!r} is for the allocator "aligned" and for handlers of one\'s own; {allocator!r} aligns by itself, to {own} bytes')
    if allocator == "mmap":
        if path is None:
            raise ValueError('the allocator "mmap" has its arrays in a file: say which, path=...')
        return _mapped(os.path.abspath(path))
    if allocator == "shared":
        return _shared()
    return _counted() if allocator == "default" else _numpy.hugepage(_wants_huge_pages())


def _names() -> str:
    return ", ".join(f'"{name}"' for name in ALLOCATORS)


@functools.cache
def _counted() -> Handler:
    return _numpy.counted()


@functools.cache
def _aligned(align: int) -> Handler:
    return _numpy.aligned(align)


@functools.cache
def _shared() -> Handler:
    return _numpy.shared(0, _wants_huge_pages())


def _mapped(path: str) -> Handler:
    try:
        return _numpy.mapped(path)
    except FileExistsError as error:
        raise FileExistsError(error.errno, "this file is none of tack_memory.numpy's, and is not empty: remove it, or give another path", path) from None
    except BlockingIOError as error:
        why = "this file is in use: a process has its arrays there, or sees some by handles; each process needs a file of its own"
        raise BlockingIOError(error.errno, why, path) from None


def _wants_huge_pages() -> bool:
    """Whether NumPy itself would ask for huge pages: NUMPY_MADVISE_HUGEPAGE=0 switches that off, and so do old kernels, on which it is slow."""
    for home in ("numpy._core.multiarray", "numpy.core.multiarray"):  # of NumPy 2, of NumPy 1
        try:
            setter = import_module(home)._set_madvise_hugepage
        except (ImportError, AttributeError):
            continue
        before = setter(True)  # the one way to ask that all versions have
        setter(before)
        return bool(before)
    return os.environ.get("NUMPY_MADVISE_HUGEPAGE", "1") != "0"
