"""Arrays by themselves: most users own no Buffer, but arrays of a framework that is plugged in. A Buffer is accepted everywhere, too."""

from __future__ import annotations

from ._hosts import registered
from ._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import overload

    from ._native._fast import Buffer, BufferView, Hold, Labelled


class hold:
    """Keep arrays on the device while a block runs: `with hold(a, b, reason="texture"): ...`

    All of them are made resident in one pass on entry, and none is spilled until the block ends. To keep arrays from ever being
    spilled, leave a hold open (`contextlib.ExitStack`). Holds are counted, and reports show them with their reason.

    Parameters
    ----------
    *arrays
        Arrays of a plugged-in framework, Buffers, or views of Buffers.
    reason : str
        Why; shown in reports and errors.

    Raises
    ------
    DeviceMemoryError
        On entry: they do not all fit. Then none is held.
    TypeError
        An argument is no array of a plugged-in framework.
    RuntimeError
        On entering twice, and on leaving without having entered.

    Notes
    -----
    May be used from any thread.
    """

    __slots__ = ("_buffers", "_holds", "_reason")

    def __init__(self, *arrays: object, reason: str = "hold") -> None:
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a string, not {type(reason).__name__}")
        self._buffers = _buffers(arrays)
        self._reason = reason
        self._holds: list[Hold] | None = None

    def __enter__(self) -> None:
        """Make all resident and hold them."""
        if self._holds is not None:
            raise RuntimeError("this hold is already entered; make another one")
        holds: list[Hold] = []
        try:
            for device in dict.fromkeys(buffer.device for buffer in self._buffers):
                _hold_all([buffer for buffer in self._buffers if buffer.device == device], self._reason, holds)
        except BaseException:
            _release(holds)
            raise
        self._holds = holds

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        """Let go of all."""
        if self._holds is None:
            raise RuntimeError("this hold was not entered")
        holds, self._holds = self._holds, None
        _release(holds)


def spill(*arrays: object) -> int:
    """Move arrays to host memory, and return the bytes that this freed on their devices.

    What is held, cannot move, or is spilled already counts 0. The arrays stay valid: the next use on the device brings each one back.

    Parameters
    ----------
    *arrays
        Arrays of a plugged-in framework, Buffers, or views of Buffers.

    Raises
    ------
    DeviceMemoryError
        Host memory ran out (reason "host"); that array stays on the device, those before it are spilled.
    TypeError
        An argument is no array of a plugged-in framework and no Buffer.

    Notes
    -----
    May be called from any thread. Work that was queued before and uses the arrays is waited for.
    """
    return sum(freed for device, buffers in _by_device(arrays) for freed in _moved("spill", device, buffers))


def restore(*arrays: object) -> None:
    """Bring arrays back to their devices ahead of use, in the order given; this may spill others.

    Parameters
    ----------
    *arrays
        Arrays of a plugged-in framework, Buffers, or views of Buffers.

    Raises
    ------
    DeviceMemoryError
        One does not fit. Nothing is lost: it stays in host memory.
    TypeError
        An argument is no array of a plugged-in framework and no Buffer.

    Notes
    -----
    May be called from any thread. An array that is restored is not held: use `hold` for that.
    """
    for device, buffers in _by_device(arrays):
        for _ in _moved("restore", device, buffers):
            pass


if TYPE_CHECKING:

    @overload
    def label(name: str | None, first: object, /, *arrays: object) -> None: ...
    @overload
    def label(name: str | None, /) -> Labelled: ...


def label(name: str | None, /, *arrays: object) -> Labelled | None:
    """Name arrays for reports and errors: `label("mesh", a, b)`, or `with label("temporary"): ...` for what is allocated inside.

    Parameters
    ----------
    name : str or None
        The label; None takes it away.
    *arrays
        Arrays of a plugged-in framework, Buffers, or views of Buffers (their base is labelled). Without any, the result is a context
        manager, which labels what is allocated inside while the block runs; inner blocks win.

    Raises
    ------
    TypeError
        The name is no string; an argument is no array.

    Notes
    -----
    May be called from any thread. A block is of the context that it is entered in (`contextvars`): it labels what its own thread allocates, or its
    own asyncio task, and what they give their context to (`asyncio.to_thread`, tasks that are started inside). Blocks that overlap may be left in
    any order. A generator has no context of its own: while it is suspended inside a block, its caller is inside, too.

    Different texts of labels, origins and reasons are kept as long as the process lives. After 2**20 of them, or 64 MiB of text, new ones are
    "(other)" in reports and errors.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"a label must be a string or None, not {type(name).__name__}")
    if not arrays:
        return _fast.labelled(name)
    for buffer in _buffers(arrays):
        buffer.label = name
    return None


def _by_device(arrays: tuple[object, ...]) -> list[tuple[str, list[Buffer | BufferView]]]:
    buffers = _buffers(arrays)
    return [(device, [buffer for buffer in buffers if buffer.device == device]) for device in dict.fromkeys(buffer.device for buffer in buffers)]


def _moved(kind: str, device: str, buffers: list[Buffer | BufferView]) -> Iterator[int]:
    """Spill or restore buffers of one device, one after the other; who watches (`set_progress`) sees one move."""
    shared = False
    if len(buffers) > 1 and _fast.get_progress() is not None:
        whole = {id(base): base for base in (getattr(buffer, "base", buffer) or buffer for buffer in buffers)}.values()
        shared = _fast.begin_moves(kind, sum(base.nbytes for base in whole if base.is_spilled == (kind == "restore")))
    try:
        for buffer in buffers:
            if kind == "spill":
                yield buffer.spill()
            else:
                buffer.restore()
                yield 0
    finally:
        if shared:
            _fast.end_moves(device)


def _hold_all(buffers: list[Buffer | BufferView], reason: str, holds: list[Hold]) -> None:
    """Hold the buffers of one device, and add their holds to `holds`.

    The launch makes room for all of them at once, and waits for others without keeping anything; two threads that held one buffer after
    the other could wait for each other for ever."""
    with _fast.launch(*buffers):
        for buffer in buffers:
            one = buffer.hold(reason)
            one.__enter__()
            holds.append(one)


def _release(holds: list[Hold]) -> None:
    while holds:
        holds.pop().__exit__(None, None, None)


def _buffers(arrays: tuple[object, ...]) -> list[Buffer | BufferView]:
    """The buffers of all arguments, in their order; TypeError for what nobody knows, ValueError for what was freed.

    All are looked at before anything is done to the first: a wrong argument changes nothing."""
    found: list[Buffer | BufferView] = []
    for array in arrays:
        if isinstance(array, (_fast.Buffer, _fast.BufferView)):
            found.append(array)
            continue
        for host in registered():
            theirs = host.buffers_of(array)
            if theirs is not None:
                found.extend(theirs)
                break
        else:
            hosts = ", ".join(host.name for host in registered()) or "none is"
            raise TypeError(f"not a Buffer and not an array of a plugged-in framework ({hosts}): {type(array).__name__}")
    for buffer in found:
        buffer.view(0, 0)  # raises what every use of a freed buffer raises
    return found
