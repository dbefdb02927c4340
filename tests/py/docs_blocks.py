"""The programs of the documentation and what they print. As a script it writes what they print now into the pages: `python tests/py/docs_blocks.py PAGE...`.

A block `python` is a whole program, and the block `text` after it is what it prints; with title="test_x.py" it is a file of tests, and the text a part of
what pytest says. A block `py` is not run: it needs a GPU, Tack or a notebook.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Program(NamedTuple):
    """One program of a page."""

    page: Path
    code: str
    title: str  # of the file; empty where it has none
    shown: str
    place: tuple[int, int]  # of what is shown, in the page's text


def programs(page: Path) -> Iterator[Program]:
    """Those of a page that are run. One without a text after it is an error."""
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    for number, fence in enumerate(fences):
        if fence[1] != "python":
            continue
        after = fences[number + 1] if number + 1 < len(fences) else None
        if after is None or after[1] != "text":
            raise ValueError(f"{page.relative_to(ROOT)}: no block `text` comes after the program {fence[3][:60]!r}; one that is not run is a block `py`")
        title = re.search(r'title="([^"]*)"', fence[2])
        yield Program(page, fence[3], title[1] if title else "", after[3], after.span(3))


def not_run(page: Path) -> int:
    """How many programs of a page are not run."""
    return sum(fence[1] == "py" for fence in FENCE.finditer(page.read_text(encoding="utf-8")))


def printed(program: Program) -> str:
    """What it prints now, in a folder of its own, without settings of the environment."""
    settings = ("TACK_MEMORY_", "TMSOFT_", "PYTEST_", "CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "PYTHON_COLORS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    with tempfile.TemporaryDirectory() as folder:
        name = program.title or "program.py"
        (Path(folder) / name).write_text(program.code, encoding="utf-8")
        pytest = name.startswith("test_")
        command = [sys.executable, *(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"] if pytest else []), name]
        done = subprocess.run(command, cwd=folder, env={**environment, "COLUMNS": "200"}, text=True, capture_output=True, timeout=120, check=False)
    if done.returncode != (1 if pytest else 0):
        raise AssertionError(f"{program.page.relative_to(ROOT)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.replace(f"{Path(folder).resolve()}/", "")


def steady(text: str) -> str:
    """Without what differs from run to run: times."""
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "CLOCK", text)
    return re.sub(r" *\b\d[\d.e-]* (ns|us|ms|s)\b", " TIME", text)


def main() -> None:
    for name in sys.argv[1:]:
        page = Path(name).resolve()
        text = page.read_text(encoding="utf-8")
        for program in reversed(list(programs(page))):
            if not program.title:
                begin, end = program.place
                text = text[:begin] + printed(program) + text[end:]
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
