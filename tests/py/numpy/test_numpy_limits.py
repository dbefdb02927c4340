"""The pytest plug-in's limits on NumPy's memory."""

from __future__ import annotations

from pathlib import Path

from pytest_project import Project

CONFTEST = """\
import tack_memory.numpy

tack_memory.numpy.install()
"""

TESTS = """\
import numpy
import pytest

kept = []


@pytest.mark.limit_device_memory("10 MiB", device="numpy")
def test_within():
    numpy.zeros(8 << 20, "u1")


@pytest.mark.limit_device_memory("1 MiB", device="numpy")
def test_beyond():
    numpy.zeros(8 << 20, "u1")


@pytest.mark.limit_device_memory("1 MiB", device="numpy", kind="leak")
def test_leak():
    kept.append(numpy.zeros(2 << 20, "u1"))


@pytest.mark.limit_device_memory("1 MiB", device="numpy", kind="leak")
def test_no_leak():
    numpy.zeros(2 << 20, "u1")
"""


LATE = """\
import numpy
import pytest
import tack_memory.numpy


@pytest.fixture
def counted():
    with tack_memory.numpy.use("default"):
        yield


@pytest.mark.limit_device_memory("1 MiB", device="numpy")
def test_unknown():
    pass


@pytest.mark.limit_device_memory("1 MiB", device="numpy")
def test_counted(counted):
    numpy.zeros(8 << 20, "u1")
"""


def test_a_fixture_may_begin_to_count(tmp_path: Path) -> None:
    """Whether the device is there is asked when the body begins, and no sooner."""
    project = Project(tmp_path)
    project.write("test_late.py", LATE)
    done = project.run("-rA")
    assert "FAILED test_late.py::test_unknown - Failed: limit_device_memory: unknown device 'numpy': nothing counts NumPy's memory yet" in done.stdout, (
        done.stdout
    )
    assert "FAILED test_late.py::test_counted - Failed: device memory: 8 MiB is 7 MiB over" in done.stdout and "2 failed" in done.stdout, done.stdout


def test_limits_of_numpys_memory(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("conftest.py", CONFTEST)
    project.write("test_arrays.py", TESTS)
    done = project.run("-rA")
    assert done.returncode == 1, done.stdout + done.stderr
    for name, result in {"within": "PASSED", "beyond": "FAILED", "leak": "FAILED", "no_leak": "PASSED"}.items():
        assert f"{result} test_arrays.py::test_{name}" in done.stdout, done.stdout
    assert "8 MiB" in done.stdout and "2 failed, 2 passed" in done.stdout
