"""What is kept alive, in words: a head, a line an array, and what lets go of them."""

from __future__ import annotations

from .._cards import text
from .._sizes import format_bytes
from . import kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .stale import Forgotten, Found, Stale

_SHOWN = 5  # arrays that are named; the rest is a number

_RESULTS = "IPython's cache of results"


def text_of(found: Found, shell: Any = None) -> str:
    """All of it as plain text; empty where nothing is kept."""
    parts = ["\n  ".join(_lines(stale, shell)) for stale in found.kept]
    return "\n".join([*parts, *_untold(found, shell)])


def html_of(found: Found, shell: Any = None) -> str:
    """All of it as HTML, for a card; empty where nothing is kept."""
    parts = []
    for stale in found.kept:
        head, *arrays, advice = _lines(stale, shell)
        items = "".join(f"<li>{text(line)}</li>" for line in arrays)
        parts.append(f'<div class="tm-warn">{text(head)}<ul class="tm-list">{items}</ul><p class="tm-note">{text(advice)}</p></div>')
    return "".join([*parts, *(f'<p class="tm-note">{text(line)}</p>' for line in _untold(found, shell))])


def of_forgotten(done: Forgotten, *, error: bool, results: bool) -> str:
    """What `forget` did, of what was asked for."""
    parts = []
    if error:
        parts.append("the stored error is forgotten" if done.error else "there is no stored error")
    if results:
        number = f"{done.results:,} result{'' if done.results == 1 else 's'} of cells {'is' if done.results == 1 else 'are'} forgotten"
        parts.append(number if done.results else "no result of a cell has an array in it")
    number_of_them = done.error + done.results
    if number_of_them and done.freed is None:
        parts.append("how much became free cannot be told")
    elif number_of_them:
        parts.append(
            f"arrays that only {'it' if number_of_them == 1 else 'they'} kept alive: {format_bytes(done.freed)}" if done.freed else "nothing became free"
        )
    return "; ".join(parts)


def _lines(stale: Stale, shell: Any) -> list[str]:
    number, size = len(stale.arrays), format_bytes(stale.nbytes)
    devices = ", ".join(sorted({one.device for one in stale.arrays}))
    arrays = f"1 array of {size} on {devices} is" if number == 1 else f"{number:,} arrays, {size} in all, on {devices} are"
    traceback = f"the stored traceback of {stale.error}" if stale.error else "the stored traceback"
    keepers = [*([traceback] if stale.by_error else []), *([_RESULTS] if stale.by_results else [])]
    lines = [f"{arrays} kept alive only by {' and '.join(keepers)}{' together' if len(keepers) > 1 else ''}:"]
    for one in stale.arrays[:_SHOWN]:
        lines.append(f"{format_bytes(one.nbytes)}{', spilled' if one.spilled else ''}: {one.name}")
    if number > _SHOWN:
        lines.append(f"{format_bytes(sum(one.nbytes for one in stale.arrays[_SHOWN:]))} in all: {number - _SHOWN:,} more")
    after = [
        *(["%debug has nothing to look at then"] if stale.by_error else []),
        *(["a cell that ends in a semicolon keeps no result"] if stale.by_results else []),
    ]
    lets_go = f"{_magic(stale.by_error, stale.by_results, shell)} lets go of {'it' if number == 1 else 'them'}"
    lines.append("; ".join([lets_go, *after]))
    return lines


def _untold(found: Found, shell: Any) -> list[str]:
    """One line at most."""
    error, results = found.error_untold or found.both_untold, found.results_untold or found.both_untold
    if not (error or results):
        return []
    keepers = [*(["the stored traceback"] if error else []), *([_RESULTS] if results else [])]
    verb = "keeps" if len(keepers) == 1 else "keep"
    together = " together" if found.both_untold else ""
    return [
        f"what {' and '.join(keepers)} {verb} alive{together} cannot be told: there are more than {kept.MOST:,} objects behind; "
        f"{_magic(error, results, shell)} lets go of it"
    ]


def _magic(error: bool, results: bool, shell: Any) -> str:
    """What lets go of it. A report names it, too, and is shown where nobody has loaded the magics."""
    from .extension import is_loaded

    magic = " ".join(["%memory_info", *(["--forget"] if error else []), *(["--forget-results"] if results else [])])
    return magic if is_loaded(shell) else f"After %load_ext tack_memory, {magic}"
