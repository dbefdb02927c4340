"""What the pytest plug-in costs a suite that does not use it, and a test that is measured; each in fresh processes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Row

TESTS = 1000

SUITE = f"""
import pytest

@pytest.mark.parametrize("number", range({TESTS}))
def test_plain(number): ...
"""

UNUSED = """
import functools, sys, time
import pytest

began = time.process_time()
import _tack_memory_pytest as plugin

spent = time.process_time() - began

def timed(function):
    @functools.wraps(function)
    def hook(*args, **keywords):
        global spent
        began = time.process_time()
        try:
            return function(*args, **keywords)
        finally:
            spent += time.process_time() - began
    return hook

for name in [name for name in vars(plugin) if name.startswith("pytest_")]:
    setattr(plugin, name, timed(getattr(plugin, name)))
assert pytest.main(["-q", "-p", "no:cacheprovider"]) == 0 and "tack_memory" not in sys.modules
print()
print(spent)
"""
"""The processor time of the plug-in's module and of all its hooks, in the suite's own process: the difference of two whole runs would drown in noise."""

USED = """
import sys, time
import pytest

began = time.process_time()
assert pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]) == 0
print()
print(time.process_time() - began)
"""


def seconds(script: str, folder: str, *arguments: str) -> float:
    """The plug-in alone, with its bytecode written as after any installation."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ |= {"PYTHONPYCACHEPREFIX": folder, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "_tack_memory_pytest"}
    done = subprocess.run([sys.executable, "-c", script, *arguments], cwd=folder, env=environ, check=True, text=True, stdout=subprocess.PIPE)
    return float(done.stdout.splitlines()[-1])


def rows(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        Path(folder, "test_plain.py").write_text(SUITE)
        seconds(UNUSED, folder)  # the bytecode is written
        unused = [seconds(UNUSED, folder) * 1e3 for _ in range(rounds)]
        plain = [seconds(USED, folder) for _ in range(max(2, rounds // 3))]
        measured = [seconds(USED, folder, "--device-memory-report") for _ in range(max(2, rounds // 3))]
    each = (min(measured) - min(plain)) * 1e3 / TESTS
    return [
        Row(
            f"the pytest plug-in, in a suite of {TESTS:,} tests that does not use it",
            min(unused),
            "ms",
            5,
            median=statistics.median(unused),
            note="processor time of its module and all its hooks",
        ),
        Row(
            "a test that it measures, above one that it does not",
            each,
            "ms",
            note="where device memory is alive, there is a full collection of garbage as well",
        ),
    ]
