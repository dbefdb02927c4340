"""Budgets: how much of a device the program's buffers may take before the least recently used ones are spilled."""

from __future__ import annotations

from ._devices import resolve, resolve_name, size_on
from ._errors import leaving
from ._logging import warn_caller
from ._native import _fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from ._devices import Device
    from ._sizes import Size

_NEVER_SPILL = {"cpu": "its memory is the host's", "metal": "its memory is the host's, and macOS pages it"}
_warned: set[str] = set()  # devices whose warning was given


def set_memory_budget(size: Size | None, /, device: Device = None, *, strict: bool = False) -> int | None:
    """Set the budget of a device, and return the one before.

    Lowering a budget spills at once what it can. Before an allocation that would pass the budget, the least recently used buffers
    are spilled until it fits.

    Parameters
    ----------
    size : int, str or None
        Bytes, "8 GiB", or a share of the device's total memory, "80%". None: no budget; spilling then runs only when an allocation fails.
    device : device, optional
        Which device; by default the current one.
    strict : bool
        False: what cannot be spilled (it is held, or host memory has no place for it) may pass the budget, as may one array larger than all
        of it, and is counted in `over_budget`.
        True: what would pass it raises DeviceMemoryError instead, and nothing changes.

    Returns
    -------
    int or None
        The previous budget in bytes; None: there was none.

    Raises
    ------
    ValueError
        The size is 0 (None is no budget), negative, or no size; the device is unknown; a percentage above 100, or of an unknown total.
    TypeError
        The size is a bool or a float; `strict` is no bool.
    DeviceMemoryError
        Host memory for what has to be spilled at once ran out (reason "host"). The budget is set all the same, and nothing is lost.

    Notes
    -----
    May be called from any thread. On the CPU and on Metal a budget is accepted, never spills anything, and warns once.
    """
    if not isinstance(strict, bool):
        raise TypeError(f"strict must be True or False, not {strict!r}")
    index = resolve(device)
    budget = None if size is None else size_on(size, index)
    if budget == 0:
        raise ValueError("a budget cannot be 0; None is: no budget")
    name = _fast.device_name(index)
    if budget is not None:
        _warn_where_nothing_spills(name)
    return _fast.set_memory_budget(budget, name, strict=strict)


def get_memory_budget(device: Device = None) -> int | None:
    """Return the budget of a device in bytes; None: it has none.

    Parameters
    ----------
    device : device, optional
        Which device; by default the current one.

    Raises
    ------
    ValueError, TypeError
        There is no such device.

    Notes
    -----
    May be called from any thread.
    """
    return _fast.get_memory_budget(device)


class memory_budget:
    """A budget for a block of code: `with memory_budget("8 GiB"): ...`

    On exit, also by an exception, the size and the strictness from before come back. The parameters are those of `set_memory_budget`.
    The device is looked up on entry; what the block does to the current device does not matter. One object is for one block at a time.

    Raises
    ------
    RuntimeError
        On entering twice, and on leaving without having entered.
    DeviceMemoryError
        On entry, as in `set_memory_budget`; then the budget is as before. On exit, where going back to a lower budget has to spill more than host
        memory can take: the budget from before is set all the same. Where the block has raised, its own exception is what the caller gets, with a note
        that says this.

    Notes
    -----
    A budget belongs to a device, not to a thread: two threads that set one at the same time see each other's. In a forked child process, leaving a
    block that the parent entered does nothing on a GPU or sim device, which is the parent's.
    """

    __slots__ = ("_before", "_device", "_size", "_strict")

    def __init__(self, size: Size | None, /, device: Device = None, *, strict: bool = False) -> None:
        self._size, self._device, self._strict = size, device, strict
        self._before: tuple[str, int | None, bool] | None = None

    def __enter__(self) -> int | None:
        """Set the budget; returns it in bytes."""
        if self._before is not None:
            raise RuntimeError("this memory_budget is already entered; make another one")
        name = resolve_name(self._device)
        was_strict = _fast.get_strict(name)
        before = _fast.get_memory_budget(name)
        try:
            set_memory_budget(self._size, name, strict=self._strict)
            budget = _fast.get_memory_budget(name)  # before the end of this block: Ctrl-C may come at the end of any call
        except BaseException:
            _fast.set_memory_budget(before, name, strict=was_strict)  # a budget whose spilling failed is set all the same
            raise
        self._before = name, before, was_strict
        return budget

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        """Bring the size and the strictness from before back."""
        if self._before is None:
            raise RuntimeError("this memory_budget was not entered")
        name, before, was_strict = self._before
        self._before = None
        with leaving(f"memory_budget: going back to the budget from before on {name}", error):
            _fast.set_memory_budget(before, name, strict=was_strict)


def _warn_where_nothing_spills(name: str) -> None:
    why = _NEVER_SPILL.get(name.partition(":")[0])
    if why is None or name in _warned:
        return
    _warned.add(name)
    warn_caller(f"{name}: a budget is counted here, but nothing is ever spilled: {why}", UserWarning)
