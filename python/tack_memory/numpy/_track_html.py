"""A report by line as a web page: one file, no network, sorted by clicks, light or dark as the reader's system is."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING

from .._cards import card, short_place
from ._track_report import COLUMNS, described

if TYPE_CHECKING:
    from ._track_report import Report, Row

STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --head: #f3f5f7; --dim: #59636e; --bar: #9ec5fe }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --head: #21262d; --dim: #9198a1; --bar: #1f4b8e } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; max-width: 100rem }
h1 { font-size: 1.3rem } p { margin: .2rem 0 }
div.scroll { overflow-x: auto; margin-top: 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; vertical-align: top }
th { background: var(--head); position: sticky; top: 0 }
th button { all: unset; cursor: pointer; font-weight: 600 } th button:focus-visible { outline: 2px solid }
th[aria-sort=ascending] button::after { content: " \\2191" } th[aria-sort=descending] button::after { content: " \\2193" }
td.line, th.line { text-align: left; white-space: normal; overflow-wrap: anywhere; font-family: ui-monospace, monospace }
td small { color: var(--dim); display: block }
td.share { background: linear-gradient(to left, var(--bar) var(--share), transparent var(--share)) }
"""

SCRIPT = """
for (const table of document.querySelectorAll('table.tack-lines')) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstElementChild.addEventListener('click', () => {
    const down = head.getAttribute('aria-sort') !== 'descending', sign = down ? -1 : 1;
    const key = row => JSON.parse(row.cells[column].dataset.value);
    const order = (a, b) => a === b ? 0 : a === null ? 1 : b === null ? -1 : a < b ? -sign : sign;
    heads.forEach(other => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
  }));
}
"""


def page(report: Report) -> str:
    """The whole file."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta name="viewport" content="width=device-width">\n'
        f"<title>Array memory by line</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Array memory by line</h1>\n"
        f"{fragment(report)}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def fragment(report: Report) -> str:
    """Totals and table; without the page's script it is not sorted by clicks."""
    totals = "\n".join(f"<p>{_text(line)}</p>" for line in report.summary())
    heads = "".join(f'<th scope="col" title="{_text(column.says)}"><button type="button">{_text(column.head)}</button></th>' for column in COLUMNS)
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
        cells.append(f'<td{share} data-value="{_text(json.dumps(value))}">{_text(column.text(row))}</td>')
    freed = "; ".join(f"{one.name} ({one.times:,})" for one in row.freed_by)
    more = f"<small>{_text('freed by ' + freed)}</small>" if freed else ""
    return f'<tr>{"".join(cells)}<td class="line" title="{_text(row.name)}" data-value="{_text(json.dumps(row.name))}">{_text(described(row))}{more}</td></tr>'


MOST_LINES = 20
"""Rows that a notebook shows; the web page has all."""


def notebook_card(report: Report) -> str:
    """The totals and the first rows for a notebook, in its own colours; lines of cells are named by the cell."""
    totals = []
    for line in report.summary():
        if report.peak_line is not None:
            line = line.replace(report.peak_line, short_place(report.peak_line))
        totals.append(f'<p class="tm-note">{_text(line)}</p>')
    heads = "".join(f'<th title="{_text(column.says)}">{_text(column.head)}</th>' for column in COLUMNS)
    rows = []
    for row in report.rows[:MOST_LINES]:
        cells = "".join(f"<td>{_text(column.text(row))}</td>" for column in COLUMNS)
        more = [row.function] if row.function else []
        if row.freed_by:
            more.append("freed by " + "; ".join(f"{short_place(one.name)} ({one.times:,})" for one in row.freed_by))
        dim = f' <span class="tm-dim">{_text(", ".join(more))}</span>' if more else ""
        rows.append(f'<tr>{cells}<td class="tm-name">{_text(short_place(row.name))}{dim}</td></tr>')
    rest = report.rows[MOST_LINES:]
    if rest:
        totals.append(f'<p class="tm-note">{len(rest):,} more lines are not shown: to_html(path) has all</p>')
    head = f'<thead><tr>{heads}<th class="tm-name">line</th></tr></thead>'
    table = f'<div class="tm-scroll"><table class="tm-table">{head}<tbody>{"".join(rows)}</tbody></table></div>'
    return card('<p class="tm-head">Array memory by line</p>', *totals, table)


def _text(text: str) -> str:
    """For a place between tags or in quotes. What is no Unicode text (a file's name may be anything) is written with backslashes."""
    return escape(text.encode("utf-8", "backslashreplace").decode("utf-8"), quote=True)
