"""`--device-memory-baseline FILE`, `--device-memory-update`: what has grown, shrunk, is new or gone, as a review reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_project import Project

from tack_memory._pytest.baseline import HEADER, Change, Seen, Tolerance, compare, read, write

TESTS = """\
import os
import pytest
import tack_memory as tm

more = int(os.environ.get("MORE", "0"))


def hold(nbytes):
    return tm.allocate(nbytes, "sim:0")


def test_grows():
    hold(24 * 2**20 + 6 * 2**20 * more)


def test_grows_a_little():
    hold(100_000 + 4_000 * more)


def test_shrinks():
    hold(2**20 - 2**19 * more)


def test_uses_nothing_any_more():
    hold(3000 * (1 - more))


@pytest.mark.parametrize("text", ["a b", "c"])
def test_same(text):
    hold(12345)
    other = tm.allocate(77, "sim:1")


if more:
    def test_new():
        hold("12 MiB")
else:
    def test_old():
        hold(5000)


def test_fails():
    hold(1000)
    raise OSError


def test_nothing():
    pass
"""

FILE = """\
test_a.py::test_grows sim:0 25165824
test_a.py::test_grows_a_little sim:0 100000
test_a.py::test_old sim:0 5000
test_a.py::test_same[a b] sim:0 12345
test_a.py::test_same[a b] sim:1 77
test_a.py::test_same[c] sim:0 12345
test_a.py::test_same[c] sim:1 77
test_a.py::test_shrinks sim:0 1048576
test_a.py::test_uses_nothing_any_more sim:0 3000
"""

GREW = """\
device memory: 30 MiB is 6 MiB over the limit of 24 MiB (own, sim:0)
  limit    24 MiB (25,165,824 bytes), own: the most that was alive at one time of what the test's body allocated
           memory.txt has 25,165,824 bytes
  peak     30 MiB (31,457,280 bytes), 6 MiB (6,291,456 bytes) more, 25%
  when     test_a.py:13: hold(24 * 2**20 + 6 * 2**20 * more)
           test_a.py:9 in hold: return tm.allocate(nbytes, "sim:0")
  holders  when most was in use on sim:0, 30 MiB:
             30 MiB  test_a.py:9
  spilled  nothing during the test's body
  allow    if that is right: pytest --device-memory-baseline memory.txt --device-memory-update
"""

ALL = """\
=========== device memory: compared with memory.txt ============
grew        +6 MiB (+25%)    24 MiB -> 30 MiB   sim:0  test_a.py::test_grows
grew      +3.91 KiB (+4%)  97.7 KiB -> 102 KiB  sim:0  test_a.py::test_grows_a_little
shrank    -512 KiB (-50%)     1 MiB -> 512 KiB  sim:0  test_a.py::test_shrinks
shrank  -2.93 KiB (-100%)  2.93 KiB -> 0 B      sim:0  test_a.py::test_uses_nothing_any_more
new                               - -> 12 MiB   sim:0  test_a.py::test_new
gone                       4.88 KiB -> -        sim:0  test_a.py::test_old
2 grew (+6 MiB), 2 shrank (-515 KiB), 1 new, 1 gone, 4 as before
"""

ACCEPT = "to accept: pytest --device-memory-baseline memory.txt --device-memory-update\n"


@pytest.fixture
def project(project: Project) -> Project:
    project.write("test_a.py", TESTS)
    project.write("memory.txt", HEADER + FILE)
    return project


def memory(project: Project) -> str:
    return (project.folder / "memory.txt").read_text()


def test_a_baseline_is_written_sorted_and_left_alone_where_nothing_changed(project: Project) -> None:
    file = project.folder / "memory.txt"
    file.unlink()
    output = project.run("-q", "--tb=no", "--device-memory-baseline=memory.txt", "--device-memory-update", "-n", "4").stdout
    assert memory(project) == HEADER + FILE and "9 new, 0 as before\nmemory.txt is written\n" in output
    before = file.stat()
    output = project.run("-q", "--tb=no", "--device-memory-baseline=memory.txt", "--device-memory-update").stdout
    assert file.stat() == before and "9 as before\nmemory.txt is as it was\n" in output
    assert [each.name for each in project.folder.glob("memory*")] == ["memory.txt"]


def test_what_differs_reads_like_a_review(project: Project) -> None:
    """And a test that grew fails, with all that a failing limit tells. Four workers say the same, and write the same bytes."""
    done = project.run("-q", "-rf", "--device-memory-baseline", "memory.txt", MORE="1", COLUMNS="64")
    assert ALL + ACCEPT in done.stdout, done.stdout
    assert GREW in done.stdout, done.stdout
    assert done.returncode == 1 and "3 failed, 6 passed" in done.stdout
    assert memory(project) == HEADER + FILE
    distributed = project.run("-q", "-rf", "--device-memory-baseline", "memory.txt", "-n", "4", MORE="1", COLUMNS="64")
    assert ALL + ACCEPT in distributed.stdout and "3 failed, 6 passed" in distributed.stdout


def test_an_update_accepts_it(project: Project) -> None:
    files = []
    for more in ([], ["-n", "4"]):
        project.write("memory.txt", HEADER + FILE)
        done = project.run("-q", "--tb=no", "--device-memory-baseline", "memory.txt", "--device-memory-update", *more, MORE="1", COLUMNS="64")
        assert ALL + "memory.txt is written\n" in done.stdout and "1 failed, 8 passed" in done.stdout, done.stdout
        files.append(memory(project))
    grown = (
        FILE.replace("25165824", "31457280").replace("100000", "104000").replace("1048576", "524288").replace("test_old sim:0 5000", "test_new sim:0 12582912")
    )
    lines = [line for line in grown.splitlines(keepends=True) if "nothing_any_more" not in line]
    assert files == [HEADER + "".join(sorted(lines))] * 2


def test_a_tolerance(project: Project) -> None:
    project.configure("device_memory_baseline = memory.txt", "device_memory_baseline_tolerance = 4%")
    output = project.run("-q", "--tb=short", MORE="1", COLUMNS="64").stdout
    assert "test_grows_a_little" not in output and "1 grew (+6 MiB)" in output and "to accept: pytest --device-memory-update\n" in output
    assert "           memory.txt has 25,165,824 bytes, with a tolerance of 4%\n" in output
    project.run("-q", "--device-memory-update", MORE="1")
    assert "test_a.py::test_grows_a_little sim:0 100000\n" in memory(project), "what is within the tolerance makes no change of the file"
    project.configure("device_memory_baseline = memory.txt", "device_memory_baseline_tolerance = 4")
    assert "1 grew (+3.91 KiB)" in project.run("-q", "--tb=no", MORE="1").stdout


def test_a_part_of_the_tests_says_nothing_of_the_others(project: Project) -> None:
    choices = (["test_a.py::test_same"], ["-k", "same"], ["--deselect", "test_a.py::test_grows", "-k", "same or grows"], [], ["--lf"], ["--lf", "-n", "2"])
    for arguments in choices:
        output = project.python("-m", "pytest", "-q", "--tb=no", "--device-memory-baseline", "memory.txt", *arguments).stdout
        assert "gone" not in output and "as before\n" in output, (arguments, output)
    project.write("test_b.py", "def test_b(): ...\n")
    (project.folder / "test_a.py").rename(project.folder / "test_c.py")
    output = project.run("-q", "--tb=no", "--device-memory-baseline", "memory.txt", "test_b.py").stdout
    assert "9 gone, 0 as before\n" in output, "their file is"
    project.write("test_a.py", "def broken(:\n")
    output = project.run("-q", "--tb=no", "--device-memory-baseline", "memory.txt", "--continue-on-collection-errors", "test_a.py", "test_b.py").stdout
    assert "gone" not in output, "what cannot be collected may have them"


def test_rows_of_a_device_that_is_not_there_stay(project: Project) -> None:
    project.write("memory.txt", HEADER + FILE + "test_a.py::test_same[c] cuda:9 4000\n")
    done = project.run("-q", "--tb=no", "--device-memory-baseline", "memory.txt", "--device-memory-update", **NO_GPU)
    assert "9 as before\n" in done.stdout and "cuda:9 4000\n" in memory(project)


NO_GPU = {f"TACK_MEMORY_{name}_LIBRARY": "/nonexistent/library.so" for name in ("CUDA", "HIP", "LEVEL_ZERO")}

WRONG = [
    (["--device-memory-update"], "--device-memory-update is for a baseline: give --device-memory-baseline FILE, too"),
    (["--device-memory-baseline=none.txt"], "--device-memory-baseline: there is no none.txt; to write it: add --device-memory-update"),
    (["--device-memory-baseline="], "--device-memory-baseline: give the name of a file"),
    (["--device-memory-baseline=."], "--device-memory-baseline: . is a folder"),
    (["--device-memory-baseline=broken.txt"], "broken.txt:2: '<<<<<<< HEAD' is not a test's id, a device and a number of bytes"),
    (["--device-memory-baseline=twice.txt"], "twice.txt:2: a::b on sim:0 is there twice"),
    (["--override-ini=device_memory_baseline_tolerance=lots", "--device-memory-baseline=memory.txt"], "device_memory_baseline_tolerance: 'lots' is not a size"),
]


def test_wrong_options_and_files_are_a_usage_error(project: Project) -> None:
    project.write("broken.txt", "a::b sim:0 5\n<<<<<<< HEAD\n")
    project.write("twice.txt", "a::b sim:0 5\na::b sim:0 6\n")
    runs = ["import sys, pytest"]
    runs += [f"print(int(pytest.main({arguments!r})), flush=True); print('=====', file=sys.stderr, flush=True)" for arguments, _ in WRONG]
    done = project.python("-c", "\n".join(runs))
    assert done.stdout.split() == ["4"] * len(WRONG), done.stdout + done.stderr
    for (arguments, text), told in zip(WRONG, done.stderr.split("=====\n"), strict=False):
        assert text in told and "Traceback" not in told, (arguments, told)


def test_what_only_is_collected_writes_nothing(project: Project) -> None:
    before = memory(project)
    for only in ("--collect-only", "--co"):
        assert "written" not in project.passes("-q", only, "--device-memory-baseline", "memory.txt", "--device-memory-update")
    assert memory(project) == before
    project.passes("-q", "--co", "--device-memory-baseline", "new.txt", "--device-memory-update")
    assert not (project.folder / "new.txt").exists()


def test_doctests_that_were_not_collected_are_not_gone(project: Project) -> None:
    project.write("test_a.py", DOCTESTS)
    project.passes("-q", "--doctest-modules", "--device-memory-baseline", "memory.txt", "--device-memory-update")
    rows = memory(project)
    assert "test_a.py::test_a sim:0 1000\ntest_a.py::test_a.f sim:0 2000\n" in rows
    output = project.run("-q", "--device-memory-baseline", "memory.txt", "--device-memory-update").stdout
    assert "gone" not in output and memory(project) == rows, output
    project.write("test_a.py", DOCTESTS.replace(">>> held", "held"))
    assert "2 gone" in project.run("-q", "--doctest-modules", "--device-memory-baseline", "memory.txt", "--device-memory-update").stdout


DOCTESTS = '''
    """
    >>> held = tm.allocate(1000, "sim:0")
    """
    import tack_memory as tm

    def f():
        """
        >>> held = tm.allocate(2000, "sim:0")
        """
    '''


# ---- its parts


def test_ids_with_spaces_are_read_back(tmp_path: Path) -> None:
    rows = {
        ("a.py::test[x  y z]", "sim:0"): 5,
        ("a.py::test[1 2]", "cuda:0"): 0,
        ("b.py::ü", "cpu"): 2**62,
        ("#odd/c.py::t", "cpu"): 1,
        ("\udcff.py::t", "cpu"): 2,
    }
    file = tmp_path / "folder" / "memory.txt"
    assert write(file, rows) and read(file) == rows and not write(file, dict(reversed(rows.items())))


def test_a_file_of_other_editors(tmp_path: Path) -> None:
    file = tmp_path / "memory.txt"
    file.write_bytes(b"\xef\xbb\xbf# a byte order mark\r\n#said without a blank\r\n#\r\n# a.py::t sim:0 4\r\na.py::t sim:0 5\r\n")
    assert read(file) == {("a.py::t", "sim:0"): 5}
    file.write_bytes(b"a.py::t sim:0 5\n\xff\n")
    with pytest.raises(ValueError, match=r"memory\.txt:2: "):
        read(file)


@pytest.mark.parametrize(("tolerance", "now", "same"), [("0", 1001, False), ("1", 1001, True), ("1", 998, False), ("0.1%", 999, True), ("0.1%", 1002, False)])
def test_the_tolerance_is_inclusive_and_both_ways(tolerance: str, now: int, same: bool) -> None:
    compared = compare({("a", "d"): 1000}, {("a", "d"): now}, {"a": ["d"]}, set(), Tolerance(tolerance))
    assert (compared.same, len(compared.changes)) == ((1, 0) if same else (0, 1))
    assert compared.rows == {("a", "d"): 1000 if same else now}


def test_only_what_ran_is_compared() -> None:
    before = {("ran", "d"): 5, ("ran", "closed"): 5, ("did not", "d"): 5, ("gone", "d"): 5}
    compared = compare(before, {("ran", "d"): 6, ("new", "d"): 1}, {"ran": ["d"], "new": ["d"], "nothing": ["d"]}, {"gone"}, Tolerance("0"))
    assert compared.changes == [Change("grew", "ran", "d", 5, 6), Change("new", "new", "d", 0, 1), Change("gone", "gone", "d", 5, 0)]
    assert compared.rows == {("ran", "d"): 6, ("ran", "closed"): 5, ("did not", "d"): 5, ("new", "d"): 1}
    assert compared.summary() == "1 grew (+1 B), 1 new, 1 gone, 0 as before"


def test_a_test_is_gone_where_its_file_is_or_was_collected_whole(tmp_path: Path) -> None:
    (tmp_path / "there.py").touch()
    (tmp_path / "whole.py").touch()
    seen = Seen({"whole.py::test_a"}, {"whole.py"})
    lacks = {test: seen.lacks(test, tmp_path) for test in ("whole.py::test_a", "whole.py::test_b", "there.py::test_c", "nowhere.py::test_d")}
    assert list(lacks.values()) == [False, True, False, True]
