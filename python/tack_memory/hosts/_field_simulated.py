"""The CPU backend of the field generation on a simulated device: its arrays lie in memory that can be spilled.

`_data`, in which a buffer keeps its NumPy array, becomes a HostArraySlot, and the instance's `__dict__["_data"]` holds a HostArray: our Buffer, with what
is needed to make a NumPy array over it. Whoever reads `_data` gets one that is valid for as long as it (or any view of it) lives: in a launch because the
launch holds the buffer, elsewhere because the NumPy array does.
"""

from __future__ import annotations

import copyreg
import gc
import sys
import threading
import weakref
from collections import deque
from functools import wraps
from itertools import repeat
from operator import setitem

from .._native import _fast
from . import _ablation, _features
from ._arguments import Size
from ._field_seams import DATA
from ._host_access import read
from ._in_use import UNINSTALL, in_use
from ._within import Within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .._native._fast import Buffer, BufferView


class _Thread(threading.local):
    """What one thread is doing in the host now."""

    def __init__(self) -> None:
        self.making = 0  # calls that run in which the host makes buffers of its own
        self.wrapping: Within[bool] | None = None  # a call of wrap_ptr that runs


class SimulatedBuffers:
    """The CPU backend's buffers, in memory of a simulated device."""

    def __init__(self, buffer: type, device: str) -> None:
        self._buffer = buffer
        self.device = device
        self._thread = _Thread()
        self._ours: weakref.WeakSet[Any] = weakref.WeakSet()

    def of(self, buffer: Any) -> Buffer | BufferView | None:
        """Our Buffer (or view of one) in a host's buffer; None: no memory of ours."""
        kept = buffer.__dict__.get(DATA)
        return kept.buffer if type(kept) is _fast.HostArray else None

    def slot(self) -> _fast.HostArraySlot:
        """The descriptor that takes the place of `_data`."""
        return _fast.HostArraySlot(DATA, self._assigned)

    def settle(self) -> None:
        """After a launch: spill what it has used, down to the budget."""
        _fast.spill_to_budget(self.device)

    def _assigned(self, buffer: Any, values: Any) -> Any:
        """An array is put into a buffer: what to keep in its place. What is no new memory of the host's own stays somebody else's."""
        thread = self._thread
        if not thread.making or not values.nbytes or _fast.forked() or (thread.wrapping is not None and thread.wrapping.here()):
            return values
        return self._take(buffer, values)

    def _take(self, buffer: Any, values: Any) -> _fast.HostArray:
        mine = _fast.allocate(values.nbytes, self.device, zero=False)
        mine.copy_from_host(_bytes(values))
        self._ours.add(buffer)
        return _fast.HostArray(mine, _make, (values.dtype, values.shape))

    def initializer(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def __init__(buffer: Any, *args: Any, **named: Any) -> None:
            thread = self._thread
            depth = thread.making
            try:
                thread.making = depth + 1
                original(buffer, *args, **named)
            finally:
                thread.making = depth

        return __init__

    def allocator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`allocate_field`, which may make a buffer without calling its `__init__`."""
        size = Size(original)

        @wraps(original)
        def allocate_field(*args: Any, **named: Any) -> Any:
            size.of(args, named)  # what is no size is an error of the caller's, before anything is made
            thread = self._thread
            depth = thread.making
            try:
                thread.making = depth + 1
                return original(*args, **named)
            finally:
                thread.making = depth

        return allocate_field

    def wrapper_of_foreign(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`wrap_ptr`: memory of somebody else; inside memory of ours it becomes a view of that, which follows it."""
        wanted = _ablation.wanted("wrap")

        @wraps(original)
        def wrap_ptr(*args: Any, **named: Any) -> Any:
            thread = self._thread
            outer = thread.wrapping
            try:
                thread.wrapping = Within(True)
                buffer = original(*args, **named)
            finally:
                thread.wrapping = outer
            values = buffer.__dict__.get(DATA)
            if wanted and values is not None and values.nbytes and values.flags.c_contiguous and values.flags.writeable and not _fast.forked():
                view = _fast.wrap(values.ctypes.data, values.nbytes, self.device, None)
                if view.base is not None:
                    buffer.__dict__[DATA] = _fast.HostArray(view, _make, (values.dtype, values.shape))
                    self._ours.add(buffer)
            return buffer

        return wrap_ptr

    # ---- host access: on the host copy of what is spilled, with the results and errors of NumPy's own functions

    def reader(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @wraps(original)
        def to_numpy(buffer: Any) -> Any:
            kept = buffer.__dict__.get(DATA)
            if type(kept) is not _fast.HostArray:
                return original(buffer)
            dtype, shape = kept.info
            return read(kept.buffer, shape, dtype)

        return to_numpy

    def writer(self, original: Callable[..., None]) -> Callable[..., None]:
        import numpy

        @wraps(original)
        def from_numpy(buffer: Any, *args: Any, **named: Any) -> None:
            kept = buffer.__dict__.get(DATA)
            if type(kept) is not _fast.HostArray or named or len(args) != 1:
                original(buffer, *args, **named)
                return
            values = args[0]
            dtype, shape = kept.info
            if getattr(values, "dtype", None) != dtype or values.shape != shape or not values.flags.c_contiguous:
                written = numpy.empty(shape, dtype)
                numpy.copyto(written, values)  # casts and broadcasts, or raises, as the host does
                values = written
            kept.buffer.copy_from_host(_bytes(values))

        return from_numpy

    def filler(self, original: Callable[..., None]) -> Callable[..., None]:
        import numpy

        @wraps(original)
        def fill(buffer: Any, *args: Any, **named: Any) -> None:
            kept = buffer.__dict__.get(DATA)
            if type(kept) is not _fast.HostArray or named or len(args) != 1:
                original(buffer, *args, **named)
                return
            one = numpy.empty(1, kept.info[0])
            one.fill(args[0])
            kept.buffer.fill(one.tobytes())

        return fill

    def size(self, original: property) -> property:
        """The property `nbytes`."""

        def nbytes(buffer: Any) -> Any:
            kept = buffer.__dict__.get(DATA)
            return kept.buffer.nbytes if type(kept) is _fast.HostArray else original.__get__(buffer)

        return property(nbytes, doc=original.__doc__)

    # ---- what the host made before us, and giving all of it back

    def take_existing(self, exported: Iterable[object]) -> list[Any]:
        """Move what the host made before onto the device; returns those that others have hold of, and that stay where they are."""
        shared = {id(one) for one in exported}
        existing = [one for one in _features.instances((self._buffer,)) if type(one.__dict__.get(DATA)) not in (type(None), _fast.HostArray)]
        views: dict[int, list[Any]] = {}  # by id of an array: the buffers whose array is a view of it, as `give_back` leaves them; of None: no views
        for buffer in existing:
            views.setdefault(_base_id(buffer), []).append(buffer)
        left: list[Any] = []
        for buffer in views.get(id(None), ()):  # others are over memory of somebody else, or go with the owner
            if not buffer.__dict__[DATA].nbytes:
                continue
            together = (buffer, *views.get(id(buffer.__dict__[DATA]), ()))
            alone = _references(buffer.__dict__, DATA) < _ALONE + len(together) and all(_references(one.__dict__, DATA) <= _ALONE for one in together[1:])
            if alone and not any(id(one) in shared or not one.__dict__[DATA].flags.c_contiguous for one in together):
                self._take_together(*together)
            else:
                left += together
        return left

    def _take_together(self, buffer: Any, *views: Any) -> None:
        """Move a buffer's array onto the device, and with it the buffers whose arrays are views of it."""
        values = buffer.__dict__[DATA]
        kept = self._take(buffer, values)
        placed = [kept]
        for view in views:
            part = view.__dict__[DATA]
            placed.append(_fast.HostArray(kept.buffer.view(part.ctypes.data - values.ctypes.data, part.nbytes), _make, (part.dtype, part.shape)))
            self._ours.add(view)
        deque(map(setitem, [one.__dict__ for one in (buffer, *views)], repeat(DATA), placed), maxlen=0)  # all at one time, as in `give_back`

    def check_nothing_in_use(self) -> None:
        """BufferError where somebody has hold of an array's memory: that memory cannot become another."""
        gc.collect()  # what is garbage is not in use
        for array in self._with_ours().values():
            error = in_use(UNINSTALL, array.buffer)
            if error is not None:
                raise error

    def give_back(self) -> None:
        """Every buffer has an ordinary NumPy array again, and those that shared memory share it."""
        kept = self._with_ours()
        arrays = {id(array): array for array in kept.values()}  # a shallow copy of a buffer has the same one
        sharing: dict[int, list[_fast.HostArray]] = {}  # by id of our Buffer
        for array in arrays.values():
            sharing.setdefault(id(_base(array.buffer)), []).append(array)
        given = {id(array): one for together in sharing.values() for array, one in zip(together, _ordinary(together), strict=True)}
        ordinary = [given[id(array)] for array in kept.values()]
        # All at one time: no signal handler runs in between, which would leave some that share memory with one that is elsewhere now.
        deque(map(setitem, [buffer.__dict__ for buffer in kept], repeat(DATA), ordinary), maxlen=0)
        self._ours.clear()

    def _with_ours(self) -> dict[Any, _fast.HostArray]:
        """The host's buffers that have memory of ours, those that somebody copied included."""
        buffers = {id(one): one for one in (*self._ours, *_fast.instances_of((self._buffer,)))}
        return {buffer: kept for buffer in buffers.values() if type(kept := buffer.__dict__.get(DATA)) is _fast.HostArray}


def _base_id(buffer: Any) -> int:
    """Of the array whose memory a buffer's array is a view of; that of None where it is its own."""
    return id(getattr(buffer.__dict__[DATA], "base", None))


def _references(namespace: dict[str, Any], name: str) -> int:
    return sys.getrefcount(namespace[name])


_ALONE = _references({"only here": object()}, "only here")
"""References to what is in one dict and nowhere else, as `_references` counts them in this version of Python."""


def _base(mine: Buffer | BufferView) -> Buffer:
    base = mine.base if isinstance(mine, _fast.BufferView) else mine
    assert base is not None  # of views, only those of our own memory are kept
    return base


def _ordinary(together: list[_fast.HostArray]) -> list[Any]:
    """NumPy arrays with the contents of those that lie in one Buffer of ours. What nobody shares has memory of its own, as the host makes it: by
    that it is known again at another install. Of several, the one that has the whole owns it, and the others are views of that one."""
    if len(together) == 1:
        dtype, shape = together[0].info
        return [read(together[0].buffer, shape, dtype)]
    base = _base(together[0].buffer)
    whole = next((array for array in together if array.buffer is base), None)
    dtype, shape = ("u1", (base.nbytes,)) if whole is None else whole.info
    owner = read(base, shape, dtype)
    values, found = _bytes(owner), []
    for array in together:
        mine, (dtype, shape) = array.buffer, array.info
        offset = mine.offset if isinstance(mine, _fast.BufferView) else 0
        found.append(owner if array is whole else values[offset : offset + mine.nbytes].view(dtype).reshape(shape))
    return found


def _reduced(array: _fast.HostArray) -> Any:
    """What copy and pickle make of memory of ours: an ordinary array with the same contents, which is as if the host had made it without us."""
    dtype, shape = array.info
    return read(array.buffer, shape, dtype).__reduce__()


copyreg.pickle(_fast.HostArray, _reduced)


def _make(array: _fast.HostArray, owner: Any) -> Any:
    """The NumPy array over memory that `owner` keeps in its place."""
    import numpy

    dtype, shape = array.info
    return numpy.ndarray(shape, dtype, owner)


def _bytes(values: Any) -> Any:
    """A contiguous array as bytes: the buffer protocol has no word for some dtypes."""
    import numpy

    return numpy.ascontiguousarray(values).reshape(-1).view(numpy.uint8)
