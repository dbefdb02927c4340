"""A flame graph of a report: wide is much memory, and below each frame stands what it called. A click goes into a frame; nothing is loaded."""

from __future__ import annotations

from ._page import data
from ._report_pprof import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ._errors import Holder
    from ._report import MemoryReport


def flame_graph(report: MemoryReport) -> str:
    """The part of a page; nothing where nothing holds memory. Its style and script are flame.css and flame.js."""
    kinds: dict[str, list[tuple[int, Holder]]] = {
        "in use": [(holder.resident, holder) for holder in report.holders],
        "at the peak": [(holder.resident, holder) for holder in (report.at_peak.holders if report.at_peak is not None else ())],
        "spilled": [(holder.spilled, holder) for holder in report.holders],
    }
    names: dict[str, int] = {}
    told = {kind: rows for kind, holders in kinds.items() if (rows := list(_rows(holders, names)))}
    if not told:
        return ""
    options = "".join(f"<option>{kind}</option>" for kind in told)
    hint = "" if report.origins == "stack" else ' Whole stacks: set_origins("stack") before the allocations.'
    return (
        "<h2>Flame graph</h2><p>Wide is much memory; a frame stands above what it called. A click goes into a frame, a click on a frame above it out again."
        f'{hint}</p>\n<div class="flame-place"><div class="flame-tools"><label>memory <select>{options}</select></label>'
        '<label>search <input type="search" size="24"></label><output></output></div><div class="flame"></div>\n'
        f'<script type="application/json">{data({"names": list(names), "kinds": told})}</script></div>'
    )


def _rows(holders: Iterable[tuple[int, Holder]], names: dict[str, int]) -> Iterable[list[Any]]:
    """For each holder its bytes, then the numbers of its frames' names, the outermost first."""
    for nbytes, holder in holders:
        if nbytes:
            shown = [one.name if one.name.startswith(f"{one.file}:") or not one.file else f"{one.name} ({one.file}:{one.line})" for one in frames(holder)]
            yield [nbytes, *(names.setdefault(name.encode("utf-8", "backslashreplace").decode(), len(names)) for name in reversed(shown))]
