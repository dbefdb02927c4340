"""What a failing limit prints, word for word: the limit, the peak, by how much, when, who held most, what was spilled, how to allow more."""

from __future__ import annotations

import pytest
from pytest_project import Project

FILTERS = """\
import tack_memory as tm


def scratch(nbytes):
    return tm.allocate(nbytes, "sim:0")


def smooth(field, passes):
    return [scratch(field.nbytes) for _ in range(passes)][-1]
"""

CONFTEST = """\
import pytest
import tack_memory as tm


@pytest.fixture
def mesh():
    return tm.allocate("6 MiB", "sim:0", label="mesh")
"""

TESTS = """\
import pytest
import tack_memory as tm
from filters import smooth

kept = []


@pytest.mark.limit_device_memory("24 MiB", device="sim:0")
def test_smooth(mesh):
    field = tm.allocate("6 MiB", "sim:0")
    out = smooth(
        field, passes=4,
    )
    assert out.nbytes == field.nbytes


@pytest.mark.limit_device_memory(0, device="sim:0", kind="leak")
def test_leak(mesh):
    for number in range(7):
        kept.append(tm.allocate(1500, "sim:0", label=f"part {number}" if number else None))


@pytest.mark.limit_device_memory("9 MiB", device="sim:0", kind="delta")
@pytest.mark.limit_device_memory("10_000_000", device="sim:0", kind="footprint")
def test_two(mesh):
    field = smooth(mesh, 1)
    more = tm.allocate("4 MiB", "sim:0", label="more")
    del mesh


@pytest.mark.limit_device_memory("1 KiB", device="sim:0", kind="peak")
def test_nothing_of_its_own(mesh):
    pass


@pytest.mark.limit_device_memory("5 MiB", device="sim:0")
class TestBudget:
    @pytest.fixture(autouse=True)
    def budget(self):
        with tm.memory_budget("2 MiB", "sim:0"):
            yield

    def test_spilled(self):
        def deep(depth):
            return deep(depth - 1) if depth else tm.allocate("2 MiB", "sim:0")

        fields = [deep(9) for _ in range(3)]
        with tm.launch(fields[0]):
            pass


def test_helper(device_memory, mesh):
    smooth(mesh, 2)
    device_memory.assert_below("12 MiB", "sim:0")
    device_memory.assert_below(12 * 2**20 - 1, device="sim:0")


class TestOld(__import__("unittest").TestCase):
    def setUp(self):
        self.field = tm.allocate("3 MiB", "sim:0")

    @pytest.mark.limit_device_memory("2 MiB", device="sim:0")
    def test_old(self):
        pass


def test_helper_of_leaks(device_memory, mesh):
    device_memory.assert_below(0, "sim:0", kind="leak")
    left = tm.allocate("1 KiB", "sim:0")
    device_memory.assert_below(0, "sim:0", kind="leak")
"""

SMOOTH = """\
device memory: 30 MiB is 6 MiB over the limit of 24 MiB (own, sim:0)
  limit    24 MiB (25,165,824 bytes), own: the most that was alive at one time of what the test's body allocated
           limit_device_memory of the test
  peak     30 MiB (31,457,280 bytes), 6 MiB (6,291,456 bytes) more, 25%
  when     test_filters.py:11: out = smooth(
           filters.py:9 in smooth: return [scratch(field.nbytes) for _ in range(passes)][-1]
           filters.py:5 in scratch: return tm.allocate(nbytes, "sim:0")
  holders  when most was in use on sim:0, 36 MiB:
             24 MiB  filters.py:5 x4
              6 MiB  test_filters.py:10
              6 MiB  mesh (conftest.py:7)
  spilled  nothing during the test's body
  allow    @pytest.mark.limit_device_memory("30 MiB", device="sim:0") on the test
"""

LEAK = """\
device memory: 10.3 KiB is 10.3 KiB over the limit of 0 B (leak, sim:0)
  limit    0 B, leak: what the test's body allocated and was alive when it had ended
           limit_device_memory of the test
  left     10.3 KiB (10,500 bytes), 10.3 KiB (10,500 bytes) more
  holders  left behind:
             1.46 KiB  test_filters.py:20
             1.46 KiB  part 1 (test_filters.py:20)
             1.46 KiB  part 2 (test_filters.py:20)
             1.46 KiB  part 3 (test_filters.py:20)
             1.46 KiB  part 4 (test_filters.py:20)
             2.93 KiB  2 more
  allow    @pytest.mark.limit_device_memory("10.3 KiB", device="sim:0", kind="leak") on the test
"""

TWO = """\
device memory: 16 MiB is 6.47 MiB over the limit of 9.54 MiB (footprint, sim:0)
  limit    9.54 MiB (10,000,000 bytes), footprint: the most in use and spilled together during the test's body, what was there before included
           limit_device_memory of the test
  peak     16 MiB (16,787,716 bytes), 6.47 MiB (6,787,716 bytes) more, 67.9%
  when     test_filters.py:27: more = tm.allocate("4 MiB", "sim:0", label="more")
  holders  when most was in use on sim:0, 16 MiB:
                6 MiB  filters.py:5
                6 MiB  mesh (conftest.py:7)
                4 MiB  more (test_filters.py:27)
             1.46 KiB  test_filters.py:20
             1.46 KiB  part 1 (test_filters.py:20)
             7.32 KiB  5 more
  spilled  nothing during the test's body
  allow    @pytest.mark.limit_device_memory("16.1 MiB", device="sim:0", kind="footprint") on the test

device memory: 10 MiB is 1 MiB over the limit of 9 MiB (delta, sim:0)
  limit    9 MiB (9,437,184 bytes), delta: the most in use on the device during the test's body, above what was in use when it began
           limit_device_memory of the test
  peak     10 MiB (10,485,760 bytes), 1 MiB (1,048,576 bytes) more, 11.1%
  when     test_filters.py:27: more = tm.allocate("4 MiB", "sim:0", label="more")
"""

NOTHING = """\
device memory: 6.01 MiB is 6.01 MiB over the limit of 1 KiB (peak, sim:0)
  limit    1 KiB (1,024 bytes), peak: the most in use on the device during the test's body, what was there before included
           limit_device_memory of the test
  peak     6.01 MiB (6,301,956 bytes), 6.01 MiB (6,300,932 bytes) more, 6,154 times as much
  when     when the test's body began: nothing in it raised the peak
  holders  when most was in use on sim:0, 6.01 MiB:
                6 MiB  mesh (conftest.py:7)
             1.46 KiB  test_filters.py:20
             1.46 KiB  part 1 (test_filters.py:20)
             1.46 KiB  part 2 (test_filters.py:20)
             1.46 KiB  part 3 (test_filters.py:20)
             4.39 KiB  3 more
  spilled  nothing during the test's body
  allow    @pytest.mark.limit_device_memory("6.02 MiB", device="sim:0", kind="peak") on the test
"""

SPILLED = """\
device memory: 6 MiB is 1 MiB over the limit of 5 MiB (own, sim:0)
  limit    5 MiB (5,242,880 bytes), own: the most that was alive at one time of what the test's body allocated
           limit_device_memory of class TestBudget
  peak     6 MiB (6,291,456 bytes), 1 MiB (1,048,576 bytes) more, 20%
  when     test_filters.py:47: fields = [deep(9) for _ in range(3)]
           test_filters.py:45 in TestBudget.test_spilled.<locals>.deep: return deep(depth - 1) if depth else tm.allocate("2 MiB", "sim:0")
  holders  when most was in use on sim:0, 2 MiB:
             2 MiB  test_filters.py:45
  spilled  6.01 MiB to host memory during the test's body, 2 MiB brought back
  allow    @pytest.mark.limit_device_memory("6 MiB", device="sim:0") on class TestBudget
"""

HELPER = """\
E       AssertionError: device memory: 12 MiB is 1 B over the limit of 12 MiB (own, sim:0)
E         limit    12 MiB (12,582,911 bytes), own: the most that was alive at one time of what the test's body allocated
E                  device_memory.assert_below
E         peak     12 MiB (12,582,912 bytes), 1 B more
E         when     test_filters.py:53: smooth(mesh, 2)
E                  filters.py:9 in smooth: return [scratch(field.nbytes) for _ in range(passes)][-1]
E                  filters.py:5 in scratch: return tm.allocate(nbytes, "sim:0")
E         holders  when most was in use on sim:0, 18 MiB:
E                    12 MiB  filters.py:5 x2
E                     6 MiB  mesh (conftest.py:7)
E         spilled  nothing during the test's body
E         allow    device_memory.assert_below("12 MiB", device="sim:0")
"""

OLD = """\
  when     test_filters.py:60 in TestOld.setUp: self.field = tm.allocate("3 MiB", "sim:0")
           in setUp, which unittest runs with the test
"""

HELPER_OF_LEAKS = """\
E         left     1 KiB (1,024 bytes), 1 KiB (1,024 bytes) more
E         holders  left behind:
E                    1 KiB  test_filters.py:69
E         allow    device_memory.assert_below("1 KiB", device="sim:0", kind="leak")
"""


@pytest.fixture
def failing(project: Project) -> Project:
    for name, text in (("filters.py", FILTERS), ("conftest.py", CONFTEST), ("test_filters.py", TESTS)):
        project.write(name, text)
    return project


STACKS = """\
import pytest
import tack_memory as tm
from filters import scratch

tm.set_origins("stack")
kept = []


@pytest.mark.limit_device_memory("2 MiB", device="sim:0")
@pytest.mark.limit_device_memory(0, device="sim:0", kind="leak")
def test_both_ways():
    kept.append(scratch(2**20))
    kept.append(scratch(2**21))
"""


def test_where_stacks_are_recorded_lines_are_shown_once(project: Project) -> None:
    project.write("filters.py", FILTERS)
    project.write("test_stacks.py", STACKS)
    done = project.run("-q")
    assert done.stdout.count("3 MiB  filters.py:5 x2\n") == 2, done.stdout
    assert done.stdout.count("filters.py:5 x") == 2 and "1 failed" in done.stdout


def test_a_failing_limit_prints_all_that_is_known(failing: Project) -> None:
    done = failing.run("-q")
    for text in (SMOOTH, LEAK, TWO, NOTHING, SPILLED, HELPER, OLD, HELPER_OF_LEAKS):
        assert text in done.stdout, text
    assert done.stdout.count("Traceback") == 0 and "tack_memory/_pytest" not in done.stdout
    assert "FAILED test_filters.py::test_smooth - Failed: device memory: 30 MiB is 6 MiB over the limit of 24 MiB (own, sim:0)\n" in done.stdout
    assert done.returncode == 1 and "8 failed" in done.stdout
