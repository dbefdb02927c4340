"""`--device-memory-report`, its JSON file, JUnit's properties, `--device-memory-budget`; alone and under pytest-xdist."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ElementTree

import pytest
from pytest_project import Project

import tack_memory
from tack_memory import _devices
from tack_memory._pytest.budget import Budget
from tack_memory._settings import settings

TESTS = """\
    import pytest
    import tack_memory as tm

    @pytest.fixture
    def mesh():
        return tm.allocate("6 MiB", "sim:0")

    @pytest.mark.parametrize("number", range(12))
    def test_some(number):
        tm.allocate((number + 1) * 1000, "sim:0")

    def test_with_set_up(mesh):
        tm.allocate("2 MiB", "sim:0")

    def test_on_two_devices():
        one = tm.allocate("3 MiB", "sim:0")
        two = tm.allocate("1 MiB", "sim:1")

    def test_spilled():
        with tm.memory_budget("1 MiB", "sim:0"):
            fields = [tm.allocate("1 MiB", "sim:0") for _ in range(4)]

    kept = []

    def test_left():
        kept.append(tm.allocate("1 MiB", "sim:0"))

    def test_failed():
        one = tm.allocate("512 KiB", "sim:0")
        raise OSError

    def test_nothing():
        pass
    """

TABLE = """\
====== device memory: the tests that held most =======
     own  set-up      peak  spilled   left  device  test
   4 MiB     0 B     1 MiB    3 MiB    0 B  sim:0   test_a.py::test_spilled
   3 MiB     0 B     3 MiB      0 B    0 B  sim:0   test_a.py::test_on_two_devices
   2 MiB   6 MiB     8 MiB      0 B    0 B  sim:0   test_a.py::test_with_set_up
   1 MiB     0 B     1 MiB      0 B  1 MiB  sim:0   test_a.py::test_left
   1 MiB     0 B     1 MiB      0 B    0 B  sim:1   test_a.py::test_on_two_devices
 512 KiB     0 B   1.5 MiB      0 B      -  sim:0   test_a.py::test_failed
11.7 KiB     0 B  11.7 KiB      0 B    0 B  sim:0   test_a.py::test_some[11]
(11 more held less; all: --device-memory-report-top=0)
"""


@pytest.fixture
def project(project: Project) -> Project:
    project.write("test_a.py", TESTS)
    return project


def test_the_table(project: Project) -> None:
    output = project.run("-q", "--tb=no", "--device-memory-report-top=7", COLUMNS="54").stdout
    assert TABLE in output, output
    assert "test_nothing" not in output
    whole = project.run("-q", "--tb=no", "--device-memory-report-top=0").stdout
    assert whole.count("test_a.py::test_some[") == 12 and "more held less" not in whole
    ten = project.run("-q", "--tb=no", "--device-memory-report").stdout
    assert len(re.findall(r"sim:\d   test_a.py", ten)) == 10
    assert "=\nno test held any\n" in project.run("-q", "--tb=no", "--device-memory-report", "-k", "nothing").stdout
    wrong = project.run("--device-memory-report-top=-1")
    assert wrong.returncode == 4 and "--device-memory-report-top: a number of tests, or 0 for all" in wrong.stderr


def test_four_workers_give_the_same_bytes(project: Project) -> None:
    """The JSON file, byte for byte, and the table; JUnit has the same figures."""
    files = {}
    tables = {}
    for name, more in (("alone", []), ("workers", ["-n", "4"])):
        done = project.run("-q", "--tb=no", f"--device-memory-report-json={name}.json", "--device-memory-report", "--junitxml", f"{name}.xml", *more)
        files[name] = (project.folder / f"{name}.json").read_text()
        tables[name] = done.stdout.partition("device memory:")[2].partition("short test summary")[0]
    # What test_left keeps is in the peak of later tests of the same process: the one figure that depends on what ran before.
    own = {name: json.loads(file) for name, file in files.items()}
    for told in own.values():
        for test in told["tests"]:
            for figures in test["devices"].values():
                del figures["peak"], figures["footprint"]
    assert own["alone"] == own["workers"]
    (spilled,) = [test for test in own["alone"]["tests"] if test["test"] == "test_a.py::test_spilled"]
    assert spilled == {
        "test": "test_a.py::test_spilled",
        "outcome": "passed",
        "devices": {"sim:0": {"own": 4194304, "delta": 1048576, "leak": 0, "set_up": 0, "spilled_bytes": 3145728, "restored_bytes": 0}},
    }
    failed = next(test for test in own["alone"]["tests"] if test["test"] == "test_a.py::test_failed")
    assert failed["outcome"] == "failed" and failed["devices"]["sim:0"]["leak"] is None
    for name, told in own.items():
        for test in told["tests"]:
            (case,) = ElementTree.parse(project.folder / f"{name}.xml").findall(f".//testcase[@name='{test['test'].rpartition('::')[2]}']")
            properties = {each.get("name"): each.get("value") for each in case.iter("property")}
            for device, figures in test["devices"].items():
                for kind, nbytes in figures.items():
                    assert properties.get(f"device_memory[{device}].{kind}") == (None if nbytes is None else str(nbytes))
    assert len(tables["alone"].splitlines()) == len(tables["workers"].splitlines())


BUDGET = """\
    import os, subprocess, sys
    import tack_memory as tm

    def test_budget():
        assert tm.get_memory_budget("sim:0") == 4 * 2**20 and tm.get_memory_budget("sim:1") == 2 * 2**20
        assert os.environ["TACK_MEMORY_BUDGET"] == "sim:0=4 MiB,2 MiB"
        fields = [tm.allocate("1 MiB", "sim:0") for _ in range(6)]
        assert tm.memory_info("sim:0").in_use == 4 * 2**20
    """


def test_a_budget(project: Project) -> None:
    project.write("test_a.py", BUDGET)
    output = project.passes("--device-memory-budget", "sim:0=4 MiB,2 MiB")
    assert "device memory: budget sim:0 4 MiB, 2 MiB on each other device\n" in output
    project.configure("device_memory_budget = sim:0=4 MiB,2 MiB")
    assert "device memory: budget sim:0 4 MiB" in project.passes("-n", "1")
    project.write(
        "twice.py",
        """
        import os
        import pytest, tack_memory as tm

        tm.set_memory_budget("7 MiB", "sim:0", strict=True)
        assert pytest.main(["-q", "-p", "no:cacheprovider"]) == 0
        print(tm.get_memory_budget("sim:0"), tm.get_memory_budget("sim:1"), tm.memory_info("sim:0").strict, os.environ.get("TACK_MEMORY_BUDGET"))
        for wrong in ("2G", "0", "cuda:x=1 GiB", ""):
            assert pytest.main(["-q", "--device-memory-budget", wrong]) == 4
        print(tm.get_memory_budget("sim:0"))
        """,
    )
    done = project.python("twice.py")
    assert done.stdout.endswith(f"{7 * 2**20} None True None\n{7 * 2**20}\n"), done.stdout + done.stderr
    assert "--device-memory-budget=2G: '2G' can be read in two ways" in done.stderr and "a budget must be above 0" in done.stderr
    assert "'cuda:x' is not a device" in done.stderr and "Traceback" not in done.stderr


def test_a_budget_for_each_device_is_none_for_numpys_memory(project: Project) -> None:
    """Which a plug-in or a conftest.py may count before the budget is set, or a test in the middle."""
    project.write("conftest.py", "import tack_memory.numpy\ntack_memory.numpy.install()\n")
    project.write(
        "test_both.py",
        """
        import tack_memory

        def test_it():
            tack_memory.allocate(1, "sim:0")
            assert tack_memory.get_memory_budget("sim:0") == 2**20 and tack_memory.memory_info("numpy").budget is None
        """,
    )
    assert "device memory: budget 1 MiB on each device" in project.passes("test_both.py", "--device-memory-budget", "1 MiB")


def test_a_budget_that_cannot_be_set_on_one_device_is_set_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may not know the total that a percentage is of."""
    kept = [tack_memory.allocate(1, name) for name in ("sim:0", "sim:1")]
    variable, budgets = os.environ.get("TACK_MEMORY_BUDGET"), settings.budgets

    def total_of(device: str) -> int | None:
        return None if device == "sim:1" else 2**30

    monkeypatch.setattr(_devices, "total_of", total_of)
    with pytest.raises(ValueError, match="TACK_MEMORY_BUDGET: '50%'.* sim:1"):
        Budget("sim:0=1 MiB,sim:1=50%", "--device-memory-budget").start()
    assert [tack_memory.get_memory_budget(buffer.device) for buffer in kept] == [None, None]
    assert (os.environ.get("TACK_MEMORY_BUDGET"), settings.budgets) == (variable, budgets)


FULL = """
    import tack_memory as tm

    def test_holds():
        tm.allocate("1 MiB", "sim:0")
    """


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_files_that_cannot_be_written_are_told_and_the_results_with_them(project: Project, workers: list[str]) -> None:
    project.write("test_a.py", FULL)
    options = ["--device-memory-report-json", "test_a.py/report.json", "--device-memory-baseline", "test_a.py/memory.txt", "--device-memory-update"]
    done = project.run("--junit-xml=junit.xml", *options, *workers)
    assert done.returncode == 1, done.stdout + done.stderr
    for what in ("report", "baseline"):
        assert re.search(rf"\ndevice memory: the {what} was not written: \[Errno .*test_a\.py", done.stdout), done.stdout
    assert "1 passed" in done.stdout and "Traceback" not in done.stdout + done.stderr and (project.folder / "junit.xml").exists()


def test_help_lists_the_options(project: Project) -> None:
    output = project.passes("--help")
    for word in (
        "--device-memory-report\n", "--device-memory-report-top=N", "--device-memory-report-json=FILE", "--device-memory-baseline=FILE",
        "--device-memory-update",
        "--device-memory-budget=SIZE", 'cuda:1=50%"', "device_memory_limit (linelist)", "device_memory_baseline_tolerance (string)",
    ):  # fmt: skip
        assert word in output, word
    assert "limit_device_memory(size, device=None, kind=" in project.passes("--markers")
    assert "device_memory -- " in project.passes("--fixtures")
