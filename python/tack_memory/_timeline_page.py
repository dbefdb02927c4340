"""A timeline as a web page: what was resident and spilled after each event, to zoom into and to point at."""

from __future__ import annotations

from base64 import b64encode

from . import _page
from ._page import data, escaped
from ._sizes import format_bytes, format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._timeline import Point


REACH = 2
"""A budget is drawn up to so many times what was in use and spilled at most."""


def page(device: str, points: Sequence[Point], seconds: float, lost: int) -> str:
    """The whole file. `seconds`: how long the recording was."""
    kinds = list(dict.fromkeys(point.event for point in points))
    told = {"kinds": kinds, "count": len(points), "end": round(seconds * 1e6), "reach": REACH, "events": b64encode(encoded(points, kinds)).decode("ascii")}
    most = max(point.in_use for point in points)
    moved = [sum(point.nbytes for point in points if point.event == kind) for kind in ("spill", "restore")]
    summary = f"{len(points) - 1:,} events in {format_seconds(seconds)}; most in use {format_bytes(most)}"
    summary += f"; {format_bytes(moved[0])} spilled, {format_bytes(moved[1])} restored" if any(moved) else ""
    missing = f"<p>The first {lost:,} events are missing: more happened than the recording keeps.</p>" if lost else ""
    return _page.page(
        f"Device memory of {device} over time",
        f"<p>{escaped(summary)}</p>{missing}\n<div class='timeline'><canvas></canvas><output></output>"
        "<p class='keys'><span style='--key: var(--resident)'>on the device</span><span style='--key: var(--spilled)'>spilled to host memory</span>"
        f"{_budget_key(points)}</p></div>\n<script type='application/json' id='told'>{data(told)}</script>",
        "timeline.css",
        "timeline.js",
    )


def _budget_key(points: Sequence[Point]) -> str:
    """What the red line is; nothing where there was no budget."""
    budgets = [point.budget for point in points if point.budget is not None]
    if not budgets:
        return ""
    highest = max(point.in_use + point.spilled for point in points)
    above = f" (up to {format_bytes(max(budgets))}: no line where it is above the picture)" if max(budgets) > REACH * highest else ""
    return f"<span style='--key: var(--limit)'>budget{above}</span>"


def encoded(points: Iterable[Point], kinds: Sequence[str]) -> bytes:
    """All events as small differences: some 15 bytes each, however large the figures are. What decodes it is the page's script."""
    number = {kind: i for i, kind in enumerate(kinds)}
    out = bytearray()
    before = (0,) * 7
    latest = 0.0  # the clock of the wall may be set back; the events are in order all the same, and the script looks them up by their times
    for point in points:
        latest = max(latest, point.seconds)
        budget = -1 if point.budget is None else point.budget
        now = round(latest * 1e6), number[point.event], point.nbytes, point.in_use, point.spilled, budget, round(point.elapsed * 1e6)
        for new, old in zip(now, before, strict=True):
            value = new - old
            value = -2 * value - 1 if value < 0 else 2 * value
            while value > 127:
                out.append(value & 127 | 128)
                value >>= 7
            out.append(value)
        before = now
    return bytes(out)
