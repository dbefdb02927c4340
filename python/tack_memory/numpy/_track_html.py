"""A report by line as a web page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _page
from .._cards import card, short_place
from .._page import Cell, escaped, table
from ._track_report import COLUMNS, described

if TYPE_CHECKING:
    from ._track_report import Report, Row


def page(report: Report) -> str:
    """The whole file."""
    return _page.page("Array memory by line", fragment(report))


def fragment(report: Report) -> str:
    """Totals and table; without the page's script it is not sorted by clicks."""
    totals = "\n".join(f"<p>{escaped(line)}</p>" for line in report.summary())
    heads = [*((column.head, column.says) for column in COLUMNS), ("line", "")]
    return f"{totals}\n{table(heads, (_cells(row, report) for row in report.rows))}"


def _cells(row: Row, report: Report) -> list[Cell]:
    cells = []
    for column in COLUMNS:
        value = column.value(row)
        share = value / report.peak if column.attribute == "at_peak" and value and row.device == "numpy" and report.peak else None
        cells.append(Cell(value, escaped(column.text(row)), share))
    freed = "; ".join(f"{one.name} ({one.times:,})" for one in row.freed_by)
    more = f"<small>{escaped('freed by ' + freed)}</small>" if freed else ""
    return [*cells, Cell(row.name, escaped(described(row)) + more, title=row.name)]


MOST_LINES = 20
"""Rows that a notebook shows; the web page has all."""


def notebook_card(report: Report) -> str:
    """The totals and the first rows for a notebook, in its own colours; lines of cells are named by the cell."""
    totals = []
    for line in report.summary():
        if report.peak_line is not None:
            line = line.replace(report.peak_line, short_place(report.peak_line))
        totals.append(f'<p class="tm-note">{escaped(line)}</p>')
    heads = "".join(f'<th title="{escaped(column.says)}">{escaped(column.head)}</th>' for column in COLUMNS)
    rows = []
    for row in report.rows[:MOST_LINES]:
        cells = "".join(f"<td>{escaped(column.text(row))}</td>" for column in COLUMNS)
        more = [row.function] if row.function else []
        if row.freed_by:
            more.append("freed by " + "; ".join(f"{short_place(one.name)} ({one.times:,})" for one in row.freed_by))
        dim = f' <span class="tm-dim">{escaped(", ".join(more))}</span>' if more else ""
        rows.append(f'<tr>{cells}<td class="tm-name">{escaped(short_place(row.name))}{dim}</td></tr>')
    rest = report.rows[MOST_LINES:]
    if rest:
        totals.append(f'<p class="tm-note">{len(rest):,} more lines are not shown: to_html(path) has all</p>')
    head = f'<thead><tr>{heads}<th class="tm-name">line</th></tr></thead>'
    table = f'<div class="tm-scroll"><table class="tm-table">{head}<tbody>{"".join(rows)}</tbody></table></div>'
    return card('<p class="tm-head">Array memory by line</p>', *totals, table)
