"""The files that arrays of the allocators "shared" and "mmap" are in."""

from __future__ import annotations

from typing import NamedTuple

from .._native import _numpy


class Arena(NamedTuple):
    """A file with arrays, in one moment."""

    path: str | None
    """None: the memory file of "shared", which has no name."""
    own: bool
    """False: the parent's, of which this forked process has inherited arrays. What it makes itself is in an arena of its own."""
    live: int
    """Arrays alive in it (in one that is inherited: at the fork)."""
    live_bytes: int
    """Bytes of the file that are theirs; memory, or disk, they have where they were written."""
    kept: int
    """Bytes of memory, or of disk, that large arrays have left for the next ones: at most some 256 MiB, then it is given back."""
    waiting_bytes: int
    """Bytes of the file whose arrays are gone, but not every handle, attached array or forked process that can see them."""
    cut: int
    """Bytes of the file that have been used so far."""


def arenas() -> tuple[Arena, ...]:
    """Return the arenas of this process.

    Notes
    -----
    May be called from any thread, and in a forked child.
    """
    return tuple(Arena(*one) for one in _numpy.arenas())
