"""Arrays that MPI has the address of: they stay where they are until it lets go."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Self

from mpi4py import MPI

from .._arrays import _buffers, hold
from .._native import _fast

if TYPE_CHECKING:
    from types import TracebackType

    Handle = MPI.Request | MPI.Win

REASON = "mpi"
"""What reports and errors say of such memory; that of Tack's `allocate_mpi_array` has the same."""

_LOOK = 0.005  # seconds between two looks at the handles that are waited for


class held:
    """Keep arrays on the device while MPI has their address: `with held(a, b) as held: ...`

    All are made resident in one pass on entry, and none is spilled until the block ends. Work that is queued on their devices is waited for, since MPI knows
    nothing of it. A nonblocking call keeps the address for longer: give its request to
    `until`, and the arrays stay where they are until the request is complete, however long after the block that is.

    Parameters
    ----------
    *arrays
        Arrays of a plugged-in framework, Buffers, or views of Buffers.

    Attributes
    ----------
    pointers : list of int
        The addresses, in the order of the arrays (of each buffer, where an array has several). Valid while the block runs, and until what was given to
        `until` is complete.

    Raises
    ------
    DeviceMemoryError
        On entry: they do not all fit. Then none is held.
    TypeError
        An argument is no array of a plugged-in framework.
    RuntimeError
        On entering twice, leaving without having entered, and `until` outside of the block.

    Notes
    -----
    Not collective. May be used from any thread. Reports, `Buffer.holds` and `DeviceMemoryError.unspillable` name the reason, "hold: mpi".

    An array that is exported by DLPack (mpi4py does this by itself for arrays that offer it) stays on the device for the call that it is an argument of. A
    nonblocking call goes on after it has returned, and so needs `held`.
    """

    __slots__ = ("_arrays", "_handles", "_hold", "pointers")

    def __init__(self, *arrays: object) -> None:
        self._arrays = _buffers(arrays)
        self._hold: hold | None = None
        self._handles: list[Handle] = []
        self.pointers: list[int] = []

    def __enter__(self) -> Self:
        """Make all resident and hold them."""
        if self._hold is not None:
            raise RuntimeError("these arrays are held already; make another `held`")
        one = hold(*self._arrays, reason=REASON)
        one.__enter__()
        try:
            self.pointers = [buffer.device_ptr for buffer in self._arrays]
            for device in dict.fromkeys(buffer.device for buffer in self._arrays):
                _fast.synchronize(device)  # MPI knows no stream: what fills, zeroes or restores the arrays must be over when it reads or writes them
        except BaseException:
            one.__exit__(None, None, None)
            raise
        self._hold = one
        return self

    def until(self, *handles: MPI.Request | MPI.Win) -> None:
        """The arrays stay on the device until all these are complete, also after the block.

        Parameters
        ----------
        *handles : mpi4py.MPI.Request or mpi4py.MPI.Win
            A request is complete when it was waited for, or a test said so: in short, when its handle is null. So do not `Free` one that is active: its
            handle is null then, while MPI still has the address. A persistent request and a window have the
            address until they are freed.
        """
        if self._hold is None:
            raise RuntimeError("`until` is for inside the block")
        for handle in handles:
            if not isinstance(handle, (MPI.Request, MPI.Win)):
                raise TypeError(f"not a request and not a window of mpi4py: {type(handle).__name__}")
        self._handles.extend(handles)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        """Let go of all, now or when MPI does."""
        if self._hold is None:
            raise RuntimeError("these arrays were not held")
        one, self._hold = self._hold, None
        handles, self._handles = self._handles, []
        if any(handles):
            _watch(one, handles)
        else:
            one.__exit__(None, None, None)


_lock = threading.Lock()  # guards the two below
_kept: list[tuple[hold, list[Handle]]] = []  # what is held after its block
_watcher: threading.Thread | None = None


def _watch(one: hold, handles: list[Handle]) -> None:
    """A thread looks at the handles: a spill by another thread must find the hold gone soon after the request is complete.

    It calls nothing of MPI. To ask for a request while another thread waits for it is an error, and whether a handle is null can be seen without asking."""
    global _watcher
    with _lock:
        _kept.append((one, handles))
        if _watcher is None:
            _watcher = threading.Thread(target=_look, name="tack_memory.mpi.held", daemon=True)
            _watcher.start()


def _look() -> None:
    global _watcher
    while True:
        time.sleep(_LOOK)
        with _lock:
            over = [(one, handles) for one, handles in _kept if not any(handles)]
            _kept[:] = [kept for kept in _kept if kept not in over]  # not asked twice: a handle may become null in between
            last = not _kept
            if last:
                _watcher = None
        for one, _ in over:
            one.__exit__(None, None, None)
        if last:
            return


def _new_in_child() -> None:
    """The thread is the parent's, and so are the requests."""
    global _lock, _watcher
    _lock, _watcher = threading.Lock(), None
    _kept.clear()


os.register_at_fork(after_in_child=_new_in_child)
