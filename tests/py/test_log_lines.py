"""Lines for the log at level INFO: the first spill, a budget that is passed, arrays that take turns. With the figures and what to do next."""

from __future__ import annotations

import pytest
from support import run_python

THRASH = """
    import sys
    import tack_memory as tm
    MIB = 2**20
    tm.set_memory_budget(10 * MIB, "sim:0")
    a, b = tm.allocate(6 * MIB, "sim:0", label="first"), tm.allocate(7 * MIB, "sim:0", label="second")
    for _ in range(10):
        a.restore(); b.restore()
    tm.memory_info("sim:0")
    """


def lines(script: str, level: str = "info", **environment: str) -> list[str]:
    done = run_python(script, TACK_MEMORY_LOG=level, **environment)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "tack_memory" in line]


def test_the_first_spill_and_thrashing_are_one_line_each() -> None:
    first, turns = lines(THRASH)
    assert 'INFO: sim:0: the first spill: 6 MiB ("first") went to host memory, because what came to the device needed room under the budget' in first
    assert "spilled 6 MiB, budget 10 MiB" in first and 'memory_report("sim:0")' in first
    assert 'INFO: sim:0: arrays take turns: 6 MiB ("first") was pushed out for the 3rd time in a row soon after it came back' in turns
    assert "raise the budget" in turns and "budget 10 MiB" in turns


def test_each_device_has_lines_of_its_own() -> None:
    two = 'import tack_memory as tm\nfor name in ("sim:0", "sim:1", "sim:1"):\n    tm.allocate(1 << 20, name).spill()\n'
    found = lines(two, TACK_MEMORY_SIM="64 MiB,64 MiB")
    assert [line.partition("INFO: ")[2][:23] for line in found] == ["sim:0: the first spill:", "sim:1: the first spill:"]


def test_passing_a_soft_budget_is_a_line_and_a_strict_one_is_an_error_without_any() -> None:
    script = """
    import tack_memory as tm
    tm.set_memory_budget("1 MiB", "sim:0")
    for _ in range(3):
        big = tm.allocate("3 MiB", "sim:0")
        del big
    tm.set_memory_budget("1 MiB", "sim:0", strict=True)
    try:
        tm.allocate("3 MiB", "sim:0")
    except tm.DeviceMemoryError:
        pass
    """
    (line,) = lines(script)
    assert "sim:0: the budget was passed: in use 3 MiB, budget 1 MiB; 2 MiB above it now. It was passed once so far" in line
    assert "strict=True" in line


@pytest.mark.parametrize("level", ["warning", "error"])
def test_at_other_levels_there_are_none(level: str) -> None:
    assert lines(THRASH, level) == []


def test_without_a_log_logging_is_not_even_imported() -> None:
    done = run_python(THRASH + "assert 'logging' not in sys.modules and 'json' not in sys.modules, 'imported for nobody'", TACK_MEMORY_LOG="")
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_programs_own_handler_gets_them() -> None:
    script = """
    import logging
    logging.basicConfig(level=logging.INFO, format="mine %(name)s %(levelname)s %(message)s")
    import tack_memory as tm
    tm.allocate(1 << 20, "sim:0").spill()
    """
    done = run_python(script, TACK_MEMORY_LOG="")
    assert "mine tack_memory INFO sim:0: the first spill: an array of 1 MiB went to host memory, because the program asked for it" in done.stderr, done.stderr


def test_loading_the_package_anew_writes_each_line_once() -> None:
    script = "import importlib, tack_memory as tm\nimportlib.reload(tm)\ntm.allocate(1 << 20, 'sim:0').spill()\n"
    assert len(lines(script)) == 1
