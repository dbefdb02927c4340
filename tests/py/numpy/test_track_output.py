"""What a report looks like: on a terminal, as a web page, as JSON, and in pprof."""

from __future__ import annotations

import gzip
import html.parser
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from track_support import program, report_of

import tack_memory.numpy as tn
from tack_memory._sizes import format_seconds
from tack_memory.numpy._track_devices import DeviceSummary
from tack_memory.numpy._track_report import Freed, Report, Row

ROOT = Path(__file__).parents[3]
HOSTILE = "/a/<script>alert('x')</script>&\"\x1b[31m\n\udcff.py"


def made_up() -> Report:
    rows = [
        Row(
            "numpy", f"{HOSTILE}:7", HOSTILE, 7, "<img src=x onerror=alert(1)>", 10, 1, 2048, 2, 4096, 5, 1, 4, 9000, 4000, 2.5e-6, (Freed(f"{HOSTILE}:9", 3),)
        ),
        Row("numpy", "(from before the track)", live=5, at_peak=6),
        Row("cuda:0", "<b>weights</b> (/m.py:3)", "/m.py", 3, None, 2**40, 12, None, None, label="<b>weights</b>"),
    ]
    return Report(rows, 15, 2054, 5, 0.25, f"{HOSTILE}:7", 1.5, 2, [DeviceSummary("cuda:0", 2**40, 0, None)], None, 0, False)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("a folder with a name that is longer than most of those that people have, to see what is cut")
    made = program(folder, "import numpy\n" + "".join(f"def make{i}(): return numpy.empty({1000 * (i + 1)}, 'u1')\n" for i in range(40)))
    with tn.track() as t:
        kept = [getattr(made, f"make{i}")() for i in range(40)]
        report = report_of(t)
    del kept
    return report


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_rows_fit_the_width(real: Report, width: int) -> None:
    lines = real.to_text(top=15, width=width).splitlines()
    head = next(i for i, line in enumerate(lines) if line.endswith(" line"))
    table, last = lines[head:-1], lines[-1]
    assert len(table) == 16 and all(len(line) <= width for line in table)
    assert last.startswith(f"and {len(real.rows) - 15} more lines: ")
    assert all(":" in line and line.rstrip()[-1] != "." for line in table[1:]), "the line's number is there on the narrowest terminal"
    assert ("lifetime" in lines[head]) == (width >= 110)


def test_a_wide_terminal_shows_where_most_was_freed() -> None:
    row = Row("numpy", "/a.py:7", "/a.py", 7, "make", 1, 1, 1, 1, 1, 4, 0, 4, 9, 9, None, (Freed("/a.py:9", 3), Freed("/b.py:1", 1)))
    assert Report([row]).to_text(width=200).endswith(" /a.py:7 make, freed at :9 (75%)")
    assert Report([row]).to_text(width=60).endswith(" /a.py:7 make")
    other = Row("numpy", "/a.py:7", "/a.py", 7, None, freed_by=(Freed("/b.py:1", 1),))
    assert Report([other]).to_text(width=200).endswith(" /a.py:7, freed at /b.py:1")


def test_print_writes_all_totals(real: Report, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    real.print(top=3)
    text = capsys.readouterr().out
    assert "NumPy's arrays: " in text and f"peak: 801 KiB, reached after {format_seconds(real.peak_after)} by {real.peak_line}" in text
    assert [line.rpartition(":")[2] for line in text.splitlines()[-4:-1]] == [
        "41",
        "40",
        "39",
    ] and "\nand 37 more lines: 687 KiB at the peak, 687 KiB live\n" in text
    out = io.StringIO()
    real.print(file=out, top=3)
    assert out.getvalue() == text


def test_nothing_of_a_name_reaches_the_terminal() -> None:
    text = made_up().to_text(width=160)
    assert "\x1b" not in text and text.count("\n") == 8 and "\\x1b[31m\\n" in text
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    made_up().print(file=out)
    out.flush()


class Page(html.parser.HTMLParser):
    """Tags and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_escapes_everything(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    text = made_up().to_html(path)
    assert path.read_text(encoding="utf-8") == text
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "p", "div", "table", "thead", "tbody", "tr", "th", "td", "button", "small", "script",
    }  # fmt: skip
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert any("<img src=x onerror=alert(1)>" in one for one in page.texts), "it is there as text"
    assert any("<b>weights</b>" in one for one in page.texts)


def test_the_page_needs_no_network_and_can_be_sorted(real: Report) -> None:
    text = real.to_html()
    assert "http:" not in text and "https:" not in text and "url(" not in text and "@import" not in text
    page = Page(text)
    assert not any(name in ("src", "href") for _, attributes in page.tags for name in attributes)
    assert "prefers-color-scheme: dark" in text
    rows = [tag for tag, _ in page.tags].count("tr") - 1
    assert rows == len(real.rows)
    cells = [json.loads(attributes["data-value"]) for tag, attributes in page.tags if tag == "td"]
    columns = len([tag for tag, _ in page.tags if tag == "th"])
    assert len(cells) == rows * columns and cells[0] == real.rows[0].at_peak and cells[columns - 1] == real.rows[0].name
    assert [tag for tag, _ in page.tags].count("button") == columns
    assert "<script" not in real._repr_html_()


def test_json_has_all_of_it(real: Report) -> None:
    found = json.loads(real.to_json())
    assert len(found["rows"]) == len(real.rows) and found["peak"] == real.peak and found["coverage"] is None
    assert found["rows"][0]["name"] == real.rows[0].name and found["rows"][0]["churn"] == 1.0
    odd = json.loads(made_up().to_json(indent=1))
    assert odd["rows"][0]["freed_by"] == [{"name": f"{HOSTILE}:9", "times": 3}] and odd["devices"][0]["peak"] is None


def top_of(file: Path, sample: str) -> str:
    """`go tool pprof -top`, of the toolchain that builds this package."""
    command = [sys.executable, "buildsystem/toolchain.py", "go", "tool", "pprof", "-top", "-lines", "-nodecount=100", "-nodefraction=0", "-unit=B"]
    done = subprocess.run([*command, f"-sample_index={sample}", str(file)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("sample", ["live", "peak", "allocations", "total"])
def test_pprof_opens_it(real: Report, sample: str, tmp_path: Path) -> None:
    file = tmp_path / "memory.pb.gz"
    real.to_pprof(file)
    text = top_of(file, sample)
    assert f"Type: {sample}\n" in text
    of_line = {row.function: row for row in real.rows if row.function}
    for function in ("make39", "make3"):
        (line,) = [line for line in text.splitlines() if f" {function} " in line]
        row = of_line[function]
        value = {"live": row.live, "peak": row.at_peak, "allocations": row.allocations, "total": row.total}[sample]
        assert line.split()[0] == f"{value}B" and line.endswith(f":{row.line}"), "-unit=B says so of numbers, too"


def test_a_profile_of_odd_names_opens(tmp_path: Path) -> None:
    file = tmp_path / "memory.pb.gz"
    made_up().to_pprof(file)
    assert "2048B" in top_of(file, "peak")
    assert b"array memory by line" in gzip.decompress(file.read_bytes())
    Report().to_pprof(file)
    assert "nothing was allocated" in Report().to_text()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3e-9, "3 ns"), (1.234e-6, "1.23 us"), (0.0125, "12.5 ms"), (0.9999, "1 s"), (61, "61 s"), (3601, "60 min 1 s"), (7300, "2 h 1 min")],
)
def test_times_are_written_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_what_is_asked_for_what_lies_around_it_and_what_the_process_has_are_told_apart() -> None:
    with tn.track() as track:
        array = numpy.ones(2**22)
        alive = track.report(coverage=False)
    del array
    gone = track.report(coverage=False)
    assert alive.in_use == 2**25 and 0 < alive.overhead <= 64 and alive.resident is not None and alive.resident > 2**25
    assert gone.overhead == tn.statistics().overhead
    assert f"around them: {alive.overhead} B of headers and alignment; the whole process has " in str(alive)
    assert alive.to_dict()["resident"] == alive.resident
