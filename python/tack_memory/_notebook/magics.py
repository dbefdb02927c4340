"""The magics of `%load_ext tack_memory`. Imported when the extension is loaded: it needs IPython."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, needs_local_scope, output_can_be_silenced

from .. import _budget
from .._accounting import MemoryPeak
from .._cards import card, info_part, peak_card, text
from .._devices import NUMPY
from .._native import _fast
from .._sizes import format_bytes
from . import code, stale, told
from .arguments import at_most_a_device, glued, join_sizes, split_options, take_flag, without_semicolon, words
from .shown import NUMPYS_LINES, Shown, peak_text, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PEAK_USAGE = "%%memory_peak [device] [-l LABEL] [--origins] [-o], or on one line: %memory_peak [-d DEVICE] [-l LABEL] [--origins] [-o] expression"
_INFO_USAGE = "%memory_info [device] [--forget] [--forget-results]"
_BUDGET_USAGE = "%memory_budget [SIZE | none] [device] [--strict]"


@magics_class
class MemoryMagics(Magics):
    """%%memory_peak, %memory_info and %memory_budget."""

    @output_can_be_silenced  # by a semicolon at the end of the line
    @needs_local_scope
    @line_cell_magic
    def memory_peak(self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> Any:
        """Run a cell, or an expression, and show how much device memory it needed.

        Usage, in cell mode::

            %%memory_peak [device] [-l LABEL] [--origins] [-o]
            ...

        In line mode::

            %memory_peak [-d DEVICE] [-l LABEL] [--origins] [-o] expression

        Shown are, in IEC units: what the code needed by itself (own), the most that was in use (peak) and by how much that is above the start (delta), the
        footprint (what it would have needed without a budget), what it left behind, what was spilled and restored meanwhile, and the time. Where origins
        are on, the largest holders at the peak, too. Code that fails shows all of that before its traceback.

        Options:

        device, or -d DEVICE (--device)
            "cuda:0", "cuda", "numpy"; by default the current device. A Python variable: {device}
        -l LABEL (--label)
            A name; in quotes if there is a space in it.
        --origins
            Record origins while it runs (`tack_memory.set_origins("line")`), so that the lines which hold the memory at the peak are told. Of NumPy's
            memory `tack_memory.numpy.track` tells them.
        -o
            Return the MemoryPeak, for use in code: `peak = %memory_peak -o f(x)`. Without it the line magic returns the value of the expression, and the cell
            magic nothing.

        Examples::

            In [1]: %%memory_peak cuda:0 -l "one step"
               ...: result = step(mesh)

            In [2]: total = %memory_peak --origins mesh.sum()

        The cell runs in the notebook's namespace; an expression in a function sees the function's variables. A top-level `await` is not possible in either:
        write `with tack_memory.memory_peak() as peak:` there.
        """
        __tracebackhide__ = True
        with _usage_errors(_PEAK_USAGE):
            if cell is not None:
                line = without_semicolon(line)
            options, rest = split_options(line, flags=("-o", "--origins"), valued=("-d", "--device", "-l", "--label"))
            device = options.get("--device", options.get("-d"))
            if cell is not None:
                more, device = _options_behind(rest, device)
                options |= more
            elif not rest:
                raise ValueError("there is no expression to run")
        label = options.get("--label", options.get("-l"))
        with _usage_errors(_PEAK_USAGE):
            run = code.of_expression(self.shell, rest, local_ns) if cell is None else code.of_cell(self.shell, cell)
        with _usage_errors(_PEAK_USAGE, self._hint(device)):
            peak = MemoryPeak(device, label)
            before: Any = _fast.need_origins("line") if "--origins" in options else None
            try:
                peak.__enter__()
            except BaseException:
                if before is not None:
                    _fast.set_origins(before)
                raise
        try:
            value = run()
        finally:
            peak.__exit__(None, None, None)
            if before is not None:
                _fast.set_origins(before)
            below = _as_html([NUMPYS_LINES] if peak.device == NUMPY and peak.at_peak is None else [])
            show(Shown(peak_text(peak), peak_card(peak, below)))
        return peak if "-o" in options else value

    @line_magic
    def memory_info(self, line: str) -> None:
        """Show the memory of a device: in use, peak, budget, spilled, free.

        Usage::

            %memory_info [device] [--forget] [--forget-results]

        device
            "cuda:0", "cuda"; by default the current device. A Python variable: {device}
        --forget
            Before that, drop the exception that Python and IPython keep of the last error (`sys.last_value` and others). The arrays that only its traceback
            keeps alive are freed. `%debug` has nothing to look at then.
        --forget-results
            Before that, drop the results of cells in which there are arrays out of all places where IPython keeps them (`Out`, `_`, `_3` and others).
            Variables, and other results, stay.

        Arrays that only a stored traceback keeps alive, or only IPython's cache of results (`Out`), are named, with what lets go of them.
        """
        with _usage_errors(_INFO_USAGE):
            parts = words(line)
            error, results = take_flag(parts, "--forget"), take_flag(parts, "--forget-results")
            device = at_most_a_device(parts)
        notes: list[str] = []
        with _usage_errors(_INFO_USAGE, self._hint(device)), _warnings_in(notes):
            info = _fast.memory_info(device)
        if error or results:
            done = stale.forget(self.shell, error=error, results=results)
            notes.append(told.of_forgotten(done, error=error, results=results))
            info = _fast.memory_info(info.device)
        found = stale.look_safely(self.shell, collect=not (error or results))
        lines = [repr(info), *notes, told.text_of(found, self.shell)]
        show(Shown("\n".join(filter(None, lines)), card(info_part(info), _as_html(notes), told.html_of(found, self.shell))))

    @line_magic
    def memory_budget(self, line: str) -> None:
        """Set the memory budget of a device, or show it.

        Usage::

            %memory_budget [SIZE | none] [device] [--strict]

        SIZE
            "8 GiB", 1.5GB, 80% (of the device), or a number of bytes; a Python variable: {size}. `none`: no budget. Left out: the budget is shown.
        device
            "cuda:0", "cuda"; by default the current device.
        --strict
            What would pass the budget raises DeviceMemoryError; without it, what cannot be spilled may pass it.

        Lowering a budget spills at once what it can. For one block of code there is `with tack_memory.memory_budget(size):`.
        """
        with _usage_errors(_BUDGET_USAGE):
            parts = words(line)
            strict = take_flag(parts, "--strict")
            parts = join_sizes(parts)
            if len(parts) > 1 and not _is_size(parts[0]) and _is_size(parts[1]):
                raise ValueError(f"the size comes first: %memory_budget {parts[1]} {parts[0]}{' --strict' if strict else ''}")
            size = parts.pop(0) if parts and _is_size(parts[0]) else None
            device = at_most_a_device(parts)
            if size is None and strict:
                raise ValueError("--strict is for a budget that is set: name its size, too")
        told_before: list[str] = []
        notes: list[str] = []
        with _usage_errors(_BUDGET_USAGE, self._hint(device)), _warnings_in(notes):
            name = _fast.memory_info(device).device
            if size is not None:
                before = _budget.set_memory_budget(None if size.lower() == "none" else size, name, strict=strict)
                told_before.append("before: " + ("no budget" if before is None else format_bytes(before)))
        info = _fast.memory_info(name)
        budget = "none" if info.budget is None else f"{format_bytes(info.budget)}{' (strict)' if info.strict else ''}"
        line = f"{name}: budget {budget}; in use {format_bytes(info.in_use)}, spilled {format_bytes(info.spilled)}"
        show(Shown("\n".join(["; ".join([line, *told_before]), *notes]), card(info_part(info), _as_html([*told_before, *notes]))))

    def _hint(self, device: str | None) -> str:
        """What to add to the error of an unknown device: a variable of that name has to be written in braces."""
        return f"; for the value of your variable write {{{device}}}" if device is not None and self.shell is not None and device in self.shell.user_ns else ""


def _options_behind(rest: str, device: str | None) -> tuple[dict[str, str], str | None]:
    """In a cell's first line, options may stand behind the device, too."""
    options: dict[str, str] = {}
    if rest:
        word, _, after = rest.partition(" ")
        if word.startswith("-"):
            raise ValueError(f"there is no option {word}{glued(word, ('-d', '-l'))}")
        if device is not None:
            raise ValueError(f"two devices: {device} and {word}")
        device = word.strip("'\"")
        options, left = split_options(after, flags=("-o", "--origins"), valued=("-l", "--label"))
        if left:
            raise ValueError(f"too many arguments: {left}{glued(left, ('-l',))}")
    return options, device


def _is_size(word: str) -> bool:
    """Whether a word is meant as a size: devices begin with a letter."""
    return word.lower() == "none" or word[:1] in "0123456789.-+"


@contextlib.contextmanager
def _usage_errors(usage: str, hint: str = "") -> Iterator[None]:
    """Wrong arguments are shown in one line, without a traceback through this package."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise UsageError(f"{error}{hint}\nusage: {usage}") from None


@contextlib.contextmanager
def _warnings_in(notes: list[str]) -> Iterator[None]:
    """What the package warns of meanwhile is shown with the figures. A warning by itself would name a line of IPython's as the place."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            notes += [str(one.message) for one in caught]


def _as_html(notes: list[str]) -> str:
    return "".join(f'<p class="tm-note">{text(line)}</p>' for line in notes)
