"""Arrays that other processes see, without a copy."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from typing import TYPE_CHECKING, Any

import numpy
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from .._native import _numpy

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    Array = numpy.ndarray[Any, Any]

_LENGTH = struct.Struct("!I")
_LONGEST = 2**20
"""Of what `receive` believes to be a handle: structured types can have many fields."""


class Handle:
    """An array, for other processes: `share` makes it, `attach` makes an array of it, in this process or another.

    It can be sent to another process
    - by `multiprocessing`, with any start method: as an argument of a Process or of a Pool's function, through a Queue or a Pipe;
    - to a process that is not related, by `send` and `receive`, over a Unix socket.

    The array's memory is used for nothing else until the array itself is gone, and this handle, every copy of it that was sent, and every array that was
    attached are gone, too, in all processes; a process that ends, by whatever cause, lets go of its own. The memory outlives the process that made it.

    A handle has one file descriptor, until `close`, or until it is collected. So has each array that was attached: it does not need the handle any more.

    A handle is for processes that are trusted, and from such: whoever has it can map the whole arena, all arrays of the allocator "shared" that its
    maker has; to write there, too, unless it is readonly. (That guards against mistakes, and against other users: a process of the same user, or of
    root, can open the descriptor anew for writing.) Its maker's own figures are not there: nobody can damage those.

    In a forked child, arrays that it has inherited are the same memory as its parent's, without any handle: what one writes, the other sees. What the
    child makes is its own; and the parent does not use the memory of those arrays again while the child lives.

    Descriptors are what all of this is known by. A process that closes those that it did not open (`os.closerange`, or what makes a daemon) lets go of the
    arrays that it has attached, and of those that it inherited; they may be used again under it. In a process whose own arrays' file was closed so, those
    stay as they are, and cannot be shared any more; new ones can.
    """

    __slots__ = ("__weakref__", "_block", "_fd", "dtype", "offset", "readonly", "shape", "strides")

    _block: tuple[int, int]  # where it begins in the file, and its bytes
    _fd: int  # holds the block (arena.h); -1: closed
    dtype: numpy.dtype[Any]
    offset: int
    """Where in the file the first item is: for `numpy.memmap` and the file of the allocator "mmap"."""
    readonly: bool
    """Whether arrays attached through it can only be read."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __init__(self) -> None:
        raise TypeError("handles are made by tack_memory.numpy.share(array)")

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def fileno(self) -> int:
        """Return the descriptor, which stays the handle's.

        Raises
        ------
        ValueError
            The handle is closed.
        """
        if self._fd < 0:
            raise ValueError("this handle is closed; arrays that were attached through it remain")
        return self._fd

    def attach(self, readonly: bool = False) -> Array:
        """Return an array over the same memory: what one process writes, the others see.

        Parameters
        ----------
        readonly : bool, optional
            Whether it can only be read; one of a readonly handle always is.

        Raises
        ------
        ValueError
            The handle is closed, or does not fit the file behind it.
        OSError
            No descriptor or no address space is left.

        Notes
        -----
        May be called from any thread, any number of times, but not while another thread closes the handle. The array has the shape and the strides of
        the one that was shared. Its memory is not counted in this process.
        """
        return _numpy.attach(self.fileno(), *self._block, self.offset, self.dtype, self.shape, self.strides, not (readonly or self.readonly))

    def close(self) -> None:
        """Let go of the memory. Arrays that are attached remain, and so do copies of the handle."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def send(self, connection: socket.socket) -> None:
        """Send it to whoever calls `receive` at the other end of a connected Unix stream socket, which has one more copy of it then.

        Raises
        ------
        ValueError
            The handle is closed; it is no such socket; the array's type has no name that another process would know it by (fields that overlap, types
            of other packages).
        OSError
            The socket's error.

        Warns
        -----
        UserWarning
            The array's type has metadata, which are not sent; NumPy warns in its own words, of its files.
        """
        _check_socket(connection)
        text = json.dumps(self._fields() | {"dtype": _description(self.dtype)}).encode()
        message = _LENGTH.pack(len(text)) + text
        sent = socket.send_fds(connection, [message], [self.fileno()])
        connection.sendall(message[sent:])

    @classmethod
    def receive(cls, connection: socket.socket) -> Handle:
        """Return the handle that `send` has sent.

        Raises
        ------
        ValueError
            It is no such socket, or what came is no handle.
        EOFError
            The other end was closed.
        OSError
            The socket's error.
        """
        _check_socket(connection)
        begin, fds, _, _ = socket.recv_fds(connection, _LENGTH.size, 1, socket.MSG_CMSG_CLOEXEC)
        try:
            (length,) = _LENGTH.unpack(begin + _exactly(connection, _LENGTH.size - len(begin), begin))
            if len(fds) != 1 or length > _LONGEST:
                raise ValueError("what came over the socket is no handle of tack_memory.numpy.share")
            fields = json.loads(_exactly(connection, length, begin))
            try:
                handle = cls.__new__(cls)._set(
                    descr_to_dtype(_tuples(fields["dtype"])),
                    tuple(fields["block"]),
                    fields["offset"],
                    tuple(fields["shape"]),
                    tuple(fields["strides"]),
                    fields["readonly"],
                )
                handle._fd = fds.pop()  # from here on it is the handle's to close
            except (AttributeError, KeyError, TypeError) as error:
                raise ValueError(f"what came over the socket is no handle of tack_memory.numpy.share: {error}") from error
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return handle

    def _set(self, kind: numpy.dtype[Any], block: tuple[int, int], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], readonly: bool) -> Handle:
        self._block, self.offset, self.dtype, self.shape, self.strides, self.readonly = block, offset, kind, shape, strides, readonly
        _let_multiprocessing_send()
        return self

    def _fields(self) -> dict[str, Any]:
        return {"block": self._block, "offset": self.offset, "shape": self.shape, "strides": self.strides, "readonly": self.readonly}

    def __enter__(self) -> Self:
        self.fileno()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a handle is pickled only on its way to another process of multiprocessing (Process, Pool, Queue, Pipe); "
            "for a process that is not related there are Handle.send and Handle.receive"
        )

    def __repr__(self) -> str:
        state = "closed, " if self.closed else "readonly, " if self.readonly else ""
        return f"<tack_memory.numpy.Handle: {state}{self.dtype}, shape {self.shape}>"


def share(array: Array, *, readonly: bool = False) -> Handle:
    """Return a handle by which other processes see an array: no copy is made.

    Parameters
    ----------
    array : numpy.ndarray
        An array, or a view with whatever strides, whose memory came from the allocator "shared" (or "mmap").
    readonly : bool, optional
        Whether the others can only read. A view that is not writeable is always shared so.

    Raises
    ------
    ValueError
        The array's memory came from elsewhere (a copy of it inside `with tack_memory.numpy.use("shared")` can be shared); it holds Python objects; or
        it was made by the parent of this forked process; or it is masked: the others would see what the mask hides.
    TypeError
        `array` is no array.
    OSError
        No file descriptor is left; /proc, which this needs, is not mounted; or the program has closed the file of its shared arrays, or has become
        another user's since.

    Notes
    -----
    May be called from any thread. `array.resize` may move an array: what was shared before shows the old memory then, as it was.
    Arrays of a subclass of numpy.ndarray are shared as plain arrays.
    """
    if isinstance(array, numpy.ndarray) and array.dtype.hasobject:
        raise ValueError(f"an array of {array.dtype} holds references to objects of this process, which mean nothing in another one")
    if type(array) is not numpy.ndarray and isinstance(array, numpy.ma.MaskedArray):
        raise ValueError("a masked array is two arrays, one of which says what of the other counts: share array.data and numpy.ma.getmaskarray(array)")
    readonly = readonly or (isinstance(array, numpy.ndarray) and not array.flags.writeable)
    handle = Handle.__new__(Handle)
    start, length, first = _numpy.export(array, readonly, handle)
    return handle._set(array.dtype, (start, length), first, array.shape, array.strides, readonly)


def attach(handle: Handle, *, readonly: bool = False) -> Array:
    """Return an array over the memory that a handle stands for: `handle.attach(readonly)`.

    Raises
    ------
    TypeError
        It is no handle.
    ValueError, OSError
        As `Handle.attach`.
    """
    if not isinstance(handle, Handle):
        raise TypeError(f"attach() takes a handle of tack_memory.numpy.share, not {type(handle).__name__}")
    return handle.attach(readonly)


def _let_multiprocessing_send() -> None:
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.register(Handle, _for_multiprocessing)


def _for_multiprocessing(handle: Handle) -> tuple[Callable[..., Handle], tuple[Any, ...]]:
    from multiprocessing.reduction import DupFd

    return _from_multiprocessing, (DupFd(handle.fileno()), handle.dtype, handle._fields())


def _from_multiprocessing(descriptor: Any, kind: numpy.dtype[Any], fields: dict[str, Any]) -> Handle:
    fd = descriptor.detach()
    os.set_inheritable(fd, False)
    handle = Handle.__new__(Handle)
    handle._fd = fd
    return handle._set(kind, **fields)


def _check_socket(connection: socket.socket) -> None:
    if connection.family != socket.AF_UNIX or connection.type != socket.SOCK_STREAM or not stat.S_ISSOCK(os.fstat(connection.fileno()).st_mode):
        raise ValueError("a handle goes over a Unix stream socket (socket.AF_UNIX, socket.SOCK_STREAM): it has a file descriptor in it")


def _exactly(connection: socket.socket, length: int, begun: bytes) -> bytes:
    read = bytearray()
    while len(read) < length:
        more = connection.recv(length - len(read))
        if not more:
            raise EOFError("the other end of the socket was closed" + (" within a handle" if begun or read else ""))
        read += more
    return bytes(read)


def _description(kind: numpy.dtype[Any]) -> Any:
    try:
        description = dtype_to_descr(kind)
        told = descr_to_dtype(description) == kind
    except ValueError:  # NumPy has none for fields that overlap
        told = False
    if not told:
        raise ValueError(f"the type {kind} cannot be told to a process that is not related; share a view with a type of NumPy's own, and view it there")
    return description


def _tuples(descr: Any) -> Any:
    """JSON has no tuples, and NumPy's descriptions of structured types consist of them."""
    if not isinstance(descr, list):
        return descr
    return [tuple(_tuples(part) if place == 1 else tuple(part) if isinstance(part, list) else part for place, part in enumerate(field)) for field in descr]
