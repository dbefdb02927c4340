"""A report by line has exact figures: for programs whose lines are known, and, against plain Python, for random ones."""

from __future__ import annotations

import gc
import random
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy_support import ALLOCATORS
from track_support import Oracle, check_sums, program, report_of, row_named, rows_of

import tack_memory
import tack_memory.numpy as tn

LINES = 12
MAKERS = "import numpy\n" + "".join(f"def make{i}(n): return numpy.{'zeros' if i % 2 else 'empty'}(n, 'u1')\n" for i in range(LINES))
"""make0 is on line 2."""


def makers(folder: Path) -> tuple[str, list[Any]]:
    made = program(folder, MAKERS)
    return made.file, [getattr(made, f"make{i}") for i in range(LINES)]


def test_each_figure_of_a_known_program(tmp_path: Path) -> None:
    file, make = makers(tmp_path)
    with tn.track() as t:
        kept = [make[0](1000), make[0](3000)]
        large = make[1](50_000)
        del large
        kept.append(make[2](10_000))
        kept[0] = None
        report = report_of(t)
    rows = rows_of(report, file)
    first, second, third = rows[2], rows[3], rows[4]
    assert (first.live, first.live_count, first.at_peak, first.at_peak_count, first.peak) == (3000, 1, 4000, 2, 4000)
    assert (first.allocations, first.resizes, first.frees, first.total, first.largest) == (2, 0, 1, 4000, 3000)
    assert (second.live, second.live_count, second.at_peak, second.at_peak_count, second.peak) == (0, 0, 50_000, 1, 50_000)
    assert (third.live, third.at_peak, third.peak, third.total, third.churn) == (10_000, 0, 10_000, 10_000, 1.0)
    assert report.peak_line == f"{file}:3" and 0 <= report.peak_after <= report.seconds
    assert report.in_use == 13_000 + report.before and report.peak == 54_000 + report.before and report.failed == 0
    assert [row.function for row in (first, second, third)] == ["make0", "make1", "make2"]
    assert report.rows[0] == second, "what held most at the peak is first"
    check_sums(report)
    del kept


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_against_plain_python(allocator: str, seed: int, tmp_path: Path) -> None:
    """Also what was live at the peak, by line, at many moments."""
    pick = random.Random(f"{allocator} {seed}")
    file, make = makers(tmp_path)
    with tn.use(**ALLOCATORS[allocator]):
        alive: list[list[Any]] = [[make[0](size), 0, False] for size in (500, 7000)]  # array, maker, made inside
        start = tn.statistics().in_use
        oracle = Oracle(start, start)
        with tn.track() as t:
            for step in range(3000):
                act = pick.random()
                if act < 0.45 or not alive:
                    maker, size = pick.randrange(LINES), pick.choice((0, 1, 50, 3000, pick.randrange(200_000)))
                    alive.append([make[maker](size), maker + 2, True])
                    oracle.new(maker + 2, max(size, 1))
                elif act < 0.9:
                    array, line, inside = alive.pop(pick.randrange(len(alive)))
                    oracle.free(line, max(array.nbytes, 1), inside)
                    del array
                else:
                    entry = pick.choice(alive)
                    before, size = max(entry[0].nbytes, 1), pick.choice((1, 60, pick.randrange(1, 100_000)))
                    if before == size:
                        size += 1  # else NumPy does nothing
                    entry[0].resize(size, refcheck=False)
                    if not entry[2]:
                        entry[1], entry[2] = "this file", True
                        oracle.resize("this file", before, size, inside=False)
                    else:
                        oracle.resize(entry[1], before, size)
                    del entry  # or it would keep the array
                if step % 500 == 17 or step == 2999:
                    report = report_of(t)
                    rows: dict[Any, Any] = dict(rows_of(report, file))
                    own = rows_of(report, __file__)
                    if own:
                        (rows["this file"],) = own.values()
                    oracle.check(report, rows)
        before_peak = report.peak - sum(row.at_peak or 0 for row in report.rows if row.file is not None)
        before_row = row_named(report, "(from before")
        assert (before_row.at_peak if before_row else 0) == before_peak
        del alive


def test_the_line_of_each_kind_of_frame(tmp_path: Path) -> None:
    made = program(
        tmp_path,
        """import functools, numpy
def comprehension(n):
    return [numpy.empty(n, 'u1') for _ in range(3)]
def generator(n):
    for _ in range(3):
        yield numpy.empty(n, 'u1')
short = lambda n: numpy.empty(n, 'u1')
def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper
@decorated
def inside(n):
    return numpy.empty(n, 'u1')
class Thing:
    data = numpy.empty(5, 'u1')
    @property
    def made(self):
        return numpy.empty(70, 'u1')
def executed(n):
    return eval("numpy.empty(n, 'u1')", {'numpy': numpy, 'n': n})
def split(n):
    return numpy.empty(
        n,
        'u1',
    )
async def later(n):
    return numpy.empty(n, 'u1')
""",
    )
    with tn.track() as t:
        kept = [made.comprehension(100), list(made.generator(200)), made.short(300), made.inside(400), made.Thing().made, made.executed(500), made.split(600)]
        try:
            made.later(700).send(None)
        except StopIteration as done:
            kept.append(done.value)
        report = report_of(t)
    live = {line: (row.live, row.live_count) for line, row in rows_of(report, made.file).items()}
    assert live == {3: (300, 3), 6: (600, 3), 7: (300, 1), 15: (400, 1), 20: (70, 1), 24: (600, 1), 29: (700, 1)}
    assert {row.name: row.live for row in report.rows if row.file == "<string>"} == {"<string>:1": 500}
    functions = rows_of(report, made.file)
    assert functions[7].function == "<lambda>" and functions[20].function == "Thing.made" and functions[6].function == "generator"
    del kept


def test_numpy_and_what_is_skipped_are_charged_to_their_callers(tmp_path: Path) -> None:
    helper = program(tmp_path, "import numpy\ndef make(n):\n    return numpy.ones(n, 'u1')\n")
    caller = program(tmp_path, "def call(n):\n    return make(n)\n", make=helper.make)
    with tn.track() as t:
        kept = [numpy.ones(1000, "u1"), numpy.full(2000, 1, "u1"), numpy.concatenate([numpy.ones(10, "u1")] * 300)]
        kept.append(caller.call(4000))
        with tn.track(skip=helper.file) as skipping:
            kept.append(caller.call(5000))
        kept.append(caller.call(6000))
    report, other = report_of(t), report_of(skipping)
    assert not [row for row in report.rows if row.file and "site-packages/numpy" in row.file]
    assert rows_of(report, helper.file)[3].live == 10_000
    assert rows_of(report, caller.file)[2].live == 5000 == rows_of(other, caller.file)[2].live, "what one skips, all do"
    assert not rows_of(other, helper.file)
    assert sum(row.live for row in rows_of(report, __file__).values()) == 6000
    del kept


def test_arrays_that_were_there_are_one_row(tmp_path: Path) -> None:
    file, make = makers(tmp_path)
    with tn.use():
        old = [make[0](5000), make[0](700)]
        with tn.track() as t:
            new = make[1](100)
            del old[0]
            late = report_of(t)
    row = row_named(late, "(from before")
    assert row is not None and late.before - 5000 == row.live == late.in_use - 100
    assert rows_of(late, file)[3].live == 100 and set(rows_of(late, file)) == {3}
    assert late.peak == late.before + 100 and row.at_peak == late.before
    with tn.track() as again:
        pass
    assert report_of(again).peak_line is None and not rows_of(report_of(again), file)
    del old, new


def test_threshold(tmp_path: Path) -> None:
    file, make = makers(tmp_path)
    with tn.track(threshold="1 KiB") as t, tn.track() as fine:
        kept = [make[0](1023), make[1](1024), make[2](10)]
        kept[2].resize(5000, refcheck=False)  # grows out of it
        kept[1].resize(4, refcheck=False)
        report, exact = report_of(t), report_of(fine)
    small = row_named(report, "(arrays of less than 1,024 bytes)")
    assert small is not None and (small.live, small.live_count, small.allocations, small.resizes) == (1027, 2, 2, 1)
    assert {line: row.live for line, row in rows_of(report, file).items()} == {3: 0, 4: 5000}
    assert {line: row.live for line, row in rows_of(exact, file).items()} == {2: 1023, 3: 4, 4: 5000}
    with tn.track(threshold=100) as alone:  # nobody else wants to know the lines of small ones
        kept = [make[0](99), make[1](100)]
        kept[0].resize(200, refcheck=False)
        alone_report = report_of(alone)
    assert {row.name.rpartition(":")[2]: row.live for row in alone_report.rows if row.file}.keys() >= {"3"}
    check_sums(alone_report)
    del kept


def test_tracks_nest_overlap_and_repeat(tmp_path: Path) -> None:
    file, make = makers(tmp_path)
    outer = tn.track()
    outer.__enter__()
    kept = [make[0](100)]
    inner = tn.track()
    inner.__enter__()
    kept.append(make[0](20))
    outer.__exit__(None, None, None)
    kept.append(make[0](3))
    kept[0].resize(200, refcheck=False)  # to the inner one it is new
    inner.__exit__(None, None, None)
    kept.append(make[0](4000))
    first, second = rows_of(report_of(outer), file)[2], rows_of(report_of(inner), file)[2]
    assert (first.live, first.live_count, first.allocations, first.total) == (120, 2, 2, 120)
    assert (second.live, second.live_count, second.allocations, second.resizes, second.total) == (223, 3, 2, 1, 223)
    kept.clear()
    gc.collect()
    assert rows_of(report_of(outer), file)[2] == first, "what comes after the end is not in it"
    for _ in range(3):
        with tn.track() as t:
            array = make[3](9)
        assert rows_of(report_of(t), file)[5].live == 9
        del array


def test_where_freed_and_how_long_lived(tmp_path: Path) -> None:
    made = program(
        tmp_path,
        """import numpy, time
def make(): return numpy.empty(100, 'u1')
def here(a):
    a.clear()
def there(a):
    a.clear()
def short():
    a = [make()]
    here(a)
def long():
    a = [make()]
    time.sleep(0.02)
    there(a)
""",
    )
    with tn.track() as t:
        for _ in range(7):
            made.short()
        for _ in range(10):
            made.long()
        report = report_of(t)
    row = rows_of(report, made.file)[2]
    assert {(freed.name, freed.times) for freed in row.freed_by} == {(f"{made.file}:4", 7), (f"{made.file}:6", 10)}
    long = row.median_lifetime
    assert long is not None and long > 0.02 / 1.25, "most lived for as long as a sleep"
    with tn.track() as t:
        for _ in range(5000):
            made.short()
        report = report_of(t)
    row = rows_of(report, made.file)[2]
    assert row.frees == 5000 and [freed.name for freed in row.freed_by] == [f"{made.file}:4"]
    assert 64 <= row.freed_by[0].times < 5000 / 4
    assert row.median_lifetime is not None and row.median_lifetime < long


def test_frees_of_many_lines_are_bounded(tmp_path: Path) -> None:
    source = "import numpy\ndef make(): return [numpy.empty(10, 'u1')]\n" + "".join(f"def free{i}(a): a.clear()\n" for i in range(20))
    made = program(tmp_path, source)
    with tn.track() as t:
        for i in range(20):
            getattr(made, f"free{i}")(made.make())
        for _ in range(30):
            made.free7(made.make())
        report = report_of(t)
    freed = rows_of(report, made.file)[2].freed_by
    assert len(freed) <= 5 and sum(one.times for one in freed) == 50
    assert (freed[0].name, freed[-1].name) == (f"{made.file}:10", "(other lines)") and 30 <= freed[0].times <= 31


def test_frees_in_another_thread(tmp_path: Path) -> None:
    made = program(tmp_path, "import numpy\ndef make(): return numpy.empty(10_000, 'u1')\ndef free(a):\n    a.clear()\n")
    with tn.track() as t:
        arrays = [made.make() for _ in range(50)]
        thread = threading.Thread(target=made.free, args=[arrays])
        thread.start()
        thread.join()
        report = report_of(t)
    row = rows_of(report, made.file)[2]
    assert (row.live, row.frees, row.peak) == (0, 50, 500_000)
    assert [tuple(freed) for freed in row.freed_by] == [(f"{made.file}:4", 50)]


def test_a_report_holds_no_array_alive(tmp_path: Path) -> None:
    file, make = makers(tmp_path)

    class Mine(numpy.ndarray):
        gone = 0

        def __del__(self) -> None:
            Mine.gone += 1

    with tn.track() as t:
        arrays = [make[0](100).view(Mine) for _ in range(10)]
        report = t.report()
        arrays.clear()
        assert Mine.gone == 10
        assert rows_of(report_of(t), file)[2].live == 0
    assert rows_of(report, file)[2].live == 1000


def test_owner_says_the_line(tmp_path: Path) -> None:
    file, make = makers(tmp_path)
    with tn.track():
        array = make[4](10)
        view = array[2:5]
    found = tn.owner(view)
    assert found is not None and found.site == f"{file}:6"
    with tn.use():
        untracked = make[4](10)
    found = tn.owner(untracked)
    assert found is not None and found.site is None
    del array, view, untracked


def test_failed_requests_are_counted() -> None:
    with tn.track() as t:
        with pytest.raises(MemoryError):
            numpy.empty(2**60, "u1")
        report = report_of(t)
    assert report.failed == 1 and "requests that got no memory: 1" in str(report)


def test_wrong_use_is_refused() -> None:
    for error, arguments in (
        (ValueError, {"by": "function"}),
        (ValueError, {"domains": ("numpy", "gpu")}),
        (ValueError, {"domains": ()}),
        (ValueError, {"threshold": "many"}),
        (ValueError, {"skip": "no_such_module_at_all"}),
        (ValueError, {"skip": "/no/such/folder"}),
        (TypeError, {"skip": [3]}),
    ):
        with pytest.raises(error):
            tn.track(**arguments)
    t = tn.track()
    with pytest.raises(RuntimeError, match="not entered"):
        t.report()
    with pytest.raises(RuntimeError, match="not entered"):
        t.__exit__(None, None, None)
    with t:
        with pytest.raises(RuntimeError, match="already"):
            t.__enter__()
    with pytest.raises(RuntimeError, match="ended"):
        t.__exit__(None, None, None)
    assert repr(t) == "<track of numpy and device: ended>"


def test_a_track_that_is_dropped_open_costs_nothing_any_more(tmp_path: Path) -> None:
    file, make = makers(tmp_path)
    t = tn.track(domains="numpy")
    t.__enter__()
    array = make[0](10)
    del t
    gc.collect()
    with tn.use():
        later = make[0](10)
    with tn.track():
        pass  # it takes out what the other one had put in
    found = tn.owner(later)
    assert found is not None and found.site is None, "nobody tracks lines any more"
    del array, later


def test_device_buffers_are_in_the_same_report(tmp_path: Path, any_device: str) -> None:
    made = program(tmp_path, f"import tack_memory\ndef make(n):\n    return tack_memory.allocate(n, {any_device!r})\n")
    before = made.make(256)
    with tn.track() as t:
        kept = [made.make(4096), made.make(8192)]
        large = made.make(65536)
        large.free()
        kept.append(numpy.empty(77, "u1"))
        report = report_of(t)
        kept[0].free()
    end = report_of(t)
    row = next(row for row in report.rows if row.device == any_device and row.file == made.file)
    assert (row.line, row.live, row.live_count, row.at_peak, row.at_peak_count) == (3, 12_288, 2, 77_824, 3)
    assert (row.allocations, row.frees, row.resizes, row.total, row.peak, row.largest) == (3, 1, None, 77_824, 77_824, 65_536) and row.churn == 1
    (summary,) = [one for one in report.devices if one.device == any_device]
    rows = [row for row in report.rows if row.device == any_device]
    assert sum(row.at_peak or 0 for row in rows) == summary.peak and sum(row.live for row in rows) == summary.in_use
    assert next(row for row in end.rows if row.file == made.file).live == 8192
    assert [row.live for row in report.rows if row.device == "numpy" and row.file == __file__] == [77]
    assert tack_memory.set_origins("off") == "off"
    only = tn.track(domains="device")
    with only:
        extra = made.make(512)
    report = report_of(only)
    assert {row.device for row in report.rows} <= set(tack_memory._devices._opened)
    assert "NumPy" not in str(report) and any_device in str(report)
    for buffer in (*kept[1:2], before, extra):
        buffer.free()
