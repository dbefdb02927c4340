"""What notebooks show of a MemoryInfo, a MemoryPeak and a MemoryReport: small HTML cards without a script.

Colours come from Jupyter's own CSS variables, so a card is light or dark as the notebook is. Where a page has none (a mail, a plain web page), the fallbacks
follow the reader's system (`prefers-color-scheme`). Either way a card paints its own background: its text can be read on any page.

Each card brings its style along, since a notebook may show one alone; all rules begin with the card's class, so nothing else on the page changes. Whatever
comes from users (labels, file names, names of devices) is escaped.
"""

from __future__ import annotations

from ._sizes import format_bytes, format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._accounting import MemoryPeak
    from ._errors import Holder
    from ._native._fast import MemoryInfo
    from ._report import MemoryReport
    from ._report_parts import Thrashing

MOST_HOLDERS = 10
"""Rows of holders that a card shows; the rest is one row, with their sum."""

# Twice the same names: first with the fallbacks for light pages, then with those for dark ones.
_LIGHT = {
    "back": "--jp-layout-color0, #ffffff", "text": "--jp-content-font-color1, #1f2328", "dim": "--jp-content-font-color2, #59636e",
    "line": "--jp-border-color2, #d0d7de", "track": "--jp-layout-color2, #eaeef2",
}  # fmt: skip
_DARK = {
    "back": "--jp-layout-color0, #0d1117", "text": "--jp-content-font-color1, #e6edf3", "dim": "--jp-content-font-color2, #9198a1",
    "line": "--jp-border-color2, #3d444d", "track": "--jp-layout-color2, #21262d",
}  # fmt: skip


def _variables(fallbacks: dict[str, str]) -> str:
    return "".join(f"--tm-{name}:var({value});" for name, value in fallbacks.items())


_STYLE = (
    # The three colours of the bars have a contrast of 3:1 or more with a light track and with a dark one.
    f"div.tack-memory{{{_variables(_LIGHT)}--tm-used:#2f7fe0;--tm-spilled:#b7791f;--tm-over:#d1383d;"
    "background:var(--tm-back);color:var(--tm-text);font:13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);"
    "max-width:60em;padding:.3em .5em;font-variant-numeric:tabular-nums}"
    f"@media (prefers-color-scheme:dark){{div.tack-memory{{{_variables(_DARK)}}}}}"
    "div.tack-memory .tm-head{font-weight:600;margin:0 0 .3em}div.tack-memory .tm-dim{color:var(--tm-dim);font-weight:400}"
    "div.tack-memory .tm-note{color:var(--tm-dim);margin:.35em 0 0}"
    "div.tack-memory .tm-bar{position:relative;height:.85em;max-width:34em;background:var(--tm-track);border-radius:3px;overflow:hidden;margin:.15em 0 .3em}"
    "div.tack-memory .tm-bar i{position:absolute;top:0;height:100%}"
    "div.tack-memory .tm-before{background:var(--tm-dim);opacity:.55}"
    "div.tack-memory .tm-used{background:var(--tm-used)}div.tack-memory .tm-over{background:var(--tm-over)}"
    "div.tack-memory .tm-spilled{background:repeating-linear-gradient(135deg,var(--tm-spilled) 0 4px,transparent 4px 7px)}"
    "div.tack-memory .tm-mark{width:2px;margin-left:-2px;background:var(--tm-text)}"
    "div.tack-memory .tm-budget{width:3px;margin-left:-2px;background:var(--tm-text);box-shadow:0 0 0 1px var(--tm-back)}"  # seen on a bar, too
    "div.tack-memory table.tm-table{border-collapse:collapse;margin:.2em 0;border:0;font-size:inherit;color:inherit}"
    "div.tack-memory table.tm-table tr,div.tack-memory table.tm-table tbody tr{background:none}"
    "div.tack-memory table.tm-table th,div.tack-memory table.tm-table td{padding:.12em 1em .12em 0;border:0;border-bottom:1px solid var(--tm-line);"
    "text-align:right;white-space:nowrap;vertical-align:top;max-width:none;color:inherit}"
    "div.tack-memory table.tm-table th{color:var(--tm-dim);font-weight:400}"
    "div.tack-memory table.tm-table .tm-name{text-align:left;white-space:normal;overflow-wrap:anywhere;padding-right:0}"
    "div.tack-memory .tm-scroll{overflow-x:auto}"
    "div.tack-memory ul.tm-list{margin:.3em 0 0;padding-left:1.3em;color:inherit}"
    "div.tack-memory details{margin:.3em 0 0}div.tack-memory summary{cursor:pointer}"
    "div.tack-memory .tm-warn{border-left:3px solid var(--tm-spilled);padding:.1em 0 .1em .7em;margin:.5em 0 0}"
    "div.tack-memory code{background:var(--tm-track);color:inherit;padding:0 .25em;border-radius:3px;font-size:95%}"
)


def card(*parts: str) -> str:
    """The parts (HTML) as one card."""
    return f'<div class="tack-memory"><style>{_STYLE}</style>{"".join(parts)}</div>'


def text(value: object) -> str:
    """A text for a place between tags or in quotes."""
    from ._page import escaped

    return escaped(str(value))


# ---- MemoryInfo


def info_card(info: MemoryInfo) -> str:
    """A small table with a bar."""
    return card(info_part(info))


def info_part(info: MemoryInfo) -> str:
    """The same, for a card with more in it."""
    size = format_bytes
    budget = "none" if info.budget is None else size(info.budget) + (" (strict)" if info.strict else "")
    rows = [("in use", size(info.in_use)), ("peak", size(info.peak)), ("budget", budget)]
    if info.over_budget:
        rows.append(("over the budget by", size(info.over_budget)))
    rows.append(("spilled", size(info.spilled)))
    if info.cached:
        rows.append(("cached", size(info.cached)))
    if info.device_free is not None or info.device_total is not None:
        rows.append(("free on the device", f"{size(info.device_free)} of {size(info.device_total)}"))
    rows.append(("spills and restores", f"{info.spill_count:,} and {info.restore_count:,}"))
    cells = "".join(f"<tr><th>{text(name)}</th><td>{text(figure)}</td></tr>" for name, figure in rows)
    what = "memory of NumPy's arrays" if info.device == "numpy" else "device memory"
    head = f'<p class="tm-head">{text(info.device)} <span class="tm-dim">{text(what)}</span></p>'
    return f'{head}{bar(info.in_use, info.spilled, info.peak, info.budget, info.device_total)}<table class="tm-table tm-figures"><tbody>{cells}</tbody></table>'


def bar(in_use: int, spilled: int, peak: int, budget: int | None, total: int | None) -> str:
    """What is in use, and behind it what is spilled, as parts of the budget or the device; a mark at the peak, a wider one at a budget inside the bar.

    The scale is the budget, else the device's total, and grows where that would not hold all. Nothing where all figures are 0 and nothing is known."""
    whole = budget if budget is not None else total
    scale = max(whole or 0, in_use + spilled, peak)
    if not scale:
        return ""
    over = budget is not None and in_use > budget

    def at(nbytes: int) -> str:
        return f"{100 * nbytes / scale:.2f}%"

    parts = [f'<i class="{"tm-over" if over else "tm-used"}" style="left:0;width:{at(in_use)}"></i>']
    if spilled:
        parts.append(f'<i class="tm-spilled" style="left:{at(in_use)};width:{at(spilled)}"></i>')
    if peak > in_use:
        parts.append(f'<i class="tm-mark" style="left:{at(peak)}" title="peak"></i>')
    if budget is not None and scale > budget:
        parts.append(f'<i class="tm-budget" style="left:{at(budget)}" title="budget"></i>')
    of = "" if whole is None else f" of {'a budget' if budget is not None else 'a device'} of {format_bytes(whole)}"
    says = f"{format_bytes(in_use)} in use{of}, {format_bytes(spilled)} spilled, peak {format_bytes(peak)}"
    return f'<div class="tm-bar" role="img" aria-label="{text(says)}" title="{text(says)}">{"".join(parts)}</div>'


# ---- holders


def short_place(place: str) -> str:
    """ "file.py:12" for people: a cell of this notebook by its number, a file below the current folder relative to it, any other as it is."""
    import os

    file, colon, line = place.rpartition(":")
    number = cell_number(file)
    if number is not None:
        return f"In[{number}]{colon}{line}"
    try:
        folder = os.path.join(os.getcwd(), "")
    except OSError:  # it is gone
        return place
    return place.removeprefix(folder) if len(folder) > 1 else place


def cell_number(file: str) -> int | None:
    """The number of the cell that this file stands for, in IPython; None: it is none."""
    import sys

    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    number = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)
    return number if isinstance(number, int) else None


def short_name(label: str | None, origin: str | None) -> str:
    """Label and origin in one piece, as `Holder.name` has them, with a short origin."""
    place = short_place(origin) if origin else None
    return f"{label} ({place})" if label and place else label or place or "(no label)"


def holders_table(holders: Sequence[Holder], *, parts: bool, most: int = MOST_HOLDERS) -> str:
    """The largest holders as rows. parts: with what of each is on the device and what is spilled, and what holds it."""
    heads = ["bytes", *(["on device", "spilled"] if parts else []), "count"]
    head = "".join(f"<th>{name}</th>" for name in heads) + '<th class="tm-name">held by</th>'
    rows = []
    for holder in holders[:most]:
        sizes = [holder.bytes, holder.resident, holder.spilled] if parts else [holder.bytes]
        rows.append(_row([*(format_bytes(nbytes) for nbytes in sizes), f"{holder.count:,}"], _named(holder)))
    rest = holders[most:]
    if rest:
        sizes = [sum(holder.bytes for holder in rest)]
        if parts:
            sizes += [sum(holder.resident for holder in rest), sum(holder.spilled for holder in rest)]
        count = sum(holder.count for holder in rest)
        rows.append(_row([*(format_bytes(nbytes) for nbytes in sizes), f"{count:,}"], f'<span class="tm-dim">{len(rest):,} more</span>'))
    return (
        f'<div class="tm-scroll"><table class="tm-table tm-holders"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
        if rows
        else '<p class="tm-note">no live buffers</p>'
    )


def _row(figures: Iterable[str], name: str) -> str:
    return "<tr>" + "".join(f"<td>{text(figure)}</td>" for figure in figures) + f'<td class="tm-name">{name}</td></tr>'


def _named(holder: Holder) -> str:
    """A holder's name, what holds it, and the lines that led to it where these are known."""
    shown = text(short_name(holder.label, holder.origin))
    if holder.holds:
        shown += f' <span class="tm-dim">[{text(holder.holds)}]</span>'
    if holder.stack:
        lines = "<br>".join(text(_short_frame(frame)) for frame in holder.stack)
        shown = f"<details><summary>{shown}</summary><span class='tm-dim'>{lines}</span></details>"
    return shown


def _short_frame(frame: str) -> str:
    """ "file.py:12 function" with a short place."""
    place, space, function = frame.rpartition(" ")
    return f"{short_place(place)}{space}{function}"


# ---- MemoryPeak


def peak_card(peak: MemoryPeak, *more: str) -> str:
    """The figures of a scope, a bar, and what was live at its peak; `more` (HTML) stands below."""
    try:
        start = peak.start
    except (RuntimeError, AttributeError):
        return card(f'<p class="tm-head">MemoryPeak {text(peak.label or "")} <span class="tm-dim">not entered yet</span></p>')
    seconds = "so far" if peak.end is None else f"in {format_seconds(peak.seconds)}"
    head = f'<p class="tm-head">{text(peak.label or "peak")} <span class="tm-dim">on {text(peak.device)}, {text(seconds)}</span></p>'
    cells = "".join(
        f'<tr><th>{text(name)}</th><td>{text(figure)}</td><td class="tm-name tm-dim">{text(says)}</td></tr>' for name, figure, says in peak_rows(peak)
    )
    return card(
        head,
        _peak_bar(start, peak.bytes, peak.footprint),
        f'<table class="tm-table tm-figures"><tbody>{cells}</tbody></table>',
        _holders_at_peak(peak),
        *more,
    )


def _peak_bar(start: int, most: int, footprint: int) -> str:
    """What was there on entry, in grey, and what came to it at the peak; behind that, what was spilled besides when the footprint was highest."""
    scale = max(footprint, most)
    if not scale:
        return ""
    parts = [(0, min(start, most), "tm-before"), (min(start, most), most, "tm-used"), (most, scale, "tm-spilled")]
    shown = "".join(
        f'<i class="{kind}" style="left:{100 * low / scale:.2f}%;width:{100 * (high - low) / scale:.2f}%"></i>' for low, high, kind in parts if high > low
    )
    says = f"{format_bytes(start)} on entry, {format_bytes(most)} at the peak, footprint {format_bytes(footprint)}"
    return f'<div class="tm-bar" role="img" aria-label="{text(says)}" title="{text(says)}">{shown}</div>'


def peak_rows(peak: MemoryPeak) -> list[tuple[str, str, str]]:
    """(name, figure, what it is) of a scope that was entered, for text and HTML alike."""
    size = format_bytes
    rows = [
        ("own", size(peak.own), "what this block needs, whatever was there before"),
        ("peak", size(peak.bytes), "most in use, with what was there on entry"),
        ("delta", size(peak.delta), "the peak above what was in use on entry"),
        ("footprint", size(peak.footprint), "most in use and spilled together: the peak without a budget"),
        ("left behind", size(peak.own_end), "of its own, alive " + ("now" if peak.end is None else "at the end")),
    ]
    if peak.spilled_bytes or peak.restored_bytes:
        rows.append(("spilled", size(peak.spilled_bytes), "moved to host memory meanwhile"))
        rows.append(("restored", size(peak.restored_bytes), "moved back"))
    for device, nbytes in peak.by_device.items():
        if device != peak.device and peak._figures[device]["own"]:
            rows.append((f"peak on {device}", size(nbytes), "another device, on which this block allocated"))
    return rows


ASK_FOR_ORIGINS = 'Which lines hold it: %%memory_peak --origins, or tack_memory.set_origins("line") before'


def _holders_at_peak(peak: MemoryPeak) -> str:
    holders = peak.at_peak
    if holders is None:
        if peak.device == "numpy":
            return ""
        how = "<code>tack_memory.set_origins(&quot;line&quot;)</code> before tells which lines hold it at the peak"
        return f'<p class="tm-note">{how}</p>'
    return '<p class="tm-note">what was on the device at the peak:</p>' + holders_table(holders, parts=False)


# ---- MemoryReport


def report_card(report: MemoryReport) -> str:
    """Figures and holders; below, to be opened, the peak and why arrays were spilled; and what arrays take turns."""
    parts = [info_part(report.info), holders_table(report.holders, parts=True)]
    if report.at_peak is not None:
        parts.append(
            f"<details><summary>at the peak: {text(format_bytes(report.at_peak.bytes))}</summary>{holders_table(report.at_peak.holders, parts=True)}</details>"
        )
    parts.append(_spills(report))
    items = [f"cannot be spilled now: {format_bytes(nbytes)} ({text(reason)})" for reason, nbytes in report.holds.items()]
    items.append(f"host memory: {format_bytes(report.host_used)} of spilled copies, {format_bytes(report.host_pooled)} pooled")
    parts.append('<ul class="tm-list">' + "".join(f"<li>{item}</li>" for item in items) + "</ul>")
    if report.thrashing is not None:
        parts.append(_thrashing(report.thrashing))
    parts.append(_stale(report))
    return card(*parts)


def _spills(report: MemoryReport) -> str:
    if not report.spills:
        return ""
    rows = []
    for one in report.spills[:MOST_HOLDERS]:
        pushed = short_name(one.by_label, one.by_origin) if one.by_label or one.by_origin else ""
        why = one.why + (f", for {pushed}" if pushed else "")
        name = f'{text(short_name(one.label, one.origin))} <span class="tm-dim">{text(why)}</span>'
        rows.append(_row([format_bytes(one.bytes), f"{one.times:,}", f"{one.restores:,}"], name))
    rest = report.spills[MOST_HOLDERS:]
    if rest:
        figures = [format_bytes(sum(one.bytes for one in rest)), f"{sum(one.times for one in rest):,}", f"{sum(one.restores for one in rest):,}"]
        rows.append(_row(figures, f'<span class="tm-dim">{len(rest):,} more</span>'))
    head = '<th>moved out</th><th>spills</th><th>restores</th><th class="tm-name">what, and why</th>'
    table = f'<div class="tm-scroll"><table class="tm-table tm-spills"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    lost = f'<p class="tm-note">{report.spills_lost:,} spills more are not in it: origins were off</p>' if report.spills_lost else ""
    return f"<details><summary>why arrays were spilled</summary>{table}{lost}</details>"


def _thrashing(found: Thrashing) -> str:
    from ._report_text import AGAINST_THRASHING

    names = "; ".join(text(short_name(one.label, one.origin)) for one in found.holders[:MOST_HOLDERS])
    return (
        f'<div class="tm-warn">These arrays take turns on the device, up to {found.rounds:,} times; {format_bytes(found.bytes)} moved: {names}. '
        f"Try {text(AGAINST_THRASHING)}.</div>"
    )


def _stale(report: MemoryReport) -> str:
    """What only a stored traceback keeps alive: it is looked for now, so an older report (of a file, of another process) is not told about."""
    from time import time

    from ._notebook.stale import warning_of_notebook

    return warning_of_notebook() if time() - report.seconds < 60 else ""
