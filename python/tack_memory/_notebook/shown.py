"""What a magic shows: HTML in a notebook, text in a terminal."""

from __future__ import annotations

from .._cards import ASK_FOR_ORIGINS, MOST_HOLDERS, peak_rows, short_name
from .._devices import NUMPY
from .._sizes import format_bytes, format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._accounting import MemoryPeak


NUMPYS_LINES = "Which lines hold it: a block `with tack_memory.numpy.track() as t:`, then `t.report()`"


class Shown:
    """A text and the same as HTML."""

    __slots__ = ("_html", "_text")

    def __init__(self, text: str, html: str) -> None:
        self._text, self._html = text, html

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


def show(shown: Shown) -> None:
    """HTML in a notebook, text in a terminal."""
    from IPython.display import display

    display(shown)  # type: ignore[no-untyped-call]  # IPython's


def peak_text(peak: MemoryPeak) -> str:
    """The figures of a closed scope, a line each, and the largest holders at its peak where these are known."""
    lines = [f"{peak.label or 'peak'} on {peak.device}, in {format_seconds(peak.seconds)}"]
    rows = peak_rows(peak)
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines += [f"  {name:<{widths[0]}}  {figure:>{widths[1]}}  {says}" for name, figure, says in rows]
    holders = peak.at_peak
    if holders is None:
        lines.append(f"  {NUMPYS_LINES if peak.device == NUMPY else ASK_FOR_ORIGINS}")
        return "\n".join(lines)
    lines.append("  on the device at the peak:")
    lines += [
        f"  {format_bytes(holder.bytes):>10}  {short_name(holder.label, holder.origin)}" + (f" x{holder.count}" if holder.count > 1 else "")
        for holder in holders[:MOST_HOLDERS]
    ]
    rest = holders[MOST_HOLDERS:]
    if rest:
        lines.append(f"  {format_bytes(sum(holder.bytes for holder in rest)):>10}  {len(rest)} more")
    return "\n".join(lines)
