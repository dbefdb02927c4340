"""Reports that are saved, read again, shortened, printed; what a real one says of the peak, of spills and of arrays that take turns."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import report_support
from report_support import HOSTILE, STACK, holder, whole
from support import KIB, MIB, NO_GPU, run_python

import tack_memory
from tack_memory import Buffer, MemoryReport, allocate, launch, memory_budget, memory_report
from tack_memory._report_parts import Spill

HERE = Path(__file__).name


def take_turns(device: str) -> list[Buffer]:
    """Three arrays, of which two fit, round and round."""
    arrays = [allocate(MIB, device, label=f"array {number}") for number in range(3)]
    for _ in range(5):
        for array in arrays:
            with launch(array):
                pass
    return arrays


def test_a_report_says_why_buffers_were_spilled_and_which_take_turns(device: str, stacks: None) -> None:
    tack_memory.reset_peak_memory(device)
    with memory_budget(2 * MIB, device):
        arrays = take_turns(device)
        report = memory_report(device)
    assert report.origins == "stack" and report.at_peak is not None
    assert report.at_peak.bytes == 2 * MIB == sum(one.resident for one in report.at_peak.holders)
    assert sum(spill.times for spill in report.spills if spill.label in ("array 0", "array 1", "array 2")) >= 10
    spill = next(spill for spill in report.spills if spill.label == "array 0" and "take_turns" in (spill.by_stack or ("",))[0])
    assert spill.cause == "budget" and spill.by_origin is not None and HERE in spill.by_origin and spill.by_label in ("array 1", "array 2")
    assert 0 < spill.out_seconds < 60 and spill.bytes == spill.times * MIB
    assert report.thrashing is not None and {one.label for one in report.thrashing.holders} == {"array 0", "array 1", "array 2"}
    report.spills = [spill for spill in report.spills if (spill.label or "").startswith("array ")]  # other tests of this process have spilled, too
    text = str(report)
    assert re.search(r"^why buffers were spilled, \d+ times", text, re.MULTILINE)
    assert f"to stay within the budget, for 1 MiB of array 1 ({__file__}:" in text
    assert re.search(r"^thrashing since \d\d:\d\d:\d\d: these take turns, up to \d+ times; ", text, re.MULTILINE) and "  try: a larger budget" in text
    assert re.search(rf"^ +\S*{HERE}:\d+ test_a_report_says_why", text, re.MULTILINE), "the stack of a holder"
    assert len(arrays) == 3


def test_the_peak_is_shown_where_it_was_more_than_now(device: str, stacks: None) -> None:
    tack_memory.reset_peak_memory(device)
    gone = allocate(3 * MIB, device, label="gone by now")
    gone.free()
    kept = allocate(KIB, device, label="kept")
    report = memory_report(device)
    assert report.at_peak is not None and [one.label for one in report.at_peak.holders] == ["gone by now"]
    assert re.search(r"^at the peak, \d\d:\d\d:\d\d: 3 MiB in use\n.*holder\n.* gone by now", str(report), re.MULTILINE)
    tack_memory.reset_peak_memory(device)
    assert "at the peak" not in str(memory_report(device)) and kept.nbytes == KIB


def test_saved_and_read_it_is_the_same(device: str, stacks: None, tmp_path: Path) -> None:
    with memory_budget(2 * MIB, device):
        arrays = take_turns(device)
        report = memory_report(device)
    report.save(tmp_path / "a.json")
    read = MemoryReport.load(str(tmp_path / "a.json"))
    assert read.to_dict() == report.to_dict() and str(read) == str(report) and type(read.info) is type(report.info) and read.info == report.info
    assert read.spills == report.spills and read.thrashing == report.thrashing and read.at_peak == report.at_peak and read.holders == report.holders
    assert read.info.budget == 2 * MIB and read.info.device == device and len(arrays) == 3
    assert pickle.loads(pickle.dumps(report.spills)) == report.spills and isinstance(report.spills[0], Spill)


def test_a_file_can_be_read_in_another_process(tmp_path: Path) -> None:
    whole().save(tmp_path / "a.json")
    done = run_python("import sys, tack_memory; print(tack_memory.MemoryReport.load(sys.argv[1]))", str(tmp_path / "a.json"), **NO_GPU)
    assert done.stdout == f"{whole()}\n", done.stderr


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    report_support.report(holder("a\udcffb", "/tmp/\udcff.py:1", 5)).save(tmp_path / "a.json")
    [one] = MemoryReport.load(tmp_path / "a.json").holders
    assert (one.label, one.origin) == ("a\udcffb", "/tmp/\udcff.py:1")
    assert one.name == "a\\udcffb (/tmp/\udcff.py:1)", "a label is shown on one line, whatever is in it"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no report of tack_memory: memory_report().save"),
        (b"\xff\xfe\x00", "is no report of tack_memory"),
        (b"[]", "is no report of tack_memory"),
        (b'{"format": "other", "version": 1}', "is no report of tack_memory"),
        (b'{"format": "tack_memory report", "version": "1"}', "is no report of tack_memory"),
        (b'{"format": "tack_memory report", "version": 2}', "has version 2 of the format of reports, and this package reads 1: read it with a newer"),
        (b'{"format": "tack_memory report", "version": 1}', "is a report of tack_memory that was changed, or cut off: device is missing"),
        (b'{"format": "tack_memory report", "version": true}', "is no report of tack_memory"),
        (b"[" * 200_000, "is no report of tack_memory"),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        MemoryReport.load(tmp_path / "a.json")


@pytest.mark.parametrize("key", ["info", "holders", "at_peak", "spills", "thrashing", "host_pool", "holds"])
@pytest.mark.parametrize("value", [7, "text", [1], {"a": 1}])
def test_a_file_that_was_changed_is_refused_and_never_half_read(tmp_path: Path, key: str, value: object) -> None:
    changed = {"format": "tack_memory report", "version": 1, **whole().to_dict(), key: value}
    (tmp_path / "a.json").write_text(json.dumps(changed))
    if key == "holds" and value == {"a": 1}:
        assert MemoryReport.load(tmp_path / "a.json").holds == {"a": 1}
        return
    if key == "host_pool" and value == {"a": 1}:
        assert MemoryReport.load(tmp_path / "a.json").host_used == 0
        return
    with pytest.raises(ValueError, match="that was changed, or cut off"):
        MemoryReport.load(tmp_path / "a.json")


def paths(told: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Of all values in JSON: the keys and indices that lead there."""
    for key, value in told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ():
        yield (*path, key)
        yield from paths(value, (*path, key))


DROPPED = object()


VALUES = [DROPPED, None, "text", -1, 1.5, 10**30, float("inf"), True, [], {}, ["text"], {"a": 1}]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: "dropped" if value is DROPPED else repr(value))
def test_what_is_read_can_be_printed_drawn_and_compared(tmp_path: Path, value: object) -> None:
    """Each value in a file is dropped, or takes another form: either the file is refused, or all that can be done with a report works."""
    file, refused, read = tmp_path / "a.json", 0, 0
    for *way, last in paths(whole().to_dict()):
        told: Any = {"format": "tack_memory report", "version": 1, **whole().to_dict()}
        inner = told
        for key in way:
            inner = inner[key]
        if value is DROPPED:
            del inner[last]
        else:
            inner[last] = value
        file.write_text(json.dumps(told))
        try:
            report = MemoryReport.load(file)
        except ValueError as error:
            assert "that was changed, or cut off: " in str(error), (way, last)
            refused += 1
            continue
        read += 1
        report.relative_to("/home").to_html(tmp_path / "a.html")
        report.to_pprof(tmp_path / "a.pb.gz")
        assert str(report) and report._repr_html_() and json.loads(json.dumps(report.to_dict())), (way, last)
        assert str(whole().diff(report)) and report.diff(whole())._repr_html_(), (way, last)
    assert refused and (read or value not in (DROPPED, None, "text", [])), "which fit some places"


def test_what_a_file_of_a_newer_version_adds_is_let_be(tmp_path: Path) -> None:
    told = {"format": "tack_memory report", "version": 1, **whole().to_dict(), "added": 7}
    told["holders"][0]["added"] = []
    (tmp_path / "a.json").write_text(json.dumps(told))
    assert MemoryReport.load(tmp_path / "a.json").to_dict() == whole().to_dict()


def test_what_is_wrong_in_a_file_is_named(tmp_path: Path) -> None:
    told = {"format": "tack_memory report", "version": 1, **whole().to_dict()}
    told["spills"][0]["by_stack"][1] = 7
    (tmp_path / "a.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"that was changed, or cut off: spills\[0\]\.by_stack\[1\] must be a text$"):
        MemoryReport.load(tmp_path / "a.json")


def test_paths_below_the_root_are_shortened_everywhere() -> None:
    short = whole().relative_to("/home/me/project/")
    assert "/home/me" not in json.dumps(short.to_dict()) and "/home/me" in json.dumps(whole().to_dict())
    assert short.holders[0].name == "points (mesh.py:7)" and short.holders[0].stack == ("mesh.py:7 points", "main.py:3 <module>")
    assert short.spills[0].by_name == "points (mesh.py:7)" and short.spills[0].origin == "/tmp/<i>.py:1", "other folders stay as they are"
    assert short.at_peak is not None and short.at_peak.holders[0].origin == "mesh.py:7"
    assert whole().relative_to(Path("/home/me/proj")).holders[0].origin == "/home/me/project/mesh.py:7", "a folder, and no beginning of a name"


def test_the_whole_text() -> None:
    assert (
        re.sub(r"\d\d:\d\d:\d\d", "..:..:..", str(whole()))
        == f"""\
MemoryInfo(cuda:0: in use 6 MiB, peak 9 MiB, spilled 4 MiB, budget 8 MiB)
     bytes  on device    spilled   count  holder
     4 MiB      4 MiB        0 B       1  points (/home/me/project/mesh.py:7)
                                           {STACK[1]}
     6 MiB      2 MiB      4 MiB       3  {HOSTILE} (/tmp/<i>.py:1)
cannot be spilled now: 1 MiB (hold: {HOSTILE})
host memory: 4 MiB of spilled copies, 0 B pooled

at the peak, ..:..:..: 9 MiB in use
     bytes  on device    spilled   count  holder
     9 MiB      9 MiB        0 B       1  points (/home/me/project/mesh.py:7)
                                           {STACK[1]}

why buffers were spilled, 5 times; of 2 more the cause is not known, for origins were off
     moved   times   were out  what, and why
    20 MiB       5      2.5 s  {HOSTILE} (/tmp/<i>.py:1), 2 still out
                               to stay within the budget, for 4 MiB of points (/home/me/project/mesh.py:7)

thrashing since ..:..:..: these take turns, up to 4 times; 32 MiB moved
    28 MiB       4 out     3 back  {HOSTILE} (/tmp/<i>.py:1)
  try: a larger budget (set_memory_budget), smaller pieces at a time, or to finish with one array before the next is used"""
    )


def test_long_parts_are_cut_and_added_up() -> None:
    made = whole().to_dict()
    made["spills"] = made["spills"] * 13
    peak = made["at_peak"]
    peak["holders"] = peak["holders"] * 12
    text = str(report_support.of_dict(made))
    assert "60 MiB in 3 more rows" in text and "18 MiB in 2 more holders" in text


@pytest.mark.parametrize("wrong", [7, None, b"a.json", 1.5])
def test_a_path_that_is_none_is_refused(wrong: object, device: str) -> None:
    made = whole()
    for call in (made.save, made.to_html, made.to_pprof, made.relative_to, MemoryReport.load):
        with pytest.raises(TypeError, match=r"path must be the name of a file \(a str or an os.PathLike\), not "):
            call(wrong)  # type: ignore[operator]


def test_a_report_of_a_forked_child_has_the_parts_that_it_can_know() -> None:
    script = """
        import os, tack_memory
        tack_memory.set_origins("line")
        kept = tack_memory.allocate(100, "cpu", label="kept")
        if os.fork() == 0:
            report = tack_memory.memory_report("cpu")
            assert [(one.label, one.bytes) for one in report.holders] == [("kept", 100)]
            assert report.at_peak is None and report.spills == [] and report.thrashing is None
            os._exit(0)
        assert os.wait()[1] == 0
    """
    done = run_python(script)
    assert done.returncode == 0, done.stderr
