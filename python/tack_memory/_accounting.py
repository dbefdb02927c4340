"""Peaks of a block of code, and how a MemoryInfo is shown. The counting itself is done below Python (bindings/fast, gomem)."""

from __future__ import annotations

from ._errors import Holder
from ._native import _fast
from ._sizes import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ._native._fast import MemoryInfo

    F = TypeVar("F", bound=Callable[..., Any])


class MemoryPeak(_fast.PeakScope):
    """The most device memory that a block of code held: `with memory_peak() as peak: ...`, then `peak.bytes`.

    Any number may be open at a time, nested or overlapping, in any thread, and be closed in any order. Each reports the maximum of
    its own interval exactly, and `reset_peak_memory` does not touch them. The figures can be read while the block runs; they are
    frozen when it ends, by an exception as well. A scope that is dropped while open closes itself.

    It is a decorator, too: each call of the function runs in a fresh scope, which is given to `on_exit`. This works for functions,
    async functions (the scope runs until the coroutine ends), generators and async generators (until they are exhausted or closed).

    Parameters
    ----------
    device : device, optional
        None, "cuda:0", "cuda", an ordinal, or a framework's own device object; "numpy", once `tack_memory.numpy` counts the memory of NumPy's
        arrays, of which `at_peak` is None. It is looked up when the scope is entered.
    label : str, optional
        A name for reports; a decorated function's own name, if it is left out there.
    on_exit : callable, optional
        Called with the scope when it ends. An exception of its own goes to `sys.unraisablehook`: leaving a scope never raises. Only what is no
        Exception goes on to the program (Ctrl-C while it ran, SystemExit).

    Attributes
    ----------
    bytes : int
        The most bytes in use on the device during the interval; what was live on entry is included.
    start, end : int
        Bytes in use on entry and on exit; `end` is None while the scope is open.
    delta : int
        `bytes - start`.
    footprint : int
        The most bytes in use and spilled, together: the peak that the block would have had without a budget.
    own : int
        The most bytes allocated inside the interval and alive (spilled or not) at one time: what the block itself needs.
    own_end : int
        What is alive of that on exit: what the block left behind. While the scope is open, now.
    spilled_bytes, restored_bytes : int
        Bytes moved during the interval.
    by_device : dict of str to int
        `bytes`, by device.
    seconds : float
        The length of the interval.
    at_peak : list of Holder or None
        What was on `device` at the moment when `bytes` was reached (for the first time), by label and origin, the largest first. The
        `bytes` of all add up to the scope's `bytes`, and `spilled` is 0: what lay in host memory at that moment is not in it. Buffers that were
        allocated while origins were off have the origin None. A buffer is named by the label that it has at the end, or had when it left the
        device. None where origins were off on entry (`set_origins`), and in a forked child for a scope that it leaves.

    Raises
    ------
    RuntimeError
        On entering twice, leaving twice, and leaving without having entered. The books are not touched.

    Notes
    -----
    May be used from any thread; may be entered in one thread and left in another.

    `at_peak` is found out when the scope is left, or when it is read while the scope is open, by one look at each buffer of the device: some
    microseconds, and some milliseconds at 100,000 buffers. Nobody is kept from allocating meanwhile. While the scope is open, a buffer that
    leaves the device costs some nanoseconds more, and 40 bytes as long as it counts for the peak. Nothing of that is paid where origins are off.
    """

    __slots__ = ()

    @property
    def at_peak(self) -> list[Holder] | None:
        """What was live at the peak, by label and origin, the largest first; None where origins were off on entry."""
        told = self._at_peak_json
        if told is None:
            return None
        import json

        return [Holder(fields) for fields in json.loads(told)]

    def __call__(self, function: F) -> F:
        """Decorate a function: each call, coroutine or generator runs in a fresh scope like this one."""
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"memory_peak can decorate a function, not {function!r}")
        import functools
        import inspect

        scope, device, on_exit = type(self), self._asked, self.on_exit
        label = self.label if self.label is not None else getattr(function, "__qualname__", None)

        if inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportRedeclaration]
                with scope(device, label, on_exit):
                    generator = function(*args, **kwargs)
                    try:
                        step = generator.__anext__()
                        while True:
                            try:
                                item = await step
                            except StopAsyncIteration:
                                return
                            try:
                                sent = yield item
                            except GeneratorExit:
                                raise
                            except BaseException as error:
                                step = generator.athrow(error)
                            else:
                                step = generator.asend(sent)
                    finally:
                        await generator.aclose()

        elif inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportRedeclaration]
                with scope(device, label, on_exit):
                    return await function(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with scope(device, label, on_exit):
                    return (yield from function(*args, **kwargs))

        else:

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with scope(device, label, on_exit):
                    return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]  # it takes and returns what `function` does

    def __repr__(self) -> str:
        name = f" {self.label!r}" if self.label else ""
        try:
            start = self.start
        except (RuntimeError, AttributeError):
            return f"<MemoryPeak{name}: not entered>"
        state = "open" if self.end is None else f"{self.seconds:.3g} s"
        return (
            f"<MemoryPeak{name} {self.device}: {format_bytes(self.bytes)}, {format_bytes(self.bytes - start)} above the start, "
            f"own {format_bytes(self.own)}, {state}>"
        )


memory_peak = MemoryPeak


def format_info(info: MemoryInfo) -> str:
    """The one readable line that is a MemoryInfo's repr."""
    size = format_bytes
    parts = [f"in use {size(info.in_use)}", f"peak {size(info.peak)}"]
    if info.spilled:
        parts.append(f"spilled {size(info.spilled)}")
    if info.cached:
        parts.append(f"cached {size(info.cached)}")
    if info.budget is not None:
        parts.append(f"budget {size(info.budget)}{' (strict)' if info.strict else ''}")
    if info.over_budget:
        parts.append(f"over budget by {size(info.over_budget)}")
    if info.device_free is not None and info.device_total is not None:
        parts.append(f"free {size(info.device_free)} of {size(info.device_total)}")
    elif info.device_total is not None:
        parts.append(f"total {size(info.device_total)}")
    return f"MemoryInfo({info.device}: {', '.join(parts)})"


def format_info_html(info: MemoryInfo) -> str:
    """A small table with a bar, for notebooks."""
    from html import escape

    size = format_bytes
    whole = info.budget if info.budget is not None else info.device_total
    rows = [("in use", size(info.in_use)), ("peak", size(info.peak)), ("spilled", size(info.spilled)), ("cached", size(info.cached))]
    rows.append(("budget", "none" if info.budget is None else size(info.budget) + (" (strict)" if info.strict else "")))
    rows.append(("free / total", f"{size(info.device_free)} / {size(info.device_total)}"))
    rows.append(("spills / restores", f"{info.spill_count} / {info.restore_count}"))
    cells = "".join(f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:right'>{escape(text)}</td></tr>" for name, text in rows)
    return f"<div><b>{escape(str(info.device))}</b>{_bar(info.in_use, info.peak, whole)}<table>{cells}</table></div>"


def _bar(in_use: int, peak: int, whole: int | None) -> str:
    """What is in use, as a part of the budget or the device, with a mark at the peak; nothing where the whole is unknown."""
    if not whole:
        return ""
    filled, mark = (min(100.0, 100.0 * nbytes / whole) for nbytes in (in_use, peak))
    colour = "#c0392b" if in_use > whole else "#2e86c1"
    return (
        "<div style='position:relative;width:20em;height:0.8em;border:1px solid #999'>"
        f"<div style='width:{filled:.1f}%;height:100%;background:{colour}'></div>"
        f"<div title='peak' style='position:absolute;top:0;left:{mark:.1f}%;width:2px;height:100%;background:#333'></div></div>"
    )
