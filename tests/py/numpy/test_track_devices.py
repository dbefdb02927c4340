"""Device memory in a report by line: what was allocated, how long it lived, and where it was freed."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support import run_python
from track_support import program, report_of

import tack_memory
import tack_memory.numpy as tn
from tack_memory.numpy import _track_churn, _track_devices

SOURCE = """\
import tack_memory
def make(n):
    return tack_memory.allocate(n, {device!r})
def other(n):
    return tack_memory.allocate(n, {device!r})
def drop(buffer):
    buffer.free()
def churn(n, times):
    for _ in range(times):
        made = make(n)
        del made
"""


@pytest.fixture
def lines(tmp_path: Path, any_device: str) -> Any:
    return program(tmp_path, SOURCE.format(device=any_device))


def row_of(report: Any, line: int, device: str) -> Any:
    (row,) = [row for row in report.rows if row.line == line and row.device == device and row.file is not None and row.file.startswith("/tmp")]
    return row


def test_each_figure(lines: Any, any_device: str) -> None:
    with tn.track() as t:
        kept = lines.make(4096)
        lines.churn(8192, 5)
        lines.drop(lines.make(1000))
        report = report_of(t)
        kept.free()
    row = row_of(report, 3, any_device)
    assert (row.live, row.live_count, row.peak, row.allocations, row.frees, row.total, row.largest) == (4096, 1, 12_288, 7, 6, 4096 + 5 * 8192 + 1000, 8192)
    assert row.churn == row.total / 12_288 and row.at_peak == 12_288
    freed = {one.name.removeprefix(lines.file): one.times for one in row.freed_by}
    assert freed == {":11": 5, ":7": 1}
    assert "made" in str(report) and "freed at" in report.to_text(width=300)
    assert any(one.name.startswith(__file__) for one in row_of(report_of(t), 3, any_device).freed_by)
    (told,) = [one for one in report.to_dict()["rows"] if one["device"] == any_device and one["line"] == 3]
    assert told["allocations"] == 7 and told["churn"] == row.churn


def test_lifetimes(lines: Any, any_device: str) -> None:
    with tn.track() as t:
        for _ in range(5):
            made = lines.make(64)
            time.sleep(0.02)
            begun = time.perf_counter()
            del made
        long = lines.other(64)
        time.sleep(0.1)
        long.free()
        assert begun
    report = report_of(t)
    brief, slow = row_of(report, 3, any_device).median_lifetime, row_of(report, 5, any_device).median_lifetime
    assert 0.02 * 0.75 < brief and 0.1 * 0.75 < slow, "no shorter than they were, but for the width of a bucket"


def test_a_buffer_that_is_spilled_lives_on(tmp_path: Path, device: str) -> None:
    made = program(tmp_path, SOURCE.format(device=device))
    with tn.track() as t:
        buffer = made.make(8192)
        assert buffer.spill() == 8192
        away = row_of(report_of(t), 3, device)
        buffer.restore()
        buffer.spill()
        buffer.free()
    row = row_of(report_of(t), 3, device)
    assert (away.live, away.peak, away.allocations, away.frees) == (8192, 8192, 1, 0)
    assert (row.live, row.peak, row.allocations, row.frees, row.total) == (0, 8192, 1, 1, 8192)
    assert row.median_lifetime is not None and row.freed_by


def test_what_is_older_than_the_track(lines: Any, any_device: str) -> None:
    """Its free is none of the track's, and the peak of its line is what was there."""
    tack_memory.set_origins("line")
    try:
        old = [lines.make(4096), lines.make(4096)]
    finally:
        tack_memory.set_origins("off")
    with tn.track() as t:
        old.pop().free()
        new = lines.make(1024)
        report = report_of(t)
        old.pop().free()
    row = row_of(report, 3, any_device)
    assert (row.live, row.peak, row.allocations, row.frees, row.total) == (5120, 8192, 1, 0, 1024)
    row = row_of(report_of(t), 3, any_device)
    assert (row.live, row.peak, row.frees, row.median_lifetime, row.freed_by) == (1024, 8192, 0, None, ())
    new.free()


def test_freed_in_another_thread(lines: Any, any_device: str) -> None:
    with tn.track() as t:
        thread = threading.Thread(target=lines.drop, args=(lines.make(100),))
        thread.start()
        thread.join()
    (freed,) = row_of(report_of(t), 3, any_device).freed_by
    assert freed.name == f"{lines.file}:7", "the thread's own line"


def test_labels_of_one_line(lines: Any, any_device: str) -> None:
    with tn.track() as t:
        with tack_memory.label("mesh"):
            mesh = lines.make(1000)
        one_label = report_of(t)
        with tack_memory.label("field"):
            field = lines.make(2000)
        two_labels = report_of(t)
        mesh.free()
        field.free()
    row = row_of(one_label, 3, any_device)
    assert (row.label, row.live, row.allocations, row.peak) == ("mesh", 1000, 1, 1000)
    rows = {row.label: row for row in two_labels.rows if row.device == any_device and row.line == 3}
    assert (rows["mesh"].live, rows["field"].live, rows["mesh"].allocations) == (1000, 2000, None)
    assert (rows[None].live, rows[None].allocations, rows[None].total, rows[None].peak) == (0, 2, 3000, None)
    assert sum(row.live for row in rows.values()) == 3000


def test_frees_of_many_lines_are_bounded(tmp_path: Path, any_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_track_churn, "MOST_FREERS", 6)
    frees = "".join(f"def free{i}(b): b.free()\n" for i in range(9))
    made = program(tmp_path, f"import tack_memory\ndef make(n): return tack_memory.allocate(n, {any_device!r})\n{frees}")
    with tn.track() as t:
        for i in range(9):
            getattr(made, f"free{i}")(made.make(10))
    row = row_of(report_of(t), 2, any_device)
    assert len(row.freed_by) == 5 and row.freed_by[-1] == ("(other lines)", 5) and sum(one.times for one in row.freed_by) == row.frees == 9


def test_threads(lines: Any, any_device: str) -> None:
    def work() -> None:
        lines.churn(64, 200)

    with tn.track() as t:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    row = row_of(report_of(t), 3, any_device)
    assert (row.live, row.allocations, row.frees, row.total) == (0, 800, 800, 800 * 64)
    assert {one.name for one in row.freed_by} == {f"{lines.file}:11"}, "where another thread told of a free, its line is not seen, and none is made up"


def test_figures_that_others_change_all_the_time_are_said_to_be_so(lines: Any, any_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(churn: _track_churn.Churn) -> int:
        nonlocal count
        count += 1
        return count

    count = 0
    with tn.track() as t:
        kept = lines.make(100)
        quiet = report_of(t)
        with monkeypatch.context() as patch:
            patch.setattr(_track_churn.Churn, "heard", changed)
            loud = report_of(t)
        kept.free()
    assert count == 2 * _track_devices.TRIES * len(loud.devices)
    for report, exact in ((quiet, True), (loud, False)):
        (summary,) = [one for one in report.devices if one.device == any_device]
        assert summary.exact is exact and report.to_dict()["devices"][report.devices.index(summary)]["exact"] is exact
        assert any(line.startswith(f"{any_device}: other threads") for line in report.summary()) is not exact


def test_two_tracks_have_figures_of_their_own(lines: Any, any_device: str) -> None:
    with tn.track() as outer:
        first = lines.make(100)
        with tn.track() as inner:
            second = lines.make(200)
            first.free()
        second.free()
    assert [(row_of(report_of(t), 3, any_device).allocations, row_of(report_of(t), 3, any_device).frees) for t in (outer, inner)] == [(2, 2), (1, 0)]


def test_a_track_that_is_dropped_listens_no_more(lines: Any, any_device: str) -> None:
    t = tn.track()
    t.__enter__()
    del t
    gc.collect()
    with tn.track():  # ends what was dropped
        pass
    before = tack_memory.event_counts().delivered
    lines.make(100).free()
    assert tack_memory.event_counts().delivered == before


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_has_none_of_it(lines: Any) -> None:
    with tn.track() as t:
        child = os.fork()
        if not child:
            made = tack_memory.allocate(100, "cpu")
            made.free()
            os._exit(7 if not [row for row in t.report(coverage=False).rows if row.device == "cpu"] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_device_that_is_opened_inside_the_track() -> None:
    """Its peak, and what was live then, are known from its first buffer on."""
    script = """
import tack_memory, tack_memory.numpy as tn
with tn.track() as t:
    first = tack_memory.allocate(1000, "sim:0")
    second = tack_memory.allocate(5000, "sim:0")
    second.free()
    third = tack_memory.allocate(10, "sim:0")
(summary,) = [one for one in t.report().devices if one.device == "sim:0"]
assert (summary.in_use, summary.peak) == (1010, 6000), summary
rows = {row.line: row for row in t.report().rows if row.device == "sim:0"}
assert {line: (row.live, row.at_peak, row.peak, row.allocations) for line, row in rows.items()} == {
    4: (1000, 1000, 1000, 1), 5: (0, 5000, 5000, 1), 7: (10, 0, 10, 1)}, rows
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr
