"""The HTML of MemoryInfo, MemoryPeak and MemoryReport: whole, escaped, readable on light and on dark pages, and true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from support import KIB, MIB

import tack_memory
from tack_memory import _cards

DEVICE = "sim:1"  # where other tests have nothing
EVIL = "<script>alert('x')</script>\"&'\u2028"
VOID = {"br"}


class Checker(HTMLParser):
    """Tags that fit together, and no script."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag != "script" and not any(name.startswith("on") for name, _ in attributes)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data + "\n"


def checked(html: str) -> Checker:
    found = Checker()
    found.feed(html)
    found.close()
    assert not found.open, f"not closed: {found.open}"
    assert html.startswith('<div class="tack-memory">')
    return found


def widths(html: str) -> dict[str, tuple[float, float]]:
    """(left, width) in percent of each part of the bar; a mark has no width."""
    found = {}
    for kind, style in re.findall(r'<i class="tm-(\w+)" style="([^"]*)"', html):
        left, width = (re.search(rf"{name}:([\d.]+)", style) for name in ("left", "width"))
        found[kind] = float(left[1]) if left else 0.0, float(width[1]) if width else 0.0
    return found


@pytest.fixture
def budget() -> Iterator[None]:
    before = tack_memory.get_memory_budget(DEVICE)
    yield
    tack_memory.set_memory_budget(before, DEVICE)


def test_the_bar_of_an_info_has_its_parts_to_scale(budget: None) -> None:
    tack_memory.reset_peak_memory(DEVICE)
    a, b = tack_memory.allocate(4 * MIB, DEVICE), tack_memory.allocate(2 * MIB, DEVICE)
    tack_memory.set_memory_budget(16 * MIB, DEVICE)
    b.spill()
    html = tack_memory.memory_info(DEVICE)._repr_html_()
    assert html is not None
    parts = widths(html)
    assert parts["used"] == (0, 25) and parts["spilled"] == (25, 12.5) and parts["mark"][0] == 37.5
    shown = checked(html).text
    assert "sim:1" in shown and "4 MiB" in shown and "16 MiB" in shown and "6 MiB" in shown
    assert a.nbytes


def test_a_budget_that_is_passed_is_told_in_words_and_in_the_bar() -> None:
    fields = {"device": "cuda:0", "budget": 10, "strict": False, "over_budget": 30, "spill_count": 1234, "restore_count": 0}
    info: Any = type("Info", (), {"in_use": 40, "peak": 40, "spilled": 0, "cached": None, "device_free": None, "device_total": 100, **fields})
    html = _cards.info_card(info)
    parts = widths(html)
    assert parts["over"] == (0, 100) and parts["budget"][0] == 25 and "used" not in parts
    shown = checked(html).text
    assert "over the budget by\n30 B" in shown and "unknown of 100 B" in shown and "1,234 and 0" in shown


def test_where_nothing_is_known_there_is_no_bar() -> None:
    assert _cards.bar(0, 0, 0, None, None) == ""
    assert widths(_cards.bar(5, 0, 10, None, None)) == {"used": (0, 50), "mark": (100, 0)}


def test_whatever_users_write_is_escaped() -> None:
    before = tack_memory.set_origins("line")
    try:
        code = compile(f"block = allocate({64 * KIB}, {DEVICE!r}, label={EVIL!r})\n", "<img src=x onerror=alert(1)>.py", "exec")
        space: dict[str, Any] = {"allocate": tack_memory.allocate}
        with tack_memory.memory_peak(DEVICE, label=EVIL) as peak:
            exec(code, space)
            with space["block"].hold(reason=EVIL):
                report = tack_memory.memory_report(DEVICE)
    finally:
        tack_memory.set_origins(before)
    for html in (report._repr_html_(), peak._repr_html_()):
        shown = checked(html)
        assert "script" not in shown.tags and "img" not in shown.tags
        assert "<script>alert('x')" in shown.text.replace("\n", ""), "the text is there, as a text"
        assert "onerror=alert(1)>.py:1" in shown.text.replace("\n", "")


def test_what_is_no_unicode_text_is_written_with_backslashes() -> None:
    assert _cards.text("a\udcffb<") == "a\\udcffb&lt;"


def test_a_peak_that_is_open_or_was_never_entered_has_a_card() -> None:
    scope = tack_memory.memory_peak(DEVICE, label="later")
    assert "not entered yet" in checked(scope._repr_html_()).text
    with scope:
        block = tack_memory.allocate(MIB, DEVICE)
        assert "so far" in checked(scope._repr_html_()).text
    assert "1 MiB" in checked(scope._repr_html_()).text and block.nbytes


def test_holders_beyond_the_first_are_one_row_with_their_sum() -> None:
    blocks = [tack_memory.allocate(KIB * (50 - number), DEVICE, label=f"number {number}") for number in range(_cards.MOST_HOLDERS + 3)]
    report = tack_memory.memory_report(DEVICE)
    extra = sum(holder.bytes for holder in report.holders[_cards.MOST_HOLDERS :])
    shown = checked(report._repr_html_()).text
    assert f"{len(report.holders) - _cards.MOST_HOLDERS} more" in shown and tack_memory._accounting.format_bytes(extra) in shown
    assert blocks


def test_a_report_tells_the_peak_why_arrays_were_spilled_and_which_take_turns(budget: None) -> None:
    before = tack_memory.set_origins("stack")
    try:
        tack_memory.reset_peak_memory(DEVICE)
        tack_memory.set_memory_budget(10 * MIB, DEVICE)
        first = tack_memory.allocate(6 * MIB, DEVICE, label="<first>")
        second = tack_memory.allocate(7 * MIB, DEVICE, label="second")
        for _ in range(4):
            first.restore()
            second.restore()
        report = tack_memory.memory_report(DEVICE)
    finally:
        tack_memory.set_origins(before)
    assert report.spills and report.thrashing is not None and report.at_peak is not None, "or this shows nothing"
    found = checked(report._repr_html_())
    words = " ".join(found.text.split())
    assert f"at the peak: {_cards.format_bytes(report.at_peak.bytes)}" in words and "why arrays were spilled" in words
    spill = next(one for one in report.spills if one.label == "<first>")
    assert f"{_cards.format_bytes(spill.bytes)} {spill.times} {spill.restores} <first>" in words and "to stay within the budget, for second" in words
    assert "These arrays take turns on the device" in words and found.tags.count("details") >= 4, "two of them, and the stacks of two holders"
    assert "test_cards.py" in words
    assert second.nbytes


def test_a_report_of_another_process_says_nothing_of_this_ones_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    from tack_memory._notebook import stale

    monkeypatch.setattr(stale, "warning_of_notebook", lambda: "<b>kept</b>")
    report = tack_memory.memory_report(DEVICE)
    assert "<b>kept</b>" in report._repr_html_()
    report.seconds -= 3600
    assert "<b>kept</b>" not in report._repr_html_()


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("fallbacks", [_cards._LIGHT, _cards._DARK], ids=["light", "dark"])
def test_text_and_bars_have_contrast_where_no_theme_gives_colours(fallbacks: dict[str, str]) -> None:
    """WCAG: 4.5 for text, 3 for what is drawn."""
    colour = {name: value.partition(", ")[2] for name, value in fallbacks.items()}
    assert contrast(colour["text"], colour["back"]) >= 4.5 and contrast(colour["dim"], colour["back"]) >= 4.5
    for drawn in re.findall(r"--tm-(?:used|spilled|over):(#\w{6})", _cards._STYLE):
        assert contrast(drawn, colour["back"]) >= 3 and contrast(drawn, colour["track"]) >= 3, drawn


def test_every_rule_of_the_style_is_about_our_cards_only() -> None:
    flat = _cards._STYLE.replace("@media (prefers-color-scheme:dark){", "").replace("}}", "}")
    for rule in re.findall(r"([^{}]+)\{", flat):
        for selector in rule.split(","):
            assert selector.strip().startswith("div.tack-memory"), selector
