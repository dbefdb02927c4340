"""A report by line as a web page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _page
from .._page import escaped
from ._track_report import COLUMNS, described

if TYPE_CHECKING:
    from ._track_report import Report, Row


def page(report: Report) -> str:
    """The whole file."""
    return _page.page("Array memory by line", fragment(report))


def fragment(report: Report) -> str:
    """Totals and table; without the page's script it is not sorted by clicks."""
    totals = "\n".join(f"<p>{escaped(line)}</p>" for line in report.summary())
    heads = "".join(f'<th scope="col" title="{escaped(column.says)}"><button type="button">{escaped(column.head)}</button></th>' for column in COLUMNS)
    rows = "\n".join(_row(row, report) for row in report.rows)
    return (
        f'{totals}\n<div class="scroll"><table class="tack-lines">\n<thead><tr>{heads}'
        '<th scope="col" class="line"><button type="button">line</button></th></tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _row(row: Row, report: Report) -> str:
    cells = []
    for column in COLUMNS:
        value, share = column.value(row), ""
        if column.attribute == "at_peak" and value and row.device == "numpy" and report.peak:
            share = f' class="share" style="--share:{100 * value / report.peak:.1f}%"'
        cells.append(f'<td{share} data-value="{_page.value(value)}">{escaped(column.text(row))}</td>')
    freed = "; ".join(f"{one.name} ({one.times:,})" for one in row.freed_by)
    more = f"<small>{escaped('freed by ' + freed)}</small>" if freed else ""
    return f'<tr>{"".join(cells)}<td class="line" title="{escaped(row.name)}" data-value="{_page.value(row.name)}">{escaped(described(row))}{more}</td></tr>'
