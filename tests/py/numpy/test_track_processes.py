"""Lines in threads, in forked children, without the GIL, of code that is made again and again; and no garbage collection inside a handler."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from support import run_python
from test_numpy_processes import ended_well, resident_memory_is_ours
from track_support import check_sums, program, report_of, rows_of

import tack_memory.numpy as tn

THREADS = 4


def test_threads_are_counted_and_each_report_is_one_moment(tmp_path: Path) -> None:
    """In every report, while others allocate, resize and free: the rows add up to what is in use and to the peak."""
    made = program(
        tmp_path,
        """import numpy
def work(stop, made):
    while not stop.is_set():
        i = len(made)
        made.append(None)
        a = numpy.empty(1000 + i, 'u1')
        b = numpy.empty(50_000, 'u1')
        del b
        a.resize(3 * i + 1, refcheck=False)
""",
    )
    stop = threading.Event()
    counts: list[list[None]] = [[] for _ in range(THREADS)]
    threads = [threading.Thread(target=made.work, args=[stop, count]) for count in counts]
    with tn.track() as t:
        for thread in threads:
            thread.start()
        for _ in range(50):
            report = report_of(t)
            check_sums(report)
            for row in rows_of(report, made.file).values():
                assert row.live_count == (row.allocations or 0) - (row.frees or 0)
        stop.set()
        for thread in threads:
            thread.join()
        report = report_of(t)
    rows = rows_of(report, made.file)
    total = sum(map(len, counts))
    assert total > 50 and (rows[6].allocations, rows[6].resizes, rows[7].allocations) == (total, total, total)
    assert rows[6].live == rows[7].live == 0 and rows[7].total == total * 50_000


def test_tracks_begin_and_end_while_threads_allocate(tmp_path: Path) -> None:
    made = program(tmp_path, "import numpy\ndef work(stop):\n    while not stop.is_set():\n        numpy.empty(100, 'u1')\n")
    stop = threading.Event()
    threads = [threading.Thread(target=made.work, args=[stop]) for _ in range(THREADS)]
    for thread in threads:
        thread.start()

    def tracks() -> None:
        for _ in range(60):
            with tn.track(domains="numpy") as t:
                check_sums(report_of(t))
            check_sums(report_of(t))

    others = [threading.Thread(target=tracks) for _ in range(2)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    stop.set()
    for thread in threads:
        thread.join()


def test_a_forked_child_goes_on(tmp_path: Path) -> None:
    ended_well("""
        import os
        import numpy
        import tack_memory, tack_memory.numpy as tn

        def lines(t):
            return {row.line: (row.live, row.allocations, row.frees) for row in t.report(coverage=False).rows if row.file == "<string>"}

        tack_memory.allocate(64, "cpu")
        t = tn.track()
        t.__enter__()
        def make(n): return numpy.empty(n, "u1")
        first = [make(1000), make(10)]
        before = lines(t)
        (line,) = before
        assert before[line] == (1010, 2, 0), before
        pid = os.fork()
        if pid == 0:
            first.pop(0)
            mine = make(5)
            assert lines(t)[line] == (15, 3, 1), lines(t)
            with tn.track() as inner:
                other = make(7)
            assert lines(inner)[line] == (7, 1, 0) and not inner.report().devices
            t.__exit__(None, None, None)
            assert lines(t)[line] == (22, 4, 1)
            assert tn.owner(numpy.empty(3)).handler == "default_allocator"
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert lines(t) == before
        assert [one.device for one in t.report().devices] == ["cpu"]
        t.__exit__(None, None, None)
        """)


def test_a_resize_without_the_gil_keeps_the_line_and_looks_at_no_frame() -> None:
    """NumPy grows the result of text-mode fromstring and fromfile without the GIL, while another thread runs Python code."""
    ended_well("""
        import threading, warnings
        import numpy
        import tack_memory.numpy as tn

        warnings.simplefilter("ignore")
        text = " ".join(map(str, range(200_000)))
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                numpy.empty(10)
                sum(range(50))
        def read(): return numpy.fromstring(text, sep=" ")
        thread = threading.Thread(target=busy)
        with tn.track(threshold=1024) as t, tn.track() as fine:
            thread.start()
            for _ in range(30):
                found = read()
            stop.set()
            thread.join()
            reports = [t.report(coverage=False), fine.report(coverage=False)]
        for report in reports:
            (row,) = [row for row in report.rows if row.function == "read"]
            assert row.resizes > 100 and row.live == found.nbytes, row
            assert sum(row.live for row in report.rows if row.device == "numpy") == report.in_use
        """)


def test_the_collector_does_not_run_inside_a_handler() -> None:
    """With a collection due at each new container: tracking lines makes no container, so there are as many with it as without."""
    ended_well("""
        import gc
        import numpy
        import tack_memory.numpy as tn

        def make(): return numpy.empty(10, "u1")
        def run(times):
            for _ in range(times):
                make()
        def collections(times):
            found = [0]
            def count(phase, info): found[0] += phase == "start"
            gc.callbacks.append(count)
            gc.set_threshold(1, 1_000_000, 1_000_000)
            run(times)
            gc.set_threshold(0)
            gc.callbacks.remove(count)
            return found[0]
        with tn.use(): collections(10); plain = collections(500)
        with tn.track() as t: collections(10); tracked = collections(500)
        assert plain == tracked, (plain, tracked)
        """)


@resident_memory_is_ours
def test_code_that_is_made_again_and_again_is_one_line() -> None:
    """100,000 functions, each executed once and dropped: one row, and no memory that stays."""
    ended_well("""
        import numpy
        import tack_memory.numpy as tn
        from tack_memory._native import _numpy

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096
        empty = numpy.empty
        def many(count):
            for i in range(count):
                names = {"empty": empty}
                exec(f"def f{i % 10}(): return empty(10, 'u1')", names)  # a few names: CPython keeps each for ever from 3.12 on
                names[f"f{i % 10}"]()
        with tn.track() as t:
            many(5_000)
            before = resident()
            many(100_000)
            grown = resident() - before
            report = t.report(coverage=False)
        (row,) = [row for row in report.rows if row.file == "<string>"]
        assert (row.line, row.allocations, row.live, row.function) == (1, 105_000, 0, "f0"), row
        assert grown < 2 * 2**20, grown
        """)


def test_more_lines_than_there_is_room_for_share_a_row() -> None:
    ended_well("""
        import numpy
        import tack_memory.numpy as tn

        with tn.track() as t:
            kept = [numpy.empty(0)]
            assert "no more lines can be told apart" not in str(t.report(coverage=False))
            kept.clear()
            for i in range(40_000):
                code = compile("kept.append(empty(3, 'u1'))", f"<generated {i}>", "exec")
                exec(code, {"empty": numpy.empty, "kept": kept})
            report = t.report(coverage=False)
        assert "no more lines can be told apart" in str(report)
        (other,) = [row for row in report.rows if row.name == "(other lines)"]
        named = [row for row in report.rows if row.file is not None and row.file.startswith("<generated")]
        assert 32_000 < len(named) < 2**15 and all(row.live == 3 for row in named)
        assert other.live == 3 * (40_000 - len(named)) and sum(row.live for row in report.rows) == report.in_use
        assert "at the peak" in report.to_text()
        """)


def test_a_part_of_numpy_that_is_imported_when_it_is_used() -> None:
    """What it allocates meanwhile is the line's that uses it, not the interpreter's import code's."""
    ended_well("""
        import importlib, sys
        import numpy
        import tack_memory.numpy as tn

        def use(): import numpy.polynomial.chebyshev
        def use_too(): importlib.import_module("numpy.polynomial.chebyshev")
        for function in (use, use_too):
            for name in [name for name in sys.modules if name.startswith("numpy.polynomial")]:
                del sys.modules[name]
            with tn.track(domains="numpy") as t:
                function()
            rows = [row for row in t.report(coverage=False).rows if row.file is not None]
            assert [row.function for row in rows] == [function.__name__] and rows[0].allocations > 5, rows
        """)


def test_lines_of_a_function_with_many_allocations(tmp_path: Path) -> None:
    """More than fit into the first table of a code object; and of two code objects with the same lines."""
    body = "".join(f"    kept.append(numpy.empty({i + 1}, 'u1'))\n" for i in range(300))
    made = program(tmp_path, "import numpy\ndef make(kept):\n" + body)
    again = program(tmp_path, "import numpy\ndef make(kept):\n" + body)
    kept: list[Any] = []
    with tn.track() as t:
        made.make(kept)
        made.make(kept)
        again.make(kept)
        report = report_of(t)
    assert {line: row.live for line, row in rows_of(report, made.file).items()} == {i + 3: 2 * (i + 1) for i in range(300)}
    assert {line: row.live for line, row in rows_of(report, again.file).items()} == {i + 3: i + 1 for i in range(300)}
    del kept


def test_the_end_of_python_with_an_open_track() -> None:
    done = run_python("""
        import threading, time
        import numpy
        import tack_memory.numpy as tn

        t = tn.track()
        t.__enter__()
        kept = [numpy.empty(i) for i in range(100)]
        def forever():
            while True:
                numpy.empty(100)
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.05)
        print(len(t.report().rows) > 0)
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
