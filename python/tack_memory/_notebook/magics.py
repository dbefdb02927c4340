"""The magics of `%load_ext tack_memory`. Imported when the extension is loaded: it needs IPython."""

from __future__ import annotations

import ast
import contextlib
import inspect
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, output_can_be_silenced
from IPython.display import display as _display

from .. import _budget
from .._accounting import MemoryPeak
from .._cards import card, info_part, peak_card, text
from .._native import _fast
from .._sizes import format_bytes
from . import stale
from .arguments import at_most_a_device, join_sizes, split_options, take_flag, words
from .shown import Shown, peak_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PEAK_USAGE = "%%memory_peak [device] [-l LABEL] [--origins] [-o], or on one line: %memory_peak [-d DEVICE] [-l LABEL] [--origins] [-o] expression"
_INFO_USAGE = "%memory_info [device] [--forget]"
_BUDGET_USAGE = "%memory_budget [SIZE | none] [device] [--strict]"


@magics_class
class MemoryMagics(Magics):
    """%%memory_peak, %memory_info and %memory_budget."""

    @output_can_be_silenced  # by a semicolon at the end of the line
    @line_cell_magic
    def memory_peak(self, line: str, cell: str | None = None) -> Any:
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
            Record origins while it runs (`tack_memory.set_origins("line")`), so that the lines which hold the memory at the peak are told.
        -o
            Return the MemoryPeak, for use in code: `peak = %memory_peak -o f(x)`. Without it the line magic returns the value of the expression, and the cell
            magic nothing.

        Examples::

            In [1]: %%memory_peak cuda:0 -l "one step"
               ...: result = step(mesh)

            In [2]: total = %memory_peak --origins mesh.sum()

        The cell runs in the notebook's namespace. A top-level `await` is not possible in it: write `with tack_memory.memory_peak() as peak:` there.
        """
        __tracebackhide__ = True
        with _usage_errors(_PEAK_USAGE):
            options, rest = split_options(line, flags=("-o", "--origins"), valued=("-d", "--device", "-l", "--label"))
            device = options.get("--device", options.get("-d"))
            if cell is not None:
                more, device = _options_behind(rest, device)
                options |= more
            elif not rest:
                raise ValueError("there is no expression to run")
        label = options.get("--label", options.get("-l"))
        run = self._compiled(rest, "eval") if cell is None else self._compiled(cell, "exec")
        with _usage_errors(_PEAK_USAGE, self._hint(device)):
            peak = MemoryPeak(device, label)
            before: Any = _fast.set_origins("line") if "--origins" in options else None
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
            show(Shown(peak_text(peak), peak_card(peak)))
        return peak if "-o" in options else value

    def _compiled(self, source: str, mode: str) -> Callable[[], object]:
        """What runs the source in the notebook's namespace and returns its value (of a cell: None, what its last line gives is shown as always)."""
        __tracebackhide__ = True
        shell: Any = self.shell
        transformed = shell.transform_cell(source)
        if mode == "eval":
            transformed = transformed.strip().rstrip(";")
        name = shell.compile.cache(transformed, shell.displayhook.prompt_count, raw_code=source)
        tree: Any = shell.compile.ast_parse(transformed, filename=name, symbol=mode)
        quiet = shell.displayhook.semicolon_at_end_of_expression(transformed)  # only now: it has been parsed
        if mode == "exec":
            tree = shell.transform_ast(tree)
        flags: Any = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | getattr(shell.compile, "flags", 0)
        if mode == "eval":
            codes = [compile(tree, name, "eval", flags, dont_inherit=True)]
        else:
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not quiet else None
            codes = [compile(tree, name, "exec", flags, dont_inherit=True)]
            if last is not None:  # as IPython itself does: its value goes to sys.displayhook
                codes.append(compile(ast.Interactive([last]), name, "single", flags, dont_inherit=True))
        if any(code.co_flags & inspect.CO_COROUTINE for code in codes):
            raise UsageError("memory_peak: a magic cannot run a top-level await; write `with tack_memory.memory_peak() as peak:` in the cell")

        def run() -> object:
            __tracebackhide__ = True
            value: object = None
            for code in codes:
                value = eval(code, shell.user_global_ns, shell.user_ns)
            return value

        return run

    @line_magic
    def memory_info(self, line: str) -> None:
        """Show the memory of a device: in use, peak, budget, spilled, free.

        Usage::

            %memory_info [device] [--forget]

        device
            "cuda:0", "cuda"; by default the current device. A Python variable: {device}
        --forget
            Before that, drop the exception that Python and IPython keep of the last error (`sys.last_value` and others). The arrays that only its traceback
            keeps alive are freed. `%debug` has nothing to look at then.

        Arrays that only a stored traceback keeps alive, or only IPython's cache of results (`Out`), are named, with what lets go of them.
        """
        with _usage_errors(_INFO_USAGE):
            parts = words(line)
            forget = take_flag(parts, "--forget")
            device = at_most_a_device(parts, _INFO_USAGE)
        told: list[str] = []
        if forget:
            freed = stale.forget(self.shell)
            told.append(
                f"the stored error is forgotten; arrays that only it kept alive: {format_bytes(freed)}" if freed else "no stored error keeps arrays alive"
            )
        with _usage_errors(_INFO_USAGE, self._hint(device)):
            info = _fast.memory_info(device)
        found = stale.look(self.shell)
        words_ = [repr(info), *told, *([stale.text_of(found)] if found else [])]
        notes = "".join(f'<p class="tm-note">{text(line)}</p>' for line in told)
        show(Shown("\n".join(words_), card(info_part(info), notes, stale.html_of(found))))

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
            size = parts.pop(0) if parts and _is_size(parts[0]) else None
            device = at_most_a_device(parts, _BUDGET_USAGE)
            if size is None and strict:
                raise ValueError("--strict is for a budget that is set: name its size, too")
        told = []
        with _usage_errors(_BUDGET_USAGE, self._hint(device)):
            name = _fast.memory_info(device).device
            if size is not None:
                before = _budget.set_memory_budget(None if size.lower() == "none" else size, name, strict=strict)
                told.append("before: " + ("no budget" if before is None else format_bytes(before)))
        info = _fast.memory_info(name)
        budget = "none" if info.budget is None else f"{format_bytes(info.budget)}{' (strict)' if info.strict else ''}"
        line = f"{name}: budget {budget}; in use {format_bytes(info.in_use)}, spilled {format_bytes(info.spilled)}"
        notes = "".join(f'<p class="tm-note">{text(one)}</p>' for one in told)
        show(Shown("; ".join([line, *told]), card(info_part(info), notes)))

    def _hint(self, device: str | None) -> str:
        """What to add to the error of an unknown device: a variable of that name has to be written in braces."""
        return f"; for the value of your variable write {{{device}}}" if device is not None and self.shell is not None and device in self.shell.user_ns else ""


def _options_behind(rest: str, device: str | None) -> tuple[dict[str, str], str | None]:
    """In a cell's first line, options may stand behind the device, too."""
    options: dict[str, str] = {}
    if rest:
        word, _, after = rest.partition(" ")
        if device is not None:
            raise ValueError(f"two devices: {device} and {word}")
        device = word.strip("'\"")
        options, left = split_options(after, flags=("-o", "--origins"), valued=("-l", "--label"))
        if left:
            raise ValueError(f"too many arguments: {left}")
    return options, device


def show(shown: Shown) -> None:
    """HTML in a notebook, text in a terminal."""
    _display(shown)  # type: ignore[no-untyped-call]  # IPython's


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


class AfterCell:
    """Says after a failed cell which arrays its traceback keeps alive, where these are large."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, result: Any) -> None:
        if result.success:
            return
        found = stale.stale_arrays(self._shell)
        if found is not None and found.nbytes >= stale.WARN_FROM:
            show(Shown(stale.text_of([found]), card(stale.html_of([found]))))
