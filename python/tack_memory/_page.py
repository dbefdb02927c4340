"""Reports as web pages: one file, no network, light or dark as the reader's system is, tables that are sorted by clicks."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""What a browser may load for the page: nothing."""


def asset(name: str) -> str:
    """A style or a script of the folder _pages."""
    return (Path(__file__).parent / "_pages" / name).read_text(encoding="utf-8")


def page(title: str, body: str, *names: str) -> str:
    """The whole file. The title is a text, the body HTML; then the styles and scripts that it needs, beside those of all pages."""
    style, script = ("".join(asset(name) for name in ("page.css", "sort.js", *names) if name.endswith(kind)) for kind in (".css", ".js"))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<meta name="viewport" content="width=device-width">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<h1>{escaped(title)}</h1>\n"
        f"{body}\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


class Cell(NamedTuple):
    """A cell of a table."""

    sorted_by: Any  # a number, a text, or None
    html: str
    share: float | None = None  # of the whole, 0 to 1: drawn as a bar behind it
    title: str = ""  # a text that is shown when it is pointed at


def table(heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[Cell]]) -> str:
    """One that can be sorted, in a frame that scrolls: a head is its text, and what it says when it is pointed at; the last column is of texts."""
    texts = [f'<button type="button">{escaped(head)}</button>' for head, _ in heads]
    says = [f' title="{escaped(text)}"' if text else "" for _, text in heads]
    classes = [*[""] * (len(heads) - 1), ' class="line"']
    head = "".join(f'<th scope="col"{kind}{said}>{text}</th>' for kind, said, text in zip(classes, says, texts, strict=True))
    body = "\n".join("<tr>" + "".join(map(_cell, row, classes)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="tack-lines">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _cell(cell: Cell, kind: str) -> str:
    share = "" if cell.share is None else f' class="share" style="--share:{100 * cell.share:.1f}%"'
    title = f' title="{escaped(cell.title)}"' if cell.title else ""
    return f'<td{kind}{share}{title} data-value="{escaped(json.dumps(cell.sorted_by))}">{cell.html}</td>'


def escaped(text: str) -> str:
    """For a place between tags or in quotes. What is no Unicode text (a file's name may be anything) is written with backslashes."""
    return escape(text.encode("utf-8", "backslashreplace").decode("utf-8"), quote=True)


def data(of: Any) -> str:
    """JSON for a script of the page: nothing in it ends the script's element, whatever the names in it are."""
    return json.dumps(of, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
