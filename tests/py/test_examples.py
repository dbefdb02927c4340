"""The small examples, run as a reader runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import NO_GPU, REAL

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(script: str, *arguments: str, options: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TACK_MEMORY_", "TMSOFT_"))}
    command = [sys.executable, *options, str(EXAMPLES / script), *arguments]
    return subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("device", [None, *(pytest.param(name, marks=pytest.mark.gpu) for name in REAL)])
def test_a_framework_is_plugged_in(device: str | None) -> None:
    done = run("plugged_in.py", *([device] if device else []))
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith(f"MemoryInfo({device or 'sim:0'}: in use 64 MiB, peak 64 MiB, spilled 32 MiB, budget 64 MiB")
    assert last == "last: 66.0 of 66"


@pytest.mark.parametrize("script", ["plugged_in.py", "sweep.py"])
def test_a_package_that_is_missing_is_told_in_one_line(script: str) -> None:
    """An interpreter without site-packages has none of them."""
    done = run(script, options=("-S",), PYTHONPATH="")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "has no numpy" in done.stderr and "no tack_memory" in done.stderr and "make demo" in done.stderr and "pip install '.[demo]'" in done.stderr


def test_help_is_no_error() -> None:
    done = run("plugged_in.py", "--help")
    assert (done.returncode, done.stderr) == (0, "") and "plugged_in.py cuda:0" in done.stdout


@pytest.mark.parametrize(("script", "name"), [("plugged_in.py", ()), ("sweep.py", ("--device",))])
@pytest.mark.parametrize("device", ["cuda:0", "hip:0", "level_zero:0", "gpu:0", "cuda:x"])
def test_a_device_that_is_not_there_is_told_in_one_line(script: str, name: tuple[str, ...], device: str, tmp_path: Path) -> None:
    libraries = NO_GPU if script == "sweep.py" else {"LD_LIBRARY_PATH": str(tmp_path)}
    for vendors_own in ("libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libze_loader.so.1"):
        (tmp_path / vendors_own).write_bytes(b"no library")  # what would be found on a machine that has a GPU
    done = run(script, *name, device, **libraries)
    assert (done.returncode, done.stdout) == (1, "") and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.startswith(f"{script}: ") and done.stderr.count("\n") == 1
