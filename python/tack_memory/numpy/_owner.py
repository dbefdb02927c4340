"""Who allocated an array's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .._native import _numpy

if TYPE_CHECKING:
    import numpy


class Owner(NamedTuple):
    """Whose memory an array is made of."""

    handler: str
    """Name of NumPy's handler: "tack_memory", "tack_memory_aligned", "default_allocator", ..."""
    domain: str
    """Where the memory is counted: "numpy"."""
    bytes: int | None
    """What NumPy asked for: the whole block, of which a view may be a part. None: it is not counted."""
    site: str | None
    """The line that allocated it, "file:line"; None: nobody tracked lines then (`track`), or it was none of Python's."""
    seq: int | None
    """Its number among all that was counted, in order. None: it is not counted."""


def owner(array: numpy.ndarray[Any, Any]) -> Owner | None:
    """Return who allocated the memory that an array, or the array under a view, is made of.

    Parameters
    ----------
    array : numpy.ndarray
        An array or a view.

    Returns
    -------
    Owner or None
        None where the memory is none of NumPy's: a memory map, another object's buffer, an array whose memory was set by somebody else's code.

    Raises
    ------
    TypeError
        `array` is no array.

    Notes
    -----
    May be called from any thread.
    """
    found = _numpy.owner(array)
    if found is None:
        return None
    handler, nbytes, sequence, site = found
    line = _numpy.site_name(site)
    return Owner(handler, "numpy", nbytes, None if line is None else f"{line[0]}:{line[1]}", sequence)
