"""Reports as web pages: one file, no network, light or dark as the reader's system is, tables that are sorted by clicks."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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


def escaped(text: str) -> str:
    """For a place between tags or in quotes. What is no Unicode text (a file's name may be anything) is written with backslashes."""
    return escape(text.encode("utf-8", "backslashreplace").decode("utf-8"), quote=True)


def value(of: Any) -> str:
    """For a cell's data-value: what its column is sorted by."""
    return escaped(json.dumps(of))


def data(of: Any) -> str:
    """JSON for a script of the page: nothing in it ends the script's element, whatever the names in it are."""
    return json.dumps(of, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
